"""What an earlier finding says is broken on a node is not run to its time limit: it is skipped, with its cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lumisite.findings.finding import Finding, Severity
from lumisite.validate.lines import Gate, gate_of
from lumisite.validate.probes.probe import Ended, Expected, Group, Line, ProbeStep, Srun
from lumisite.validate.probes.suite import choose_probes, groups
from lumisite.validate.run.folder import lines_of
from lumisite.validate.samples import Recorded
from lumisite.validate.verdict.causes import reason_to_skip
from lumisite.validate.verdict.gates import judge_gates
from lumisite.validate.verdict.system import SystemVerdict, Terms, judge_system
from tests.support import played_slurm
from tests.support.played_slurm import NODES, PlayedSlurm, new_run, play, runner
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


def plan_groups(nodes: tuple[str, ...], finding: Finding | None) -> list[Group]:
    """A step that looks at nodes alone and finds this, then two in which ranks work together."""

    def judge_node(_: Sequence[Ended], expected: Expected) -> list[Line]:
        return [expected.gate(finding or FINE)]

    alone = ProbeStep("node", Srun("", ("true",), bare=False), "several", nodes, 1, 10, together=False)
    together = [played_slurm.a_group(name, nodes) for name in ("transport", "ddp")]
    return [Group((alone,), judge_node), *together]


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, finding: Finding | None) -> list[Gate]:
    monkeypatch.setattr(
        played_slurm, "plans", lambda place, jobs=1: played_slurm.plan_jobs(place, plan_groups(NODES, finding))
    )
    one = runner(new_run(folder))
    one.run.lock()
    one.restore()
    one.work()
    one.run.release()
    return [line for line in lines_of(folder / "samples.jsonl") if isinstance(line, Gate)]


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> PlayedSlurm:
    return play(monkeypatch)


def test_a_run_skips_the_steps_and_records_why(
    played: PlayedSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates = run(tmp_path / "run", monkeypatch, DOWN)
    (job,) = (tmp_path / "run/jobs").iterdir()
    assert [(gate.gate, gate.code) for gate in gates] == [
        ("node", "node-interface"),
        ("transport", "step-skipped"),
        ("ddp", "step-skipped"),
        ("job", "job-progress"),
    ]
    assert gates[1].values == {"subject": "transport-2n", "cause": "node-interface", "gate": "node", "of": NODES[1:]}
    assert gates[1].nodes == NODES
    assert not (job / "transport-2n/records").exists()
    assert gates[-1].cause == "1 step has run"
    verdicts = {one.gate: (one.verdict, one.follows) for one in judge_gates((), gates)}
    assert verdicts["node"] == ("bad-nodes", ())
    assert verdicts["ddp"] == verdicts["transport"] == ("inconclusive", NODES[1:])


def test_a_healthy_run_skips_nothing_and_marks_what_is_judged(
    played: PlayedSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates = run(tmp_path / "run", monkeypatch, None)
    assert {gate.verdict for gate in gates} == {"pass"}
    assert not list((tmp_path / "run").glob("jobs/*/*/skip"))
    assert [path.parent.name for path in (tmp_path / "run").glob("jobs/*/*/judged")] == ["node-2n"]
    assert gates[-1].cause == "3 steps have run"


def test_what_runs_behind_a_skipped_step_is_judged_at_once(tmp_path: Path) -> None:
    """A job waits for that, and looking ends where nothing has begun."""
    run = new_run(tmp_path / "run")
    driver = runner(run, jobs=1)
    (job,) = driver.jobs
    first, second, third = (run.job_folder(job.plan.run) / group.folder for group in job.plan.groups)
    for folder, code in ((first, "skipped"), (second, "0")):
        (folder / "records").mkdir(parents=True)
        (folder / "exit").write_text(f"{code} 200.5\n")
    (second / "began").write_text("100.0\n")
    (second / "records/0.json").write_text('{"rank": 0, "local_rank": 0, "value": 1}')
    driver.collector.collect(job, whole=False)
    assert job.collected == {first.name, second.name}
    assert job.group == ""
    third.mkdir()
    (third / "began").write_text("100.0\n")
    driver.collector.collect(job, whole=False)
    assert job.group == third.name


# ---- what shows only in a later step


def run_groups(
    folder: Path, monkeypatch: pytest.MonkeyPatch, first: Finding, gate: str
) -> tuple[list[Gate], SystemVerdict]:
    """Return the gates of a job whose first of three steps that work together finds this, for a gate."""

    def find(_: Sequence[Ended], expected: Expected) -> list[Line]:
        return [replace(expected.gate(first), gate=gate)]

    def groups_of(nodes: tuple[str, ...]) -> list[Group]:
        fine, *others = plan_groups(nodes, None)
        return [fine, Group(played_slurm.a_group("communicators", nodes).steps, find), *others]

    monkeypatch.setattr(played_slurm, "plans", lambda place, jobs=1: played_slurm.plan_jobs(place, groups_of(NODES)))
    gates = [line for line in played_slurm.work(folder) if isinstance(line, Gate)]
    return gates, judge_system(None, Recorded({}, tuple(gates)), Terms())


def test_after_a_hang_of_all_nodes_nothing_more_that_needs_the_network_is_run(
    played: PlayedSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang = Finding("step-hung", Severity.FAULT, "hung while joining", "look", subject="rank 0 on nid000001")
    gates, verdict = run_groups(tmp_path / "run", monkeypatch, hang, "communicators")
    assert [(gate.gate, gate.code) for gate in gates] == [
        ("node", "checks-passed"),
        ("communicators", "step-hung"),
        ("transport", "step-skipped"),
        ("ddp", "step-skipped"),
        ("job", "job-progress"),
    ]
    assert verdict.exit_code == 1
    follows = {gate.gate: gate.follows for gate in verdict.gates if gate.follows}
    assert follows == {"transport": NODES, "ddp": NODES}


def test_a_port_that_is_in_use_is_one_finding_of_its_node(
    played: PlayedSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Finding("port-in-use", Severity.NODE, "port 20001 is in use", "end it", nodes=NODES[:1])
    gates, verdict = run_groups(tmp_path / "run", monkeypatch, held, "node")
    assert [gate.code for gate in gates] == ["checks-passed", "port-in-use", *["step-skipped"] * 3, "job-progress"]
    assert (verdict.exit_code, verdict.bad_nodes) == (5, [NODES[0]])
    assert {gate.gate for gate in verdict.gates if gate.follows} == {"communicators", "transport", "ddp"}
