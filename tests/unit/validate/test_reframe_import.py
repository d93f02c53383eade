"""What ReFrame recorded becomes samples and gates: reports and perflogs that real ReFrames wrote, and damaged ones."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.validate.lines import Gate, Sample, parse_line
from lumisite.validate.reframe.cases import Answers, CaseError, Number
from lumisite.validate.reframe.read import kind_of, with_reframe
from lumisite.validate.samples import read_lines
from tests.support.reframe_files import DATA, ODD, WHERE, Output, case_of, lines, report, samples, written

# ---- what real ReFrames wrote


@pytest.mark.parametrize("name", ["report-4.10.json", "report-4.7.json", "report-4.6.json"])
def test_a_report_of_any_version_gives_the_numbers_of_the_cases_that_passed(name: str) -> None:
    said: list[str] = []
    found = samples(DATA / name, said=said)
    assert {(one.metric, one.value, one.better, one.unit) for one in found.values()} == {
        (f"Bw %size={size} {WHERE}/{variable}", value, better, unit)
        for size in (1, 2)
        for variable, value, better, unit in (
            ("bw", 10.0, "higher", "GB/s"),
            ("lat", 3.5, "lower", "us"),
            ("x/odd/2n", 3.0, "higher", "w"),
        )
    }
    assert {one.nodes for one in found.values()} == {("nid000001",)}
    assert len({one.run for one in found.values()}) == 2  # a job for each parameter
    assert all(one.time > 1_795_000_000 for one in found.values())
    (told,) = [text for text in said if "failed" in text]
    assert f"SanityFail {WHERE} in sanity: sanity error: rank 3 on nid1: a|b cause" in told
    assert f"PerfFail {WHERE} in performance: performance error: failed to meet reference" in told
    assert any("skip" in text and "Skipped" in text for text in said)


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


@pytest.mark.parametrize("name", ["Bw-semicolons.log", "Bw-multiline.log"])
def test_a_perflog_in_a_format_of_a_sites_own_is_read_by_its_header(name: str) -> None:
    found = samples(DATA / name)
    assert {(one.metric, one.value, one.better, one.nodes) for one in found.values()} == {
        (f"Bw %size={size} {WHERE}/{variable}", value, better, ("nid000001",))
        for size in (1, 2)
        for variable, value, better in (("bw", 10.0, "higher"), ("lat", 3.5, "lower"), ("x/odd/2n", 3.0, "higher"))
    }
    assert {one.run.split("-")[0] for one in found.values()} == {"lumi"}
    assert all("jobid" not in one.run for one in found.values())


def test_perflogs_joined_by_cat_are_read_each_by_its_header(tmp_path: Path) -> None:
    joined = written(tmp_path, (DATA / "Flaky.log").read_text() + (DATA / "Bw.log").read_text(), "all.log")
    assert samples(joined) == samples(DATA / "Flaky.log") | samples(DATA / "Bw.log")


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
    assert len(whole) - len(found) == 3
    (told,) = said
    assert told.startswith("torn.log: torn, left out: line 7 has ")


OWN = '{"metric": "ddp/a/2n", "value": 2, "better": "higher", "run": "r1", "nodes": ["n1", "n2"], "time": 1, "unit": "1/s"}'
DOWN = (
    '{"gate": "ddp", "verdict": "fail", "cause": "it is down", "advice": "", "run": "r2", "nodes": ["n1"], "time": 2}'
)


def test_tests_of_lumisites_own_carry_its_very_lines_whatever_their_columns(tmp_path: Path) -> None:
    head = "result|job_completion_time|job_nodelist|jobid|lumisite|name|partition|{}|short_name|system\n"
    row = "{}|2026-01-20T09:12:40+02:00|n1,n2|7|[{}]|LumisiteDdp|standard-g|{}|LumisiteDdp|lumi\n"
    numbers, measured = "ddp/a/2n_value|ddp/a/2n_unit", "2.0|1/s"
    passed, failed = row.format("pass", OWN, measured), row.format("fail", DOWN, "")
    # ReFrame writes the header that fits the first line.
    for text in (head.format(numbers) + passed + failed, head.format("") + failed + passed):
        path = written(tmp_path, text, "LumisiteDdp.log")
        said: list[str] = []
        assert lines(path, said=said) == [parse_line(OWN.encode())]
        assert said == ["LumisiteDdp.log: failed, left out: LumisiteDdp @lumi:standard-g"]
        assert set(lines(path, after=True)) == {parse_line(OWN.encode()), parse_line(DOWN.encode())}


def test_without_those_lines_they_keep_lumisites_names(tmp_path: Path) -> None:
    values = {
        "lumi:standard-g:ddp/a/2n": [2.0, 0, 0, None, "of linear"],
        "lumi:standard-g:ddp/b": [1, 0, None, 1e100, "x"],
    }
    found = samples(written(tmp_path, report(name="LumisiteDdp", perfvalues=values)))
    assert {(one.metric, one.better) for one in found.values()} == {("ddp/a/2n", "higher"), ("ddp/b", "lower")}


# ---- what is known by its content


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b'{"session_info": {', "report"),
        (b'{\n  "session_info": {', "report"),
        (b'\xef\xbb\xbf\r\n{ "runs" : [', "report"),
        (b'{"restored_cases": [], "runs"', "report"),
        (b'{"metric": "a", "value": 1', None),
        (b'{"gate": "runs"}', None),
        (b"", None),
        (b"session_info", None),
        (b"result|job_completion_time|name|jobid|x_value\n", "perflog"),
        (b"a|b|c|d\n", None),
        (b"the result of name jobid is\n", "perflog"),  # and then told what it lacks
    ],
)
def test_a_file_is_known_by_its_beginning(head: bytes, kind: str | None) -> None:
    assert kind_of(head) == kind


def test_it_does_not_matter_how_a_file_is_cut_into_blocks() -> None:
    data = (DATA / "report-4.10.json").read_bytes()

    def cut(size: int) -> list[bytes]:
        blocks = [data[at : at + size] for at in range(0, len(data), size)]
        ((_, found),) = with_reframe([("r", blocks)], lambda _: None, answers=ODD)
        return list(found)

    assert cut(7) == cut(1000) == cut(len(data))


def test_a_report_whose_session_comes_last_is_read_as_well(tmp_path: Path) -> None:
    raw = json.loads((DATA / "report-4.6.json").read_text())
    assert samples(written(tmp_path, json.dumps(raw, sort_keys=True))) == samples(DATA / "report-4.6.json")


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
    assert Answers().of("m", Number("k", "n", 1.0, lower, upper, unit)) == better


@pytest.mark.parametrize(
    ("unit", "lower", "upper", "why"),
    [
        ("", None, None, 'neither unit "" nor thresholds (lower none, upper none) tells'),
        ("GB", -0.1, 0.1, 'neither unit "GB" nor thresholds (lower -0.1, upper 0.1) tells'),
        ("%", None, None, "neither unit"),
        ("GB/s", None, 0.1, 'unit "GB/s" says higher is better, but thresholds (lower none, upper 0.1) says lower'),
        ("s", -0.1, None, 'unit "s" says lower is better'),
    ],
)
def test_a_direction_is_never_guessed(unit: str, lower: float | None, upper: float | None, why: str) -> None:
    with pytest.raises(CaseError) as caught:
        Answers().of("m", Number("perfvalues[n]", "n", 1.0, lower, upper, unit))
    assert why in str(caught.value)
    assert "--better '*/n=higher'" in str(caught.value)


def test_what_is_said_wins_and_none_leaves_a_metric_out(tmp_path: Path) -> None:
    path = written(tmp_path, report())
    (only,) = lines(path, answers=Answers((("*/bw", "lower"),)))
    assert isinstance(only, Sample)
    assert only.better == "lower"
    assert lines(path, answers=Answers((("*/bw", "none"),))) == []


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


def test_import_writes_samples_and_says_what_it_took(tmp_path: Path, capsys: Output) -> None:
    into = tmp_path / "samples.jsonl"
    files = [str(DATA / name) for name in ("report-4.10.json", "Bw.log", "Flaky.log")]
    assert main(["reframe", "--import", *files, "--better", "*/x/odd/2n=lower", "-o", str(into)]) == 0
    err = capsys.readouterr().err
    assert f"Bw %size=1 {WHERE}/bw (GB/s): higher is better, 3 jobs" in err
    assert f"Bw %size=1 {WHERE}/x/odd/2n (w): lower is better, 3 jobs" in err
    assert "as a baseline that is 1 job, 1 day, 1 node set; it lacks 9 jobs more" in err
    assert len(read_lines([("samples", [into.read_bytes()])]).series) == 7
    assert main(["reframe", "--import", files[0], "-o", str(into)]) == 2
    assert "--better '*/x/odd/2n=higher'" in capsys.readouterr().err


def test_a_direction_that_is_none_is_refused(capsys: Output) -> None:
    assert main(["reframe", "--import", "x", "--better", "bw=up"]) == 2
    assert "'bw=up' is not PATTERN=higher, PATTERN=lower or PATTERN=none" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--better", "bw=higher"], "--better: goes with --import only"),
        (["--after"], "--after: goes with --import only"),
        (["--import", "x", "--on", "a[1-"], "'a[1-' is not the name of a node (nid[000001-000002] would be right)"),
    ],
)
def test_options_that_do_not_fit_are_refused(words: list[str], message: str, capsys: Output) -> None:
    assert main(["reframe", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_file_that_is_not_there_is_one_line(capsys: Output) -> None:
    assert main(["reframe", "--import", "/none/report.json"]) != 0
    assert capsys.readouterr().err == "lumisite: /none/report.json: cannot be read: No such file or directory\n"
