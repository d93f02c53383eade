"""One cause is one finding: what follows from it in the same job is known as following, and nothing else is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding
from lumisite.validate.lines import Gate, gate_of
from lumisite.validate.samples import Recorded
from lumisite.validate.verdict.causes import following
from lumisite.validate.verdict.system import SystemVerdict, Terms, judge_system

FOUR = ("n1", "n2", "n3", "n4")
CLOSED = "RuntimeError: [../gloo/pair.cc:589] Connection closed by peer [10.1.0.{}]:{}"
NO_IMAGE = make_finding("node-path-missing", "/appl/images/torch.sif", why="the image")


def line(gate: str, finding: Finding, time: float, *nodes: str, run: str = "r1") -> Gate:
    return gate_of(finding, gate, run, nodes or FOUR, time, asked=FOUR if nodes and nodes != FOUR else ())


def failed(error: str, part: str = "") -> Finding:
    return make_finding("rank-failed", f"rank 1 on n2 {part}", error=error, phase=part or "training")


def hung(code: str = "rank-hung") -> Finding:
    return make_finding(code, "rank 0 on n1", phase="joining", limit_s=180)


def verdict(*lines: Gate) -> SystemVerdict:
    return judge_system(Recorded({}), Recorded({}, lines), Terms())


def plain(*lines: Gate) -> list[str]:
    """The gates that did not pass and follow from nothing."""
    found = following(lines)
    return [gate.gate for gate in lines if gate.verdict != "pass" and gate not in found]


def test_what_all_nodes_have_is_one_finding_and_the_rest_follows() -> None:
    lines = [
        line("node", NO_IMAGE, 1.0),
        line("environment", make_finding("record-missing", "container"), 2.0),
        line("transport", make_finding("step-not-run", "transport-4n", words="FATAL: no image"), 3.0),
        line("ddp", failed("boom"), 4.0),
    ]
    found = verdict(*lines)
    assert (found.verdict, found.exit_code) == ("fail", 1)
    assert {gate.gate: (gate.verdict, gate.follows) for gate in found.gates if gate.gate != "node"} == dict.fromkeys(
        ("environment", "transport", "ddp"), ("inconclusive", FOUR)
    )
    assert {finding.cause for gate in found.gates for finding in gate.findings} == {None, "node-path-missing"}
    # All nodes have it: no others are left to run it on.
    assert [run.code for run in found.missing_runs] == ["next-after-repair"]
    assert found.missing_runs[0].values["causes"] == ("node-path-missing",)


@pytest.mark.parametrize(
    ("first", "later", "follows"),
    [
        # The same error with other numbers, wherever else it was met.
        (failed(CLOSED.format(1, 3121), "a"), failed(CLOSED.format(2, 40), "b"), True),
        (failed(CLOSED.format(1, 3121)), failed("RuntimeError: HIP out of memory"), False),
        (failed("a"), make_finding("gradients-differ", rank=1), False),
        (make_finding("srun-failed", exit_code=1, words="x 1"), make_finding("srun-failed", exit_code=9, words="x 2"), True),
        # Codes that quote no error are alike in nothing but their code.
        (make_finding("gradients-missing"), make_finding("gradients-missing"), False),
        (hung("communicator-hung"), hung(), True),
        (hung(), failed("boom"), False),
    ],
)  # fmt: skip
def test_the_same_error_again_follows_from_the_first(first: Finding, later: Finding, follows: bool) -> None:
    one, other = line("communicators", first, 1.0), line("ddp", later, 2.0)
    assert plain(one, other) == (["communicators"] if follows else ["communicators", "ddp"])
    assert plain(other, one)[-1] == "communicators"
    # Not in another job, and not on other nodes.
    assert len(plain(one, replace(other, run="r2"))) == 2
    assert len(plain(one, replace(other, nodes=("n1", "n2")))) == 2


@pytest.mark.parametrize(
    ("gate", "cause", "behind", "follows"),
    [
        ("binds", make_finding("import-failed", "torch", error="no such file"), "transport", True),
        ("binds", make_finding("import-failed", "torch", error="no such file"), "miopen", False),
        ("binds", make_finding("plugin-not-opened", "librccl-net.so", refusals=("x",)), "transport", True),
        ("binds", make_finding("plugin-not-opened", "librccl-net.so", refusals=("x",)), "ddp", False),
        ("slurm", make_finding("slurm-no-affinity", "TaskPlugin", plugin="task/none"), "affinity", True),
        ("slurm", make_finding("slurm-no-affinity", "TaskPlugin", plugin="task/none"), "ddp", False),
        ("usersite", make_finding("user-site-active", "~/.local"), "ddp", False),
        # A record that a rank of another probe should have left says nothing of containers.
        ("transport", make_finding("record-missing", "x"), "ddp", False),
    ],
)
def test_what_breaks_what_ranks_need_explains_them(gate: str, cause: Finding, behind: str, follows: bool) -> None:
    other = line(behind, make_finding("transport-wrong-network", "n1"), 9.0)
    assert plain(line(gate, cause, 1.0), other) == ([gate] if follows else [gate, behind])
    # One of four nodes has it.
    assert plain(line(gate, cause, 1.0, "n3"), replace(other, nodes=("n1", "n2"))) == [gate, behind]


def test_a_step_that_was_not_run_follows_from_what_it_was_not_run_for() -> None:
    bad = line("node", make_finding("interface-down", "hsn0"), 1.0, "n3")
    fine = line("node", make_finding("node-fine", interfaces=("hsn0",), paths=3), 1.0, "n1", "n2", "n4")
    skipped = make_finding("step-skipped", "ddp-4n", cause="interface-down", gate="node", of=("n3",))
    lines = [bad, fine, *(line(name, with_cause(skipped), 1.5) for name in ("transport", "ddp"))]
    found = verdict(*lines)
    assert found.exit_code == 5
    assert {gate.gate: gate.follows for gate in found.gates} == {"node": (), "transport": ("n3",), "ddp": ("n3",)}
    assert [(run.code, run.nodes) for run in found.missing_runs] == [("next-other-nodes", ("n3",))]
    assert found.bad_nodes == ["n3"]


def with_cause(finding: Finding) -> Finding:
    return replace(finding, values={**finding.values, "cause": finding.cause})
