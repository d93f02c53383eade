"""Reports and perflogs in the forms of older ReFrames and of sites: written here as these write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lumisite.cli import main
from lumisite.validate.lines import Gate, Sample
from lumisite.validate.reframe.cases import Answers, DirectionError, Number
from lumisite.validate.reframe.columns import header_of
from lumisite.validate.reframe.read import kind_of, with_reframe
from lumisite.validate.samples import read_lines
from tests.unit.reframe_files import WHERE, Output, case_of, faults, lines, report, samples, written

N1 = Answers(nodes=("n1",))


def found(path: Path, **options: Any) -> set[tuple[str, float, str, str]]:
    return {(one.metric, one.value, one.better, one.unit) for one in samples(path, **options).values()}


# ---- ReFrame 3


OLD = "2026-01-20T09:12:40+02:00|reframe 3.12.0|{}|jobid=7|{}\n"


@pytest.mark.parametrize("info", ["Bw on lumi:standard-g using builtin", "Bw @lumi:standard-g+builtin"])
def test_a_perflog_of_reframe_3_has_no_header_and_is_read(tmp_path: Path, info: str) -> None:
    text = OLD.format(info, "bw=10.0|ref=11 (l=-0.1, u=null)|GB/s") + OLD.format(
        info, "lat a=b=3.5e-1|ref=0 (l=null, u=null)|us"
    )
    path = written(tmp_path, text, "Bw.log")
    assert found(path, answers=N1) == {
        (f"Bw {WHERE}/bw", 10.0, "higher", "GB/s"),
        (f"Bw {WHERE}/lat a=b", 0.35, "lower", "us"),
    }
    (run,) = {line.run for line in samples(path, answers=N1).values()}
    assert run == "lumi-7-20260120T071240Z"
    assert "Bw.log:1: ReFrame 3 does not write a job's nodes into perflogs" in faults(path)
    with_nodes = written(tmp_path, text.replace("|jobid=7", "|jobid=7|nodelist=n1,n2"), "nodes.log")
    assert {one.nodes for one in samples(with_nodes).values()} == {("n1", "n2")}


def test_lines_of_reframe_3_that_name_all_they_say_are_read_too(tmp_path: Path) -> None:
    said = "bw=10.0|num_tasks=16|ref=11|lower=null|upper=null|units=Mflop/s per node|variables={}"
    path = written(tmp_path, OLD.format("Bw @lumi:standard-g+builtin", said), "Bw.log")
    assert found(path, answers=N1) == {(f"Bw {WHERE}/bw", 10.0, "higher", "Mflop/s per node")}


def test_a_number_of_reframe_3_that_missed_its_reference_is_left_out_before_and_judged_after(tmp_path: Path) -> None:
    path = written(tmp_path, OLD.format("Bw @lumi:standard-g+builtin", "bw=9.8|ref=11 (l=-0.1, u=null)|GB/s"), "p.log")
    told: list[str] = []
    assert lines(path, answers=N1, said=told) == []
    assert told == [f"p.log: failed, left out: Bw {WHERE}"]
    gate, sample = lines(path, answers=N1, after=True)
    assert isinstance(gate, Gate)
    assert gate.verdict == "pass"
    assert isinstance(sample, Sample)
    assert sample.value == 9.8


def test_a_line_of_reframe_3_without_the_number_of_its_job_is_refused(tmp_path: Path) -> None:
    text = OLD.format("Bw @lumi:standard-g+builtin", "bw=1|ref=11 (l=-0.1, u=null)|GB/s").replace("jobid=7|", "")
    assert faults(written(tmp_path, text, "p.log"), answers=N1).startswith("p.log:1: jobid: missing (")


def test_the_job_of_a_test_that_was_not_built_has_no_number(tmp_path: Path) -> None:
    raw = report(jobid="None", result="failure", fail_phase="compile_wait")
    (gate,) = lines(written(tmp_path, raw), after=True)
    assert gate.run.startswith("lumi-nojob-")


@pytest.mark.parametrize(
    "line",
    [
        OLD.format("Bw @lumi:standard-g+builtin", "bw=1|lat=2|ref=11 (l=-0.1, u=null)|GB/s"),  # which one is it?
        OLD.format("Bw", "bw=1|ref=11 (l=-0.1, u=null)|GB/s"),
        "2026-01-20T09:12:40+02:00|reframe 3.12.0|Bw @lu",
    ],
)
def test_a_line_of_reframe_3_that_is_not_clear_is_told(tmp_path: Path, line: str) -> None:
    whole = OLD.format("Bw @lumi:standard-g+builtin", "bw=10.0|ref=11 (l=-0.1, u=null)|GB/s")
    told: list[str] = []
    assert len(lines(written(tmp_path, whole + line, "p.log"), answers=N1, said=told)) == 1
    assert told == ["p.log: torn, left out: line 2 is no line of ReFrame 3"]


def test_a_perflog_that_was_begun_by_reframe_3_goes_on_with_a_header(tmp_path: Path) -> None:
    text = OLD.format("Bw @lumi:standard-g+builtin", "bw=10.0|ref=11 (l=-0.1, u=null)|GB/s")
    text += "job_completion_time,version,display_name,system,partition,environ,jobid,result,bw_value,bw_unit\n"
    text += "2026-01-21T09:12:40,4.0.5,Bw,lumi,standard-g,builtin,8,pass,12.0,GB/s"
    assert {value for _, value, _, _ in found(written(tmp_path, text, "p.log"), answers=N1)} == {10.0, 12.0}


@pytest.mark.parametrize("version", ["1.0", "1.3.0", "2.0", "2.2", "3.1"])
def test_a_report_of_reframe_3_is_read_as_one_of_4_0(tmp_path: Path, version: str) -> None:
    number = {"name": "bw", "reference": 0, "thres_lower": None, "thres_upper": None, "unit": "GB/s", "value": 10.0}
    raw = report(name="Bw_1", display_name="Bw %size=1", system="lumi:standard-g", environment="builtin")
    case = case_of(raw)
    for key in ("partition", "environ", "perfvalues", "job_nodelist", "job_completion_time_unix"):
        del case[key]
    case |= {"nodelist": ["n1"], "perfvars": [number], "result": "success", "jobid": 5}
    raw["session_info"] = {"data_version": version, "time_end": "2026-01-20T07:12:40+0000"}
    (one,) = samples(written(tmp_path, raw)).values()
    assert (one.metric, one.nodes, one.time) == (f"Bw %size=1 {WHERE}/bw", ("n1",), 1768893160.0)
    assert one.run == "lumi-5-20260120T071240Z"


@pytest.mark.parametrize("sign", ["$", "."])
def test_a_repeated_or_distributed_test_is_one_test(tmp_path: Path, sign: str) -> None:
    raw = report()
    name = f"Bw %{sign}part=lumi:standard-g %{sign}nid=n1 %size=1 %{sign}repeat_no="
    raw["runs"][0]["testcases"] = [
        case_of(raw) | {"jobid": str(number), "display_name": f"{name}{number} ~lumi"} for number in range(3)
    ]
    kept = samples(written(tmp_path, raw))
    assert {metric for metric, _ in kept} == {f"Bw %size=1 ~lumi {WHERE}/bw"}
    assert len(kept) == 3


def test_a_job_counts_once_though_report_and_perflog_tell_two_times(tmp_path: Path) -> None:
    number = {"name": "bw", "reference": 0, "thres_lower": None, "thres_upper": None, "unit": "GB/s", "value": 10.0}
    raw = report(perfvars=[number], jobid="7", result="success")
    for key in ("perfvalues", "job_completion_time_unix"):
        del case_of(raw)[key]
    raw["session_info"] = {"data_version": "3.1", "time_end": "2026-01-20T09:32:40+0200"}
    line = OLD.format("Bw %size=1 @lumi:standard-g+builtin", "bw={}|ref=0 (l=null, u=null)|GB/s").replace("+02:00", "")
    log = written(tmp_path, line.format("10.0") + line.format("11.0").replace("jobid=7", "jobid=8"), "p.log")
    for files in ((written(tmp_path, raw), log), (log, written(tmp_path, raw))):
        kept = lines(*files, answers=N1, after=True)
        assert sorted(one.value for one in kept if isinstance(one, Sample)) == [10.0, 11.0]
        assert len([one for one in kept if isinstance(one, Gate)]) == 2
    later = written(tmp_path, line.format("10.0").replace("2026-01-20", "2026-03-20"), "later.log")
    assert len(lines(log, later, answers=N1)) == 3  # Slurm gave the number again


# ---- what 4.7 and later print of what they stored


def test_a_list_of_reports_or_of_cases_is_read(tmp_path: Path) -> None:
    first, second = report(), report(jobid="124")
    expected = samples(written(tmp_path, first, "1.json")) | samples(written(tmp_path, second, "2.json"))
    sessions = written(tmp_path, [first, second], "sessions.json")
    cases = written(tmp_path, [{"build_jobid": None} | case_of(raw) for raw in (first, second)], "cases.json")
    assert samples(sessions) == samples(cases) == expected
    assert len(expected) == 2


def test_names_of_numbers_may_have_colons(tmp_path: Path) -> None:
    row = [10.0, 0, None, None, "GB/s", "pass"]
    raw = report(perfvalues={f"lumi:standard-g:{name}": row for name in ("L1:read", "L2:read", "Draw:")})
    assert {metric.partition("/")[2] for metric, _ in samples(written(tmp_path, raw))} == {
        "L1:read",
        "L2:read",
        "Draw:",
    }


def test_a_fault_in_a_list_is_named_by_its_place(tmp_path: Path) -> None:
    bad = report(jobid=[1])
    path = written(tmp_path, [report(), bad], "r.json")
    assert faults(path) == "r.json: [1].runs[0].testcases[0].jobid: [1] is not the number of a job"
    path = written(tmp_path, [{"build_stderr": None} | case_of(bad)], "c.json")
    assert faults(path) == "c.json: [0].jobid: [1] is not the number of a job"
    del bad["runs"]
    path = written(tmp_path, [report(), bad], "r.json")
    assert faults(path) == "r.json: [1].runs missing: not a whole report of ReFrame"


# ---- formats of a site's own


TIME = "2026-01-20T09:12:40+02:00"
FORMATS = {
    "as in ReFrame 3": (
        "job_completion_time|reframe version|info|jobid=jobid|job_nodelist|perf_var=perf_value|"
        "ref=perf_ref (l=perf_lower_thres, u=perf_upper_thres)|perf_unit\n"
        f"{TIME}|reframe 4.10.4|Bw /070c4387 @lumi:standard-g+builtin|jobid=7|n1|x=y=10.0|ref=10 (l=-0.1, u=null)|GB/s\n"
        f"{TIME}|reframe 4.10.4|Bw /070c4387 @lumi:standard-g+builtin|jobid=7|n1|lat=3.5|ref=0 (l=null, u=null)|s\n"
    ),
    "pairs": (
        "job_completion_time|version|info|jobid=jobid|job_nodelist|x=y_var=x=y_value|x=y_ref|x=y_lower|x=y_upper|x=y_unit|"
        "lat_var=lat_value|lat_ref|lat_lower|lat_upper|lat_unit|env_vars\n"
        f"{TIME}|4.1.0|Bw @lumi:standard-g+builtin|jobid=7|n1|x=y=10.0|10|-0.1|None|GB/s|lat=3.5|0|None|None|s|{{}}\n"
    ),
    "pairs as 4.0 to 4.2 write them": (
        "job_completion_time|version|info|jobid|job_nodelist|x=y_var=x=y_value|x=y_ref|x=y_lower|x=y_upper|x=y_unit|"
        "lat_var=lat_value|lat_ref|lat_lower|lat_upper|lat_unit|env_vars\n"
        f"{TIME}|4.1.3|Bw @lumi:standard-g+builtin|jobid=7|nodes=n1|x=y=10.0|ref=10|lower=-0.1|upper=None|units=GB/s|"
        "lat=3.5|ref=0|lower=None|upper=None|units=s|env={}\n"
    ),
    "as in ReFrame 3, as 4.0 to 4.2 write it": (
        "job_completion_time|version|info|jobid|job_nodelist|perf_var=perf_value|"
        "perf_ref perf_lower_thres,perf_upper_thres)perf_unit\n"
        f"{TIME}|reframe 4.0.5|Bw /070c4387 @lumi:standard-g+builtin|jobid=7|nodelist=n1|x=y=10.0|ref=10 (l=-0.1, u=null)|GB/s\n"
        f"{TIME}|reframe 4.0.5|Bw /070c4387 @lumi:standard-g+builtin|jobid=7|nodelist=n1|lat=3.5|ref=0 (l=null, u=null)|s\n"
    ),
    "words before numbers": (
        "result|job_completion_time|name|system:partition+environ|jobid|job_nodelist|value=x=y_value|unit=x=y_unit|"
        "value=lat_value|unit=lat_unit\n"
        f"pass|{TIME}|Bw|lumi:standard-g+builtin|7|n1|value=10.0|unit=GB/s|value=3.5|unit=s\n"
    ),
    "value and unit": (
        "result|job_completion_time|name|system:partition|environ|jobid|job_nodelist|x=y_value x=y_unit|lat_value lat_unit\n"
        f"pass|{TIME}|Bw|lumi:standard-g|builtin|7|n1|10.0 GB/s|3.5 s\n"
    ),
}


@pytest.mark.parametrize("text", FORMATS.values(), ids=FORMATS)
def test_a_format_may_have_words_and_signs_around_what_it_says(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text, "p.log")
    assert found(path) == {(f"Bw {WHERE}/x=y", 10.0, "higher", "GB/s"), (f"Bw {WHERE}/lat", 3.5, "lower", "s")}
    assert {(one.run, one.nodes) for one in samples(path).values()} == {("lumi-7-20260120T071240Z", ("n1",))}


@pytest.mark.parametrize(
    "when",
    [
        "2026-01-20T07:12:40Z",
        "2026-01-20T09:12:40+0200",
        "2026-01-20 07:12:40,000",
        "2026-01-20T07:12:40.0",
        "2026-01-20T07:12:40",
    ],
)
def test_times_in_other_forms_are_the_same_time(tmp_path: Path, when: str) -> None:
    path = written(tmp_path, FORMATS["value and unit"].replace(TIME, when), "p.log")
    assert {one.time for one in samples(path).values()} == {1768893160.0}


def test_without_a_result_a_test_without_numbers_failed(tmp_path: Path) -> None:
    text = FORMATS["pairs"].replace("=10.0", "=None").replace("=3.5", "=None")
    (gate,) = lines(written(tmp_path, text, "p.log"), after=True)
    assert isinstance(gate, Gate)
    assert gate.verdict == "fail"


def test_without_a_result_and_references_nothing_tells_whether_a_test_passed(tmp_path: Path) -> None:
    text = FORMATS["value and unit"].replace("result|", "").replace("pass|", "")
    assert "p.log:1: the perflog has no column result" in faults(written(tmp_path, text, "p.log"))


def test_a_line_of_numbers_and_words_is_no_header() -> None:
    assert (
        header_of("pass|2026-01-20T09:12:40|the result, name and jobid=7 of system|version 3|partition of name") is None
    )


HEAD = "result,job_completion_time,name,system,partition,environ,jobid,job_nodelist,{}bw_value,bw_unit\n"
ROW = f"pass,{TIME},Bw,lumi,standard-g,builtin,7,{{}},10.0,GB/s\n"


def test_nodes_between_commas_are_put_together_where_commas_part_columns_too(tmp_path: Path) -> None:
    (one,) = lines(written(tmp_path, HEAD.format("") + ROW.format("n2,n10,n3"), "p.log"))
    assert one.nodes == ("n10", "n2", "n3")
    assert isinstance(one, Sample)
    assert one.value == 10.0


@pytest.mark.parametrize(("more", "nodes"), [("modules,", "n1,gcc,rocm"), ("", "n1,8.0,us")])
def test_but_not_where_something_else_may_be_what_is_too_many(tmp_path: Path, more: str, nodes: str) -> None:
    told: list[str] = []
    assert lines(written(tmp_path, HEAD.format(more) + ROW.format(nodes), "p.log"), said=told) == []
    assert "torn, left out: line 2 has 12 columns" in told[0]


@pytest.mark.parametrize("cut", range(1, 60))
def test_a_last_line_that_is_cut_gives_no_wrong_number_and_refuses_nothing(tmp_path: Path, cut: int) -> None:
    head = "result,job_completion_time,name,system,partition,environ,jobid,job_nodelist,t_unit,t_ref,t_value\n"
    row = f"pass,{TIME},Bw,lumi,standard-g,builtin,{{}},n1,s,2.25,2.25\n"
    for text in (
        head + row.format(7) + row.format(8),
        OLD.format("Bw @lumi:standard-g+builtin", "t=2.25|ref=2.25 (l=null, u=0.1)|us") * 2,
    ):
        told: list[str] = []
        kept = lines(written(tmp_path, text[:-cut], "p.log"), answers=N1, said=told)
        assert {line.value for line in kept if isinstance(line, Sample)} == {2.25}
        assert {line.unit for line in kept if isinstance(line, Sample)} <= {"s", "us"}
        assert len(kept) + len(told) <= 2


def test_a_last_line_without_an_end_that_is_whole_counts(tmp_path: Path) -> None:
    text = OLD.format("Bw @lumi:standard-g+builtin", "t=2.25|ref=2.25 (l=null, u=0.1)|us")
    path = written(tmp_path, text + text.replace("2.25|", "2.5|")[:-1], "p.log")
    told: list[str] = []
    assert len(lines(path, answers=N1, said=told)) == 1  # two values of one job are for the reader of samples
    assert told == [f"p.log: failed, left out: Bw {WHERE}"]
    assert lines(written(tmp_path, text[:-1], "p.log"), answers=N1, said=told) == []
    assert told[1:] == ["p.log: torn, left out: line 1 has no end, and its last word may lack letters"]


@pytest.mark.parametrize("when", [float("nan"), float("inf"), 1e18, -5, 10**400])
def test_a_time_that_is_none_is_refused(tmp_path: Path, when: float) -> None:
    assert "job_completion_time_unix: " in faults(written(tmp_path, report(job_completion_time_unix=when)))
    raw = report(job_completion_time_unix=None)
    raw["session_info"]["time_end_unix"] = when
    assert "session_info.time_end_unix: " in faults(written(tmp_path, raw))
    text = FORMATS["value and unit"].replace("job_completion_time", "job_completion_time_unix").replace(TIME, f"{when}")
    assert "p.log:2: job_completion_time_unix: " in faults(written(tmp_path, text, "p.log"))


# ---- what cannot be compared


@pytest.mark.parametrize("value", [0, -1.5, float("nan"), float("inf")])
def test_a_number_that_is_no_speed_is_left_out_and_the_others_count(tmp_path: Path, value: float) -> None:
    raw = report()
    case_of(raw)["perfvalues"]["lumi:standard-g:t"] = [value, 0, None, None, "s", "pass"]
    for after in (False, True):
        told: list[str] = []
        kept = lines(written(tmp_path, raw, "r.json"), after=after, said=told)
        assert [line.metric for line in kept if isinstance(line, Sample)] == [f"Bw %size=1 {WHERE}/bw"]
        assert told == [f"r.json: not above 0 and finite, left out: Bw %size=1 {WHERE}/t is {value:g}"]


def test_one_fault_tells_of_all_tests_whose_number_has_no_direction(tmp_path: Path) -> None:
    raw = report(perfvalues={"lumi:standard-g:n": [1.0, 0, None, None, "w", "pass"]})
    case = case_of(raw)
    raw["runs"][0]["testcases"] = [case | {"name": f"T{number}"} for number in (1, 2, 2, 3)]
    (told,) = faults(written(tmp_path, raw, "r.json")).splitlines()
    assert told.startswith(f"r.json: T1 {WHERE}: ")
    assert told.endswith("; so with 2 other tests")


def test_what_is_to_be_typed_means_this_number_only() -> None:
    with pytest.raises(DirectionError) as caught:
        Answers().of("T/n[0]", Number("k", "n[0]", 1.0, 0.0, None, None, ""))
    pattern = "*/n[[]0]"
    assert f"--better '{pattern}=higher'" in str(caught.value)
    answers = Answers(((pattern, "higher"),))
    assert answers.of("T/n[0]", Number("k", "n[0]", 1.0, 0.0, None, None, "")) == "higher"
    assert answers.of("T/min[0]", Number("k", "min[0]", 1.0, 0.0, None, None, "us")) == "lower"


@pytest.mark.parametrize(
    ("unit", "better"),
    [
        ("Gflops/seconds", "higher"), ("Mflop/s per node", "higher"), ("GFLOPS/W", "higher"), ("MB/s/rank", "higher"),
        ("Gflops per node", "higher"), ("GUPS", "higher"), ("MLUPS", "higher"), ("SYPD", "higher"),
        ("days/ns", "lower"), ("s per step", "lower"), ("ms/iteration", "lower"), ("microsec", "lower"),
        ("J/s", None), ("errors/s", None), ("page faults/s", None), ("cache-misses/s", None), ("EUR/h", None),
        ("W", None), ("MHz", None), ("cycles", None), ("GB", None), ("bytes/cycle", None), ("/s", None),
    ],
)  # fmt: skip
def test_units_of_rates_and_times_tell_the_direction_and_others_do_not(unit: str, better: str | None) -> None:
    number = Number("k", "n", 1.0, 0.0, None, None, unit)
    if better is None:
        with pytest.raises(DirectionError):
            Answers().of("T/n", number)
    else:
        assert Answers().of("T/n", number) == better


# ---- files of others


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("WARNING: something\nelse\n" * 30, '"WARNING: something"'),
        ('[\n  {\n    "a": 1\n  }\n]\n', '"["'),
        ('{\n  "systems": []\n}\n', '"{"'),
        ("a|b|c\n1|2|3\n", '"a|b|c"'),
    ],
)
def test_a_file_of_another_kind_is_refused_in_one_line(tmp_path: Path, capsys: Output, text: str, shown: str) -> None:
    path = written(tmp_path, text, "x.log")
    assert kind_of(text.encode()) is None
    for words in (["reframe", "--import", str(path)], ["verdict", "--before", str(path), "--after", str(path)]):
        assert main(words) == 2
        (told,) = capsys.readouterr().err.splitlines()
        assert f"x.log: neither samples nor a report or perflog of ReFrame: it begins with {shown} (" in told


@pytest.mark.parametrize("before", [b"\xef\xbb\xbf", b"  ", b"\n\n ", b"\xef\xbb\xbf \t"])
def test_samples_are_known_behind_a_byte_order_mark_or_blanks(before: bytes) -> None:
    line = b'{"metric": "m", "value": 1, "better": "higher", "run": "1", "nodes": ["n"], "time": 1}'
    (found,) = with_reframe([("x.jsonl", [before + line])], print)
    assert set(read_lines([(found[0], found[1])]).series) == {"m"}
