"""What ReFrame recorded becomes samples and gates: reports and perflogs that real ReFrames wrote, and damaged ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lumisite.cli import main
from lumisite.validate.lines import Gate, Sample, parse_line
from lumisite.validate.reframe import read
from lumisite.validate.reframe.read import better_of, with_reframe
from lumisite.validate.samples import SamplesError, read_lines
from tests.support.reframe_files import DATA, WHERE, Output, case_of, faults, lines, report, samples, written

# ---- what real ReFrames wrote


@pytest.mark.parametrize("name", ["report-4.10.json", "report-4.7.json"])
def test_a_report_of_any_version_gives_the_numbers_of_the_cases_that_passed(name: str) -> None:
    said: list[str] = []
    found = samples(DATA / name, said=said)
    assert {(one.metric, one.value, one.better, one.unit) for one in found.values()} == {
        (f"Bw %size={size} {WHERE}/{variable}", value, better, unit)
        for size in (1, 2)
        for variable, value, better, unit in (
            ("bw", 10.0, "higher", "GB/s"),
            ("lat", 3.5, "lower", "us"),
        )
    }
    assert {one.nodes for one in found.values()} == {("nid000001",)}
    assert len({one.run for one in found.values()}) == 2  # a job for each parameter
    assert all(one.time > 1_795_000_000 for one in found.values())
    (told,) = [text for text in said if "failed" in text]
    assert f"SanityFail {WHERE} in sanity: sanity error: rank 3 on nid1: a|b cause" in told
    assert f"PerfFail {WHERE} in performance: performance error: failed to meet reference" in told
    assert any("skip" in text and "Skipped" in text for text in said)
    (told,) = [text for text in said if "not known whether more is better" in text]
    assert f'Bw %size=1 {WHERE}/x/odd/2n in "w"' in told


def test_after_a_change_a_failed_test_is_a_failed_gate_and_a_low_number_counts() -> None:
    found = lines(DATA / "report-4.10.json", after=True)
    gates = {line.gate: line for line in found if isinstance(line, Gate)}
    assert {name: gate.verdict for name, gate in gates.items()} == {
        f"Bw %size=1 {WHERE}": "pass",
        f"Bw %size=2 {WHERE}": "pass",
        f"NoPerf {WHERE}": "pass",
        f"PerfFail {WHERE}": "pass",
        f"SanityFail {WHERE}": "fail",
    }
    failed = gates[f"SanityFail {WHERE}"]
    assert failed.cause == "the test failed in sanity: sanity error: rank 3 on nid1: a|b cause"
    assert failed.nodes == ("nid000001",)
    assert [line.value for line in found if isinstance(line, Sample) and line.metric.startswith("PerfFail")] == [5.0]


def test_of_a_test_that_was_tried_again_only_the_try_that_passed_counts() -> None:
    ((one, line),) = samples(DATA / "retried-4.10.json").items()
    assert one[0] == f"Flaky {WHERE}/t"
    assert (line.value, line.better) == (1.5, "lower")


def test_every_repeat_of_a_test_is_a_job() -> None:
    found = samples(DATA / "reruns-4.10.json")
    assert len({run for metric, run in found if metric.endswith("%size=1 @lumi:standard-g+builtin/bw")}) == 2


def test_report_and_perflog_of_one_run_give_the_same_samples_once() -> None:
    report_lines = samples(DATA / "retried-4.10.json")
    assert samples(DATA / "Flaky.log") == report_lines
    assert len(lines(DATA / "retried-4.10.json", DATA / "Flaky.log")) == 1
    both = samples(DATA / "report-4.10.json") | samples(DATA / "reruns-4.10.json")
    assert samples(DATA / "Bw.log") == both


@pytest.mark.parametrize("name", ["PerfFail.log", "SanityFail.log"])
def test_failed_lines_of_a_perflog_are_left_out_and_told(name: str) -> None:
    said: list[str] = []
    assert lines(DATA / name, said=said) == []
    assert said == [f"{name}: failed, left out: {name.removesuffix('.log')} {WHERE}"]


def test_a_torn_line_of_a_perflog_is_told_by_its_number(tmp_path: Path) -> None:
    text = (DATA / "Bw.log").read_text()
    said: list[str] = []
    found = samples(written(tmp_path, text[:-60], "torn.log"), said=said)
    whole = samples(DATA / "Bw.log")
    assert set(found) < set(whole)
    assert len(whole) - len(found) == 2
    assert "torn.log: torn, left out: line 7" in said


OWN = '{"metric": "ddp/a/2n", "value": 2, "better": "higher", "run": "r1", "nodes": ["n1", "n2"], "time": 1, "unit": "1/s"}'
DOWN = (
    '{"gate": "ddp", "verdict": "fail", "cause": "it is down", "advice": "", "run": "r2", "nodes": ["n1"], "time": 2}'
)


def test_tests_of_lumisites_own_carry_its_very_lines_whatever_their_columns(tmp_path: Path) -> None:
    head = (
        "result|job_completion_time|environ|job_completion_time_unix|job_nodelist|jobid|lumisite|name|partition|{}"
        "|short_name|system\n"
    )
    row = "{}|2026-01-20T07:12:40|builtin|1768893160.0|n1,n2|7|[{}]|LumisiteDdp|standard-g|{}|LumisiteDdp|lumi\n"
    numbers, measured = "ddp/a/2n_value|ddp/a/2n_unit", "2.0|1/s"
    passed, failed = row.format("pass", OWN, measured), row.format("fail", DOWN, "")
    # ReFrame writes the header that fits the first line.
    for text in (head.format(numbers) + passed + failed, head.format("") + failed + passed):
        path = written(tmp_path, text, "LumisiteDdp.log")
        said: list[str] = []
        assert lines(path, said=said) == [parse_line(OWN.encode())]
        assert said == [f"LumisiteDdp.log: failed, left out: LumisiteDdp {WHERE}"]
        assert set(lines(path, after=True)) == {parse_line(OWN.encode()), parse_line(DOWN.encode())}


def test_without_those_lines_they_keep_lumisites_names(tmp_path: Path) -> None:
    values = {
        "lumi:standard-g:ddp/a/2n": [2.0, 0, 0, None, "of linear"],
        "lumi:standard-g:ddp/b": [1, 0, None, 1e100, "x"],
    }
    found = samples(written(tmp_path, report(name="LumisiteDdp", perfvalues=values)))
    assert {(one.metric, one.better) for one in found.values()} == {("ddp/a/2n", "higher"), ("ddp/b", "lower")}


# ---- what is known by its content


@pytest.mark.parametrize("begin", ['{"session_info": {', '{\n  "runs": {', '{ "restored_cases": [], "runs"'])
def test_a_report_is_known_by_its_beginning(tmp_path: Path, begin: str) -> None:
    assert faults(written(tmp_path, begin, "x")).startswith("x: line ")


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
    assert main(["verdict", "--before", str(path), "--after", str(path)]) == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert f"x.log: neither samples nor of ReFrame: it begins with {shown} (" in told


@pytest.mark.parametrize("before", [b"\xef\xbb\xbf", b"  ", b"\n\n ", b"\xef\xbb\xbf \t"])
def test_samples_are_known_behind_a_byte_order_mark_or_blanks(before: bytes) -> None:
    line = b'{"metric": "m", "value": 1, "better": "higher", "run": "1", "nodes": ["n"], "time": 1}'
    (found,) = with_reframe([("x.jsonl", [before + line])], print)
    assert set(read_lines([(found[0], found[1])]).series) == {"m"}


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


def test_names_of_numbers_may_have_colons(tmp_path: Path) -> None:
    row = [10.0, 0, None, None, "GB/s", "pass"]
    raw = report(perfvalues={f"lumi:standard-g:{name}": row for name in ("L1:read", "L2:read", "Draw:")})
    found = {metric.partition("/")[2] for metric, _ in samples(written(tmp_path, raw))}
    assert found == {"L1:read", "L2:read", "Draw:"}


def test_the_job_of_a_test_that_was_not_built_has_no_number(tmp_path: Path) -> None:
    raw = report(jobid="None", result="fail", fail_phase="compile_wait", job_completion_time_unix=None, perfvalues={})
    (gate,) = lines(written(tmp_path, raw), after=True)
    assert gate.run.startswith("lumi-nojob-2026")


def test_cases_that_an_earlier_session_ran_are_not_taken_again(tmp_path: Path) -> None:
    raw = report()
    raw["restored_cases"], raw["runs"] = raw["runs"][0]["testcases"], []
    assert lines(written(tmp_path, raw)) == []


# ---- which way is better


@pytest.mark.parametrize(
    ("unit", "lower", "upper", "better"),
    [
        ("GB/s", None, None, "higher"),
        ("images/sec", None, None, "higher"),
        ("tokens/s/gpu", None, None, "higher"),
        ("ns/day", None, None, "higher"),
        ("Gflops", None, None, "higher"),
        ("Gbps", None, None, "higher"),
        ("s", None, None, "lower"),
        ("\u00b5s", None, None, "lower"),
        ("seconds", None, None, "lower"),
        ("s/epoch", None, None, "lower"),
        ("", -0.05, None, "higher"),
        ("widgets", None, 0.1, "lower"),
        ("", 0, None, "higher"),
        ("s", -0.1, 0.1, "lower"),
        ("", -0.1, float("inf"), "higher"),
    ],
)
def test_thresholds_on_one_side_or_the_unit_tell_the_direction(
    unit: str, lower: float | None, upper: float | None, better: str
) -> None:
    assert better_of(lower, upper, unit) == better


@pytest.mark.parametrize(
    ("unit", "lower", "upper"),
    [("", None, None), ("GB", -0.1, 0.1), ("%", None, None), ("GB/s", None, 0.1), ("s", -0.1, None)],
)
def test_a_direction_is_never_guessed(unit: str, lower: float | None, upper: float | None) -> None:
    assert better_of(lower, upper, unit) is None


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
    assert better_of(None, None, unit) == better


@pytest.mark.parametrize("value", [0, -1.5, float("nan"), float("inf")])
def test_a_number_that_is_no_speed_is_left_out_and_the_others_count(tmp_path: Path, value: float) -> None:
    raw = report()
    case_of(raw)["perfvalues"]["lumi:standard-g:t"] = [value, 0, None, None, "s", "pass"]
    for after in (False, True):
        told: list[str] = []
        kept = lines(written(tmp_path, raw, "r.json"), after=after, said=told)
        assert [line.metric for line in kept if isinstance(line, Sample)] == [f"Bw %size=1 {WHERE}/bw"]
        assert told == [f"r.json: not above 0 and finite, left out: Bw %size=1 {WHERE}/t is {value:g}"]


# ---- commands


def session(folder: Path, name: str, start: float, values: Iterable[float]) -> str:
    raw = report()
    raw["runs"] = []
    for number, value in enumerate(values):
        case = case_of(report())
        nodes = [f"nid00000{1 + 2 * (number % 2)}", f"nid00000{2 + 2 * (number % 2)}"]
        case |= {"jobid": f"{int(start) % 1000}{number}", "job_nodelist": nodes}
        case |= {"job_completion_time_unix": start + number * 40_000}
        case["perfvalues"] = {"lumi:standard-g:bw": [value, 10, -0.1, None, "GB/s", "pass"]}
        raw["runs"].append({"testcases": [case]})
    return str(written(folder, raw, name))


def test_verdict_takes_reports_as_they_are(tmp_path: Path, capsys: Output) -> None:
    steady = [10.0, 10.1, 9.9, 10.05, 9.95]
    before = session(tmp_path, "before.json", 1_795_000_000, steady * 2)
    same = session(tmp_path, "same.json", 1_796_000_001, steady)
    slow = session(tmp_path, "slow.json", 1_796_000_002, [value * 0.85 for value in steady * 2])
    assert main(["verdict", "--before", before, "--after", same]) == 0
    assert main(["verdict", "--before", before, "--after", slow]) == 1
    assert main(["report", slow, "--baseline", before]) == 1
    assert f"Bw %size=1 {WHERE}/bw" in capsys.readouterr().out


# ---- what is wrong with a file


CASE = "r.json: runs[0].testcases[0]"
BAD = [
    (lambda raw: raw.pop("session_info"), "r.json: session_info: null is not an object"),
    (lambda raw: raw["session_info"].update(data_version="5.0"), 'r.json: session_info.data_version: "5.0" is not known (4.x is: ReFrame from 4.7 on)'),
    (lambda raw: raw["session_info"].update(data_version="3.1"), 'r.json: session_info.data_version: "3.1" is not known (4.x is: ReFrame from 4.7 on)'),
    (lambda raw: raw.update(runs={}), "r.json: runs: {} is not a list"),
    (lambda raw: raw.update(runs=[3]), "r.json: runs[0]: 3 is not an object"),
    (lambda raw: raw["runs"][0].update(testcases="x"), 'r.json: runs[0].testcases: "x" is not a list'),
    (lambda raw: raw["runs"][0].update(testcases=[None]), f"{CASE}: null is not an object"),
    (lambda raw: case_of(raw).pop("name"), f"{CASE}.name: missing (a text would be right)"),
    (lambda raw: case_of(raw).update(result=1), f"{CASE}.result: 1 (a text would be right)"),
    (lambda raw: case_of(raw).update(jobid=[1]), f"{CASE}.jobid: [1] is not the number of a job"),
    (lambda raw: case_of(raw).update(job_nodelist=5), f'{CASE}.job_nodelist: 5 is not a list of nodes, such as ["nid000001", "nid000002"]'),
    (lambda raw: case_of(raw).update(job_nodelist=["nid[1-"]), f'{CASE}.nodes: "nid[1-" is not the name of a node (letters, digits, . _ and -)'),
    (lambda raw: case_of(raw).update(job_completion_time_unix="noon"), f'{CASE}.job_completion_time_unix: "noon" is not a number of seconds since 1970'),
    (lambda raw: case_of(raw).update(perfvalues=[1]), f"{CASE}.perfvalues: [1] is not an object"),
    (lambda raw: case_of(raw).update(perfvalues={"a:b:c": [1]}), f'{CASE}.perfvalues["a:b:c"]: [1] is not [value, reference, lower, upper, unit, result]'),
    (lambda raw: case_of(raw)["perfvalues"]["lumi:standard-g:bw"].__setitem__(0, "fast"), f'{CASE}.perfvalues["lumi:standard-g:bw"][0]: "fast" is not a number'),
    (lambda raw: case_of(raw).update(lumisite="[{}]"), f"{CASE}.lumisite: metric, value, better, run, nodes, time missing (have nothing)"),
    (lambda raw: case_of(raw).update(lumisite="5"), f"""{CASE}.lumisite: "5" is not a JSON list of lumisite's lines"""),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), BAD, ids=[message[8:60] for _, message in BAD])
