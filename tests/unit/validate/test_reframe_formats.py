"""Reports and perflogs in the other forms that ReFrame 4 writes, written here as it writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lumisite.cli import main
from lumisite.validate.lines import Gate, Sample
from lumisite.validate.reframe.cases import Answers, DirectionError, Number
from lumisite.validate.reframe.read import kind_of, with_reframe
from lumisite.validate.samples import read_lines
from tests.support.reframe_files import WHERE, Output, case_of, faults, lines, report, samples, written

N1 = Answers(nodes=("n1",))


TIME = "2026-01-20T09:12:40+02:00"
HEAD = "result,job_completion_time,name,system,partition,environ,jobid,job_nodelist,bw_value,bw_unit\n"


def found(path: Path, **options: Any) -> set[tuple[str, float, str, str]]:
    return {(one.metric, one.value, one.better, one.unit) for one in samples(path, **options).values()}


# ---- ReFrame 3


OLD = "2026-01-20T09:12:40+02:00|reframe 3.12.0|Bw @lumi:standard-g+builtin|jobid=7|bw=10.0|ref=11 (l=-0.1, u=null)|GB/s\n"


def test_a_perflog_of_reframe_3_is_refused_by_its_version(tmp_path: Path) -> None:
    told = faults(written(tmp_path, OLD, "Bw.log"))
    assert told.startswith("Bw.log: a perflog without a header, as ReFrame 3 wrote them (")


# ---- reports


def test_the_job_of_a_test_that_was_not_built_has_no_number(tmp_path: Path) -> None:
    raw = report(jobid="None", result="failure", fail_phase="compile_wait")
    (gate,) = lines(written(tmp_path, raw), after=True)
    assert gate.run.startswith("lumi-nojob-")


@pytest.mark.parametrize("version", ["3.0", "3.1"])
def test_a_report_of_4_0_to_4_6_has_other_keys(tmp_path: Path, version: str) -> None:
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
    line = f"pass,{TIME.removesuffix('+02:00')},Bw %size=1,lumi,standard-g,builtin,{{}},n1,{{}},GB/s\n"
    log = written(tmp_path, HEAD + line.format(7, 10.0) + line.format(8, 11.0), "p.log")
    for files in ((written(tmp_path, raw), log), (log, written(tmp_path, raw))):
        kept = lines(*files, answers=N1, after=True)
        assert sorted(one.value for one in kept if isinstance(one, Sample)) == [10.0, 11.0]
        assert len([one for one in kept if isinstance(one, Gate)]) == 2
    later = written(tmp_path, HEAD + line.format(7, 10.0).replace("2026-01-20", "2026-03-20"), "later.log")
    assert len(lines(log, later, answers=N1)) == 3  # Slurm gave the number again


# ---- what 4.7 and later print of what they stored


def test_a_list_of_reports_is_read(tmp_path: Path) -> None:
    first, second = report(), report(jobid="124")
    expected = samples(written(tmp_path, first, "1.json")) | samples(written(tmp_path, second, "2.json"))
    sessions = written(tmp_path, [first, second], "sessions.json")
    assert samples(sessions) == expected
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
    del bad["runs"]
    path = written(tmp_path, [report(), bad], "r.json")
    assert faults(path) == "r.json: [1].runs missing: not a whole report of ReFrame"


# ---- perflogs in formats of a site's own


WORDS = f"""result job_completion_time name system partition environ jobid=jobid job_nodelist x=y_value x=y_unit lat_value lat_unit
pass {TIME} Bw lumi standard-g builtin jobid=7 n1 10.0 GB/s 3.5 s
"""


@pytest.mark.parametrize("delimiter", list("|,;\t "))
def test_columns_may_have_any_order_and_sign_between_them(tmp_path: Path, delimiter: str) -> None:
    path = written(tmp_path, WORDS.replace(" ", delimiter), "p.log")
    assert found(path) == {(f"Bw {WHERE}/x=y", 10.0, "higher", "GB/s"), (f"Bw {WHERE}/lat", 3.5, "lower", "s")}
    assert {(one.run, one.nodes) for one in samples(path).values()} == {("lumi-7-20260120T071240Z", ("n1",))}


FORMATS = {
    "as in ReFrame 3": (
        (
            "job_completion_time|reframe version|info|jobid=jobid|job_nodelist|perf_var=perf_value|"
            "ref=perf_ref (l=perf_lower_thres, u=perf_upper_thres)|perf_unit\n"
            f"{TIME}|reframe 4.10.4|Bw /070c4387 @lumi:standard-g+builtin|jobid=7|n1|x=y=10.0|ref=10 (l=-0.1, u=null)|GB/s\n"
        ),
        "display_name or name",
    ),
    "the settings of LUMI's own tests": (
        (
            "job_completion_time\tsystem:partition\tshort_name\thashcode\tenviron\tmodules\tjobid\tnum_nodes\tbw_var=bw_value bw_unit\n"
            f"{TIME}\tlumi:gpu\tBw\t070c4387\tbuiltin\t\t7\t1\tbw=10.0 GB/s\n"
        ),
        "display_name or name",
    ),
    "no result": (WORDS.replace("result ", "").replace("pass ", ""), "result"),
}


@pytest.mark.parametrize(("text", "column"), FORMATS.values(), ids=FORMATS)
def test_a_format_that_does_not_say_what_a_sample_needs_is_refused(tmp_path: Path, text: str, column: str) -> None:
    told = faults(written(tmp_path, text, "p.log"))
    assert told.startswith(f"p.log:1: the perflog has no column {column} (with %(check_")
    assert told.endswith("; a report of `reframe --report-file` has all)")


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
    path = written(tmp_path, WORDS.replace(" ", "|").replace(TIME, when), "p.log")
    assert {one.time for one in samples(path).values()} == {1768893160.0}


def test_thresholds_tell_the_direction_by_the_names_of_4_0_too(tmp_path: Path) -> None:
    head = "job_completion_time,version,display_name,system,partition,environ,jobid,result,n_value,n_unit,n_ref"
    for ending in ("", "_thres"):
        text = f"{head},n_lower{ending},n_upper{ending}\n{TIME},4.0.5,Bw,lumi,standard-g,builtin,7,pass,2.0,w,2,-0.1,None\n"
        path = written(tmp_path, text, "p.log")
        assert found(path, answers=Answers(nodes=("n1",))) == {(f"Bw {WHERE}/n", 2.0, "higher", "w")}


def test_a_line_of_a_variant_with_other_numbers_is_told_and_no_gate_is_made_of_it(tmp_path: Path) -> None:
    row = f"{{}},{TIME},Bw,lumi,standard-g,builtin,{{}},n1,{{}}\n"
    text = HEAD + row.format("pass", 7, "2.25,GB/s") + row.format("pass", 8, "1.0,s,2.0,s") + row.format("fail", 9, "")
    told: list[str] = []
    kept = lines(written(tmp_path, text, "p.log"), after=True, said=told)
    assert [(line.run.split("-")[1], getattr(line, "verdict", None)) for line in kept] == [
        ("7", "pass"),
        ("7", None),
        ("9", "fail"),
    ]
    assert told == ["p.log: torn, left out: line 3 has 12 columns, the header 10"]


@pytest.mark.parametrize("cut", range(1, 60))
def test_a_last_line_that_is_cut_gives_no_number_and_refuses_nothing(tmp_path: Path, cut: int) -> None:
    row = f"pass,{TIME},Bw,lumi,standard-g,builtin,{{}},n1,2.25,s\n"
    told: list[str] = []
    kept = lines(written(tmp_path, (HEAD + row.format(7) + row.format(8))[:-cut], "p.log"), said=told)
    assert [line.run.split("-")[1] for line in kept] == ["7"]
    assert told == ["p.log: torn, left out: line 3 has no end"]


@pytest.mark.parametrize("when", [float("nan"), float("inf"), 1e18, -5, 10**400])
def test_a_time_that_is_none_is_refused(tmp_path: Path, when: float) -> None:
    assert "job_completion_time_unix: " in faults(written(tmp_path, report(job_completion_time_unix=when)))
    raw = report(job_completion_time_unix=None)
    raw["session_info"]["time_end_unix"] = when
    assert "session_info.time_end_unix: " in faults(written(tmp_path, raw))
    text = WORDS.replace("job_completion_time", "job_completion_time_unix").replace(TIME, f"{when}")
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
        Answers().of("T/n[0]", Number("k", "n[0]", 1.0, None, None, ""))
    pattern = "*/n[[]0]"
    assert f"--better '{pattern}=higher'" in str(caught.value)
    answers = Answers(((pattern, "higher"),))
    assert answers.of("T/n[0]", Number("k", "n[0]", 1.0, None, None, "")) == "higher"
    assert answers.of("T/min[0]", Number("k", "min[0]", 1.0, None, None, "us")) == "lower"


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
    number = Number("k", "n", 1.0, None, None, unit)
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
