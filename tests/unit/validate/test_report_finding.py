"""What a report says first: the finding, with numbers that are the same wherever they stand."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import lumisite
from lumisite.cli import main
from lumisite.findings.finding import Finding, Severity
from lumisite.text import figure
from lumisite.validate.lines import State
from lumisite.validate.report.advice import advice
from lumisite.validate.report.headline import headline
from lumisite.validate.verdict.gates import Cause, GateVerdict
from lumisite.validate.verdict.metric import MetricVerdict
from lumisite.validate.verdict.nodes import SlowNode
from lumisite.validate.verdict.system import SystemVerdict
from tests.support.example_runs import Maintenance, write_runs
from tests.unit.validate.test_report import SLOW_NODE, Output, report, text


def test_the_headline_is_the_finding_with_its_suspect(capsys: Output) -> None:
    out = text(Maintenance(network=0.85, slow_node="nid005017"), capsys, code=1).splitlines()
    assert out[0] == f"FAIL: 15 % slower between nodes; libfabric changed; {SLOW_NODE}"
    summary = [
        "lumi, platform 2026-01",
        "proved on a twin, not yet run on LUMI or on a GPU machine",
        "measured 13 jobs on 40 nodes, 29 January 2026 to 1 February 2026",
        "compared with 13 jobs on 40 nodes, 9 January 2026 to 12 January 2026",
        f"lumisite {lumisite.__version__}",
    ]
    assert out[1] == "; ".join(summary)
    assert text(Maintenance(), capsys, "--json", code=1).startswith(f'{{\n  "headline": "{out[0]}"')


def test_a_long_cause_is_no_headline(capsys: Output) -> None:
    write_runs(Path("runs"), Maintenance(failed_gate="binds"))
    file = Path("runs/after/samples.jsonl")
    file.write_text(file.read_text().replace("rank 3 used", f"rank 3 {'of many ' * 20}used"))
    out = text(Maintenance(), capsys, code=1)
    assert out.startswith("FAIL: binds failed; libfabric changed\n")
    assert f"rank 3 {'of many ' * 20}used sockets" in out


def test_without_a_baseline_nothing_is_said_of_what_nobody_judged(capsys: Output) -> None:
    write_runs(Path("runs"), Maintenance(slow_node="nid005017"))
    assert main(["report", "runs/after"]) == 5
    out = capsys.readouterr().out
    assert out.startswith(f"BAD-NODES: {SLOW_NODE}; the others pass every gate\n")
    assert out.index("\nslow nodes\n") < out.index("\ngates\n") < out.index("\nother metrics")
    # No column that has nothing, and none in which all cells are alike.
    assert re.search(r"\n  metric +unit +after +jobs\n", out)
    assert "metrics that decide" not in out
    Path("runs/after/samples.jsonl").write_text("")
    assert main(["report", "runs/after"]) == 4


def test_a_number_is_the_same_wherever_it_stands(capsys: Output) -> None:
    report(Maintenance(network=0.85), "--json", code=1)
    found = json.loads(capsys.readouterr().out)
    judged = {one["metric"]: one for one in found["verdict"]["metrics"]}
    for curve in found["curves"]:
        quantity, _, shape = curve["name"].rpartition("/")
        for point in curve["points"]:
            size = f"{quantity}/{point['label']}/{shape}"
            metric = judged[size] if curve["by"] == "message size" else judged[f"{curve['name']}/{point['label']}"]
            for side in ("before", "after"):
                low, middle, high = point[side]
                assert middle == metric[side]
                assert low < middle < high
    shown = figure(judged["ddp/samples_per_s/comm/2n"]["after"])
    for form, least in (("text", 1), ("html", 2)):
        report(Maintenance(), "-o", f"report.{form}", code=1)
        out = Path(f"report.{form}").read_text()
        own = set(re.findall(r"\b6[45]\d\d(?:\.\d+)?\b", re.sub("<svg.*?</svg>", "", out, flags=re.DOTALL)))
        assert own == {shown}, form
        assert out.count(shown) >= least, form


# ---------------------------------------------------------------- each finding of a headline


UNMEASURED = Finding("metric-unmeasured", Severity.DOUBT, "not measured before")


def metric(name: str, state: State = "fail", **values: Any) -> MetricVerdict:
    return MetricVerdict(name, "higher", state, (UNMEASURED,), **values)


def verdict(state: State, *metrics: MetricVerdict, gates: tuple[GateVerdict, ...] = ()) -> SystemVerdict:
    return SystemVerdict(state, gates, metrics, (), ())


SLOWER: dict[str, Any] = {"change": -0.2, "limit": 0.05}


@pytest.mark.parametrize(
    ("judged", "words"),
    [
        (verdict("fail", metric("m/1n", **SLOWER)), "20 % slower inside a node"),
        (verdict("fail", metric("m/1g", **SLOWER)), "20 % slower on one GPU"),
        (verdict("fail", metric("m/1g", change=-0.1), metric("m/1g", **SLOWER)), "10 to 20 % slower on one GPU"),
        (verdict("fail", metric("m", **SLOWER)), "20 % slower"),
        (
            verdict("fail", metric("m", below_spec=True, after=2.0, spec=4.0, unit="s"), metric("n", below_spec=True)),
            "m is 2, the site expects 4; n is -, the site expects -",
        ),
        (
            verdict("warn", metric("m", "warn")),
            "nothing failed, but m was slower in the first jobs, and is worth a look",
        ),
        (verdict("fail"), "the system does not work as it did before"),
        (verdict("inconclusive", metric("m", "inconclusive")), "m: not measured before"),
        (verdict("inconclusive"), "the measurements do not decide"),
    ],
)  # fmt: skip
def test_the_headline_has_the_finding(judged: SystemVerdict, words: str) -> None:
    assert headline(judged) == f"{judged.verdict.upper()}: {words}"


def test_the_headline_of_a_drop_that_waits_for_jobs_and_of_a_run_alone() -> None:
    waits = headline(verdict("inconclusive", metric("m", "unconfirmed", **SLOWER)))
    assert waits == "INCONCLUSIVE: 20 % slower; not confirmed yet"
    assert headline(verdict("pass"), with_baseline=False) == "PASS: no gate was measured; no baseline"


def a_gate(*causes: Cause) -> GateVerdict:
    nodes = tuple(node for cause in causes for node in cause.nodes)
    return GateVerdict("node", "bad-nodes", (), 1, 1, causes, nodes)


def test_headline_and_advice_agree_about_how_bad_a_node_is() -> None:
    down = a_gate(Cause("hsn0: interface is down", "n2", "look at the cable", ("n2",)))
    slow = (SlowNode("n3", "gemm", 0.31, -9.0), SlowNode("n3", "copy", 0.12, -6.0), SlowNode("n2", "gemm", 0.5, -9.0))
    both = replace(verdict("bad-nodes", gates=(down,)), slow_nodes=slow)
    told = "n3 is 31 % slower than the others"
    assert headline(both) == f"BAD-NODES: n2 failed (hsn0: interface is down); {told}; the system is fine"
    again = "measure once more among other nodes; if it is as slow again, drain it with the command below"
    assert list(advice(both, ())) == ["node: n2: hsn0: interface is down (n2): look at the cable", f"{told}: {again}"]
    alone = replace(both, slow_nodes=())
    assert list(advice(alone, ()))[1:] == ["n2: drain and repair, then measure once more among other nodes"]
    # What only one value says is no reason to drain.
    once = replace(verdict("bad-nodes"), slow_nodes=(SlowNode("n3", "gemm", 0.31, -9.0, 1),))
    assert list(advice(once, ())) == [f"{told}: measure once more among other nodes"]


def test_advice_where_no_part_of_the_machine_is_suspected() -> None:
    look = "compare what changed (`lumisite changes`), undo it, or measure again"
    assert list(advice(verdict("fail", metric("m", **SLOWER)), ())) == [f"slower: m: {look}"]
    better = Finding("metric-faster", Severity.INFO, "faster by 9 %")
    faster = verdict("pass", replace(metric("m", "pass"), findings=(better,)))
    assert list(advice(faster, ())) == ["faster than before: m: make sure that the benchmark still does its work"]