def test_each_fault_is_one_line_that_says_what_is_right(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    raw = report()
    change(raw)
    assert faults(written(tmp_path, raw, "r.json")) == message


@pytest.mark.parametrize("when", [float("nan"), float("inf"), 1e18, -5, 10**400])
def test_a_time_that_is_none_is_refused(tmp_path: Path, when: float) -> None:
    assert "job_completion_time_unix: " in faults(written(tmp_path, report(job_completion_time_unix=when)))
    raw = report(job_completion_time_unix=None)
    raw["session_info"]["time_end_unix"] = when
    assert "job_completion_time_unix: " in faults(written(tmp_path, raw))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"session_info": {"data_version": "4.2"},\n"runs": [', "r.json: line 2: Expecting value"),
        ('{"session_info": {"data_version": "4.2"}\n"runs": []}', "r.json: line 2: Expecting ',' delimiter"),
        ('{"session_info": {"data_version": "4.2"}, "runs": []} x', "r.json: line 1: Extra data"),
    ],
)
def test_a_report_that_is_cut_says_where(tmp_path: Path, text: str, message: str) -> None:
    assert faults(written(tmp_path, text, "r.json")) == message


def test_cases_of_which_no_nodes_are_known_are_told(tmp_path: Path) -> None:
    said: list[str] = []
    assert lines(written(tmp_path, report(job_nodelist=["None"])), said=said) == []  # as the squeue back-end says
    assert said == [f"report.json: without nodes, left out: Bw %size=1 {WHERE}"]


