"""What an earlier finding says is broken on a node is not run to its time limit: it is skipped, with its cause."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from lumisite.findings.finding import Finding, Severity
from lumisite.validate.lines import Gate, gate_of
from lumisite.validate.probes.probe import Ended, Expected, Group, Line, ProbeStep, Srun
from lumisite.validate.probes.suite import choose_probes, groups
from lumisite.validate.verdict.causes import reason_to_skip
from lumisite.validate.verdict.gates import judge_gates
from tests.support.played_slurm import NODES, PlayedSlurm, a_group, drive, new_run, play, runner
from tests.support.records import target_of

FOUR = ("n1", "n2", "n3", "n4")
FINE = Finding("checks-passed", Severity.INFO, "as it should be")
DOWN = Finding("node-interface", Severity.NODE, "interface is down", subject="hsn0", nodes=NODES[1:])


def found(severity: Severity, *nodes: str, code: str = "node-interface") -> Gate:
    asked = FOUR if nodes != FOUR else ()
    return gate_of(Finding(code, severity, "it is", subject="x"), "node", "r1", nodes, 1.0, asked=asked)


#: Without those of the first node alone.
TOGETHER = ["transport-4n", "communicators-4n", "collectives-4n", "ddp-4n", "pairs-4n"]


@pytest.mark.parametrize(
    ("gate", "skipped"),
    [
        (found(Severity.NODE, "n3"), ["environment-4n-node", *TOGETHER]),
        (found(Severity.NODE, *FOUR), []),
        (found(Severity.INFO, "n1", "n2", "n4"), []),
        (found(Severity.DOUBT, *FOUR, code="nodes-disagree"), []),
        # Whichever of the two it is, ranks on both would wait for each other.
        (found(Severity.DOUBT, "n2", "n3", code="node-link"), TOGETHER),
    ],
)
def test_steps_with_a_bad_node_are_skipped(gate: Gate, skipped: list[str]) -> None:
    every = groups(choose_probes(target_of("twin")), target_of("twin").plan, None, FOUR)
    names = [group.folder for group in every if reason_to_skip(group.steps[0], [gate])]
    assert {*skipped} <= {*names}
    assert bool(skipped) == bool(names)
    assert "ddp-1n" not in names


def plan_groups(finding: Finding) -> list[Group]:
    """A step that looks at nodes alone and finds this, then two in which ranks work together."""

    def judge_node(_: Sequence[Ended], expected: Expected) -> list[Line]:
        return [expected.gate(finding)]

    alone = ProbeStep("node", Srun("", ("true",), bare=False), "several", NODES, 1, 10, together=False)
    return [Group((alone,), judge_node), a_group("transport"), a_group("ddp")]


def test_a_run_skips_the_steps_and_records_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, PlayedSlurm())
    lines = drive(runner(new_run(tmp_path), [], plan_groups(DOWN), jobs=1))
    gates = [line for line in lines if isinstance(line, Gate)]
    (job,) = (tmp_path / "jobs").iterdir()
    assert [(gate.gate, gate.code) for gate in gates] == [
        ("node", "node-interface"),
        ("transport", "step-skipped"),
        ("ddp", "step-skipped"),
        ("job", "job-progress"),
    ]
    assert gates[1].values == {"subject": "transport-2n", "cause": "node-interface", "gate": "node", "of": NODES[1:]}
    assert gates[1].nodes == NODES
    assert not (job / "transport-2n/records").exists()
    assert [path.parent.name for path in job.glob("*/judged")] == ["node-2n"]
    assert gates[-1].cause == "1 step has run"
    verdicts = {one.gate: (one.verdict, one.follows) for one in judge_gates((), gates)}
    assert verdicts["node"] == ("bad-nodes", ())
    assert verdicts["ddp"] == verdicts["transport"] == ("inconclusive", NODES[1:])
