"""What a report says first: the finding, with numbers that are the same wherever they stand."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import lumisite
from lumisite.cli import main
from lumisite.findings.finding import Finding, Severity
from lumisite.text import figure
from lumisite.validate.lines import State
from lumisite.validate.metric_names import size_text
from lumisite.validate.report.advice import advice
from lumisite.validate.report.headline import headline
from lumisite.validate.verdict.gates import GateVerdict
from lumisite.validate.verdict.metric import MetricVerdict
from lumisite.validate.verdict.system import SystemVerdict
from tests.support.example_runs import Maintenance, write_runs
from tests.unit.validate.test_report import SLOW_NODE, Output, do, report, said, text


def test_the_headline_is_the_finding_with_its_day_and_its_suspect(capsys: Output) -> None:
    out = text(Maintenance(network=0.85, slow_node="nid005017"), capsys, code=1).splitlines()
    found = [
        said("slower-between-nodes", drop="15 %", since="21 January 2026"),
        said("suspects-changed", names="libfabric"),
        SLOW_NODE,
    ]
    assert out[0] == f"FAIL: {'; '.join(found)}"
    amount = {"jobs": "13 jobs", "count": "40 nodes"}
    summary = [
        said("run-site", site="lumi", platform="2026-01"),
        said("run-measured", days="29 January 2026 to 1 February 2026", **amount),
        said("run-compared", days="9 January 2026 to 12 January 2026", **amount),
        f"lumisite {lumisite.__version__}",
    ]
    assert out[1] == "; ".join(summary)
    assert text(Maintenance(), capsys, "--json", code=1).startswith(f'{{\n  "headline": "{out[0]}"')


def test_a_day_that_no_platform_has_is_not_made_up(capsys: Output) -> None:
    write_runs(Path("runs"), Maintenance(network=0.85))
    about = Path("runs/after/run.json")
    about.write_text(about.read_text().replace("2026-01", "2024-08"))
    out = text(Maintenance(), capsys, code=1)
    found = said("slower-between-nodes", drop="15 %", before="12 January 2026")
    assert out.startswith(f"FAIL: {found}; {said('suspects-changed', names='libfabric')}\n")


def test_what_failed_is_in_the_headline(capsys: Output) -> None:
    cause = "rank 3 used sockets: no <plugin> & no 'cxi'"
    line = text(Maintenance(network=0.5, failed_gate="transport"), capsys, code=1).splitlines()[0]
    assert line.startswith(f"FAIL: {said('gates-failed', gates='transport', reason=cause)}; ")
    assert f"; {said('slower-between-nodes', drop='50 %', since='21 January 2026')}; " in line


def test_a_cause_has_its_nodes_as_slurm_takes_them_and_what_to_do(capsys: Output) -> None:
    out = text(Maintenance(failed_gate="binds"), capsys, code=1)
    nodes = ",".join(f"nid00500{number}" for number in range(1, 7))
    cause = "rank 3 used sockets: no <plugin> & no 'cxi'"
    assert f"\n  binds: {cause} ({nodes})\n    bind the host's libfabric\n" in out


def test_a_long_cause_is_no_headline(capsys: Output) -> None:
    write_runs(Path("runs"), Maintenance(failed_gate="binds"))
    file = Path("runs/after/samples.jsonl")
    file.write_text(file.read_text().replace("rank 3 used", f"rank 3 {'of many ' * 20}used"))
    out = text(Maintenance(), capsys, code=1)
    assert out.startswith(
        f"FAIL: {said('gates-failed', gates='binds')}; {said('suspects-changed', names='libfabric')}\n"
    )
    assert f"rank 3 {'of many ' * 20}used sockets" in out


def test_without_a_baseline_nothing_is_said_of_what_nobody_judged(capsys: Output) -> None:
    write_runs(Path("runs"), Maintenance(slow_node="nid005017"))
    assert main(["report", "runs/after"]) == 5
    out = capsys.readouterr().out
    assert out.startswith(f"BAD-NODES: {SLOW_NODE}; {said('others-pass')}\n")
    assert out.index("slow nodes") < out.index("\ngate  ") < out.index("\nmetric  ")
    assert re.search(r"\nmetric +unit +after +verdict +why\n", out)
    Path("runs/after/samples.jsonl").write_text("")
    assert main(["report", "runs/after"]) == 4


def test_what_failed_comes_before_what_passed(capsys: Output) -> None:
    out = text(Maintenance(network=0.85), capsys, code=1)
    states = re.findall(r"  (fail|pass)  +(?:slower|no drop|the median)", out)
    assert states == sorted(states)
    assert out.index("\nmetric  ") < out.index("what changed on the machine") < out.index("\ngate  ")
    assert out.index("what to do") < out.index("\nmetric  ")


def test_a_number_is_the_same_wherever_it_stands(capsys: Output) -> None:
    report(Maintenance(network=0.85), "--json", code=1)
    found = json.loads(capsys.readouterr().out)
    judged = {one["metric"]: one for one in found["verdict"]["metrics"]}
    for scaling in found["scalings"]:
        for bar in scaling["bars"]:
            one = judged[f"{scaling['name']}/{bar['shape']}"]
            assert (bar["before"], bar["after"]) == (one["before"], one["after"])
    for curve in found["curves"]:
        quantity, _, shape = curve["name"].rpartition("/")
        for which in ("before", "after"):
            for point in curve[which]:
                assert point["middle"] == judged[f"{quantity}/{size_text(point['size'])}/{shape}"][which]
                assert point["low"] <= point["middle"] <= point["high"]
    shown = figure(judged["ddp/samples_per_s/comm/2n"]["after"])
    for form, least in (("text", 2), ("html", 3)):
        out = text(Maintenance(), capsys, "--format", form, code=1)
        own = set(re.findall(r"\b6[45]\d\d(?:\.\d+)?\b", re.sub("<svg.*?</svg>", "", out, flags=re.DOTALL)))
        assert own == {shown}, form
        assert out.count(shown) >= least, form


def test_the_sites_expectations_are_asked(capsys: Output) -> None:
    write_runs(Path("runs"), Maintenance())
    before, file = (Path("runs", side, "samples.jsonl") for side in ("before", "after"))
    before.write_text(before.read_text().replace("all_reduce_busbw/128MiB/1n", "all_reduce_busbw/64MiB/1n"))
    assert main(["report", "runs/after", "--site", "lumi"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"PASS: {said('metrics-as-expected', metrics='2 metrics')}; {said('every-gate-passed')}\n")
    assert "is within what the site expects, 125" in out
    assert main(["report", "runs/after", "--site", "lumi", "--before", "runs/before"]) == 4  # one was not measured
    assert "not measured before" in capsys.readouterr().out
    raw = [json.loads(line) for line in file.read_text().splitlines()]
    for one in raw:
        if one.get("value"):
            one["value"] /= 4
    file.write_text("\n".join(map(json.dumps, raw)))
    assert main(["report", "runs/after", "--site", "lumi"]) == 1
    assert "the limit for the 125 that the site expects" in capsys.readouterr().out


# ---------------------------------------------------------------- each finding of a headline


UNMEASURED = Finding("metric-unmeasured", Severity.DOUBT, "not measured before")


def metric(name: str, state: State = "fail", **values: Any) -> MetricVerdict:
    return MetricVerdict(name, "higher", state, (UNMEASURED,), **values)


def verdict(state: State, *metrics: MetricVerdict, gates: tuple[GateVerdict, ...] = ()) -> SystemVerdict:
    return SystemVerdict(state, gates, metrics, (), (), ())


SLOWER: dict[str, Any] = {"change": -0.2, "limit": 0.05}


@pytest.mark.parametrize(
    ("judged", "with_baseline", "code", "values"),
    [
        (verdict("fail", metric("m/1n", **SLOWER)), True, "slower-inside-node", {"drop": "20 %"}),
        (verdict("fail", metric("m/1g", **SLOWER)), True, "slower-on-gpu", {"drop": "20 %"}),
        (verdict("fail", metric("m", **SLOWER)), True, "slower-somewhere", {"drop": "20 %"}),
        (
            verdict("fail", metric("m", below_spec=True, after=2.0, spec=4.0, unit="s")),
            False,
            "metric-below-site",
            {"metric": "m", "value": "2 s", "spec": "4"},
        ),
        (verdict("warn", metric("m", "warn")), True, "worth-a-look", {}),
        (verdict("fail"), True, "system-fails", {}),
        (verdict("inconclusive", metric("m", "inconclusive")), True, "system-undecided", {"name": "m", "reason": UNMEASURED.message}),
        (verdict("inconclusive"), True, "system-undecided", {}),
    ],
)  # fmt: skip
def test_the_headline_has_the_finding(
    judged: SystemVerdict, with_baseline: bool, code: str, values: dict[str, Any]
) -> None:
    line = headline(judged, with_baseline=with_baseline)
    assert line == f"{judged.verdict.upper()}: {said(code, **values)}"


def test_the_headline_of_a_drop_that_waits_for_jobs_and_of_a_run_alone() -> None:
    waits = headline(verdict("inconclusive", metric("m", "unconfirmed", **SLOWER)))
    assert waits.endswith(f"; {said('drop-not-confirmed')}")
    assert headline(verdict("pass"), with_baseline=False) == f"PASS: {said('no-gate-measured')}; {said('no-baseline')}"


def test_advice_where_no_part_of_the_machine_is_suspected() -> None:
    assert list(advice(verdict("fail", metric("m", **SLOWER)), ())) == [do("look-at-metrics", metrics=("m",))]
    faster = verdict("pass", metric("m", "pass", improved=True))
    assert list(advice(faster, ())) == [do("metrics-faster", metrics=("m",))]