def test_a_perflog_that_lacks_what_a_sample_needs_says_so(tmp_path: Path) -> None:
    text = (DATA / "Flaky.log").read_text().replace("|job_nodelist|", "|nodes|")
    told = faults(written(tmp_path, text, "p.log"))
    assert told.startswith("p.log: line 1: the perflog has no column job_nodelist (")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("|1.5|", "|fast|", 'p.log:3: perfvalues["t"][0]: "fast" is not a number'),
        ("5979||Flaky|", "5979|||", "p.log:3: name: null (a text would be right)"),
        ("|1795276718.2342677|", "|noon|", 'p.log:3: job_completion_time_unix: "noon" is not a number of seconds'),
        ("|1795276718.2342677|", "|nan|", "p.log:3: job_completion_time_unix: NaN is not a number of seconds"),
        ("|nid000001|", "|nid 1|", 'p.log:3: nodes: "nid 1" is not the name of a node'),
    ],
)
def test_a_bad_value_in_a_perflog_is_named_by_line_and_column(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = (DATA / "Flaky.log").read_text()
    assert old in text
    assert message in faults(written(tmp_path, text.replace(old, new), "p.log"))


def test_a_line_of_a_variant_with_other_numbers_is_told_and_no_gate_is_made_of_it(tmp_path: Path) -> None:
    head = "result|job_completion_time|environ|job_completion_time_unix|job_nodelist|jobid|name|partition|bw_value|bw_unit|system"
    row = "\n{}|x|builtin|1768893160.0|n1|{}|Bw|standard-g|{}|lumi"
    text = head + row.format("pass", 7, "2.25|GB/s") + row.format("pass", 8, "1.0|s|2.0|s") + row.format("fail", 9, "")
    told: list[str] = []
    kept = lines(written(tmp_path, f"{text}\n", "p.log"), after=True, said=told)
    assert [(line.run.split("-")[1], getattr(line, "verdict", None)) for line in kept] == [
        ("7", "pass"),
        ("7", None),
        ("9", "fail"),
    ]
    assert told == ["p.log: torn, left out: line 3"]


@pytest.mark.parametrize("cut", range(1, 60))
def test_a_last_line_that_is_cut_gives_no_number_and_refuses_nothing(tmp_path: Path, cut: int) -> None:
    told: list[str] = []
    kept = lines(written(tmp_path, (DATA / "Flaky.log").read_text()[:-cut], "p.log"), said=told)
    assert kept == []
    assert told[0 if "torn" in told[0] else 1] == "p.log: torn, left out: line 3"


def test_a_file_that_is_too_large_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "LARGEST_BYTES", 2 << 20)
    taken: list[int] = []

    def blocks() -> Iterator[bytes]:
        yield b'{"session_info": {"data_version": "4.2"}, "runs": ['
        for number in range(100):
            taken.append(number)
            yield b" " * (1 << 20)

    with pytest.raises(SamplesError, match=r"^big: larger than 2 MiB \(the reports or perflogs of fewer runs"):
        list(with_reframe([("big", blocks())], print))
    assert len(taken) < 4
