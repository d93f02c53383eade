"""One cause is one finding: what follows from it in the same job is known as following, and nothing else is."""

from __future__ import annotations

from dataclasses import replace

from lumisite.findings.finding import Finding, Severity
from lumisite.validate.lines import Gate, gate_of
from lumisite.validate.samples import Recorded
from lumisite.validate.verdict.causes import following
from lumisite.validate.verdict.system import SystemVerdict, Terms, judge_system

FOUR = ("n1", "n2", "n3", "n4")
NO_IMAGE = Finding("node-path", Severity.NODE, "missing (the image)", subject="/appl/images/torch.sif")

DOWN = Finding("node-interface", Severity.NODE, "interface is down", subject="hsn0")


def line(gate: str, finding: Finding, time: float, *nodes: str, run: str = "r1") -> Gate:
    return gate_of(finding, gate, run, nodes or FOUR, time, asked=FOUR if nodes and nodes != FOUR else ())


def failed(error: str, part: str = "") -> Finding:
    return Finding("rank-failed", Severity.FAULT, f"failed while training: {error}", subject=f"rank 1 on n2 {part}")


def verdict(*lines: Gate) -> SystemVerdict:
    return judge_system(Recorded({}), Recorded({}, lines), Terms())


def plain(*lines: Gate) -> list[str]:
    """The gates that did not pass and follow from nothing."""
    found = following(lines)
    return [gate.gate for gate in lines if gate.verdict != "pass" and gate not in found]


def test_what_all_nodes_have_is_one_finding_and_the_rest_follows() -> None:
    lines = [
        line("node", NO_IMAGE, 1.0),
        line("environment", Finding("record-missing", Severity.FAULT, "no record is left", subject="container"), 2.0),
        line("transport", Finding("step-failed", Severity.FAULT, "ran on no node", subject="transport-4n"), 3.0),
        line("ddp", failed("boom"), 4.0),
    ]
    found = verdict(*lines)
    assert (found.verdict, found.exit_code) == ("fail", 1)
    assert {gate.gate: (gate.verdict, gate.follows) for gate in found.gates if gate.gate != "node"} == dict.fromkeys(
        ("environment", "transport", "ddp"), ("inconclusive", FOUR)
    )
    assert {finding.cause for gate in found.gates for finding in gate.findings} == {None, "node-path"}


def test_what_follows_is_of_the_same_job_and_has_the_bad_node() -> None:
    bad = line("node", DOWN, 1.0, "n3")
    behind = line("ddp", failed("boom"), 2.0)
    assert plain(bad, behind) == ["node"]
    assert plain(bad, replace(behind, run="r2")) == ["node", "ddp"]
    assert plain(bad, replace(behind, nodes=("n1", "n2"))) == ["node", "ddp"]
    # Another gate that fails is no cause.
    assert plain(line("transport", failed("boom"), 1.0), behind) == ["transport", "ddp"]


def test_a_step_that_was_not_run_follows_from_what_it_was_not_run_for() -> None:
    bad = line("node", DOWN, 1.0, "n3")
    fine = line("node", Finding("checks-passed", Severity.INFO, "as it should be"), 1.0, "n1", "n2", "n4")
    skipped = Finding("step-skipped", Severity.DOUBT, "not run", "repair", "ddp-4n", cause="node-interface")
    lines = [bad, fine, *(line(name, skipped, 1.5) for name in ("transport", "ddp"))]
    found = verdict(*lines)
    assert found.exit_code == 5
    assert {gate.gate: gate.follows for gate in found.gates} == {"node": (), "transport": ("n3",), "ddp": ("n3",)}
    assert found.bad_nodes == ["n3"]
