"""A rank that was killed is named as srun reports it, and not by what the ranks that outlived it met."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lumisite.validate.lines import Gate
from lumisite.validate.probes.collectives.judge import collectives
from lumisite.validate.probes.ddp.judge import ddp
from lumisite.validate.probes.probe import Record
from tests.support.records import target_of
from tests.unit.validate.test_measuring_judges import GOOD, NODES, at, ended, expected, gate_of

RESET = {
    "error": "RuntimeError: [gloo] Connection closed by peer [nid000002]",
    "error_at": "training",
    "error_time": 30.4,
}
KILLED = "srun: error: nid000002: task 1: Killed"
EXITED = "srun: error: nid000001: task 0: Exited with exit code 1"


@pytest.mark.parametrize(
    ("records", "stderr", "code", "cause", "nodes"),
    [
        # A survivor's words are no cause, in whatever order srun has the lines.
        ([{**GOOD[0], **RESET}, at(1, "training", 30.0)], (KILLED, EXITED), "rank-failed", ": Killed", (1,)),
        (
            [{**GOOD[0], **RESET}, at(1, "training", 30.0)],
            (EXITED, KILLED),
            "rank-failed",
            "while training",
            (1,),
        ),
        (
            [{**GOOD[0], **RESET}, at(1, "training", 30.0)],
            ("srun: error: nid000002: task 1: Terminated",),
            "rank-failed",
            ": Terminated",
            (1,),
        ),
        # The others were sent a signal because one ended.
        (
            [at(0, "training", 30.0), at(1, "training", 30.0)],
            ("srun: error: nid000001: task 0: Terminated", KILLED),
            "rank-failed",
            "rank 1 on nid000002: ended without a record while training: Killed",
            (1,),
        ),
        (
            [at(0, "training", 30.0), at(1, "training", 30.0)],
            (KILLED, "srun: error: nid000001: task 0: Segmentation fault (core dumped)"),
            "rank-failed",
            "rank 0 on nid000001: ended without a record while training: Segmentation fault (core dumped)",
            (0,),
        ),
        # One that lived on, or had not begun, when another met an error of its own.
        (
            [{**GOOD[0], **RESET}, at(1, "training", 31.2)],
            (EXITED, KILLED),
            "rank-failed",
            "while training",
            (0, 1),
        ),
        ([{**GOOD[0], **RESET}], (EXITED, KILLED), "rank-failed", "while training", (0, 1)),
        # Memory.
        (
            [{**GOOD[0], **RESET}, at(1, "training", 30.0)],
            (
                "slurmstepd: error: Detected 1 oom_kill event in StepId=7.4. Some of the step tasks have been OOM Killed.",
                "srun: error: nid000002: task 1: Out Of Memory",
            ),
            "rank-failed",
            "rank 1 on nid000002: killed while training: out of memory (Out Of Memory)",
            (1,),
        ),
        (
            [at(0, "training", 30.0), at(1, "training", 30.0)],
            ("slurmstepd: error: Detected 1 oom_kill event in StepId=7.4.", KILLED),
            "rank-failed",
            "out of memory (Killed)",
            (1,),
        ),
        # Memory was out on the way of another that ended by itself.
        (
            [at(0, "training", 30.0), at(1, "training", 30.0)],
            ("slurmstepd: error: Detected 1 oom_kill event in StepId=7.4.", "srun: error: nid000002: task 1: Aborted"),
            "rank-failed",
            ": Aborted",
            (1,),
        ),
    ],
)
def test_a_rank_that_was_killed_is_the_cause_and_not_the_survivors_words(
    records: list[Record], stderr: tuple[str, ...], code: str, cause: str, nodes: tuple[int, ...]
) -> None:
    left = replace(ended(records, 137), seconds=9.0, stderr=stderr)
    for judge in (ddp(target_of("twin")).judge, collectives(target_of("twin")).judge):
        gate = gate_of(list(judge([left], expected("p"))))
        assert (gate.verdict, gate.code) == ("fail", code)
        assert cause in gate.text
        assert gate.nodes == tuple(NODES[node] for node in nodes)


BOOM = {"error": "ValueError: no such device", "error_at": "training", "error_time": 32.0}


@pytest.mark.parametrize(
    ("records", "rank", "nodes"),
    [
        # One rank has an error of its own, whoever of the others noticed first that it is gone.
        ([{**GOOD[0], **RESET}, {**GOOD[1], **BOOM}], 1, (1,)),
        # All have the same, or nothing but words on each other: no node is picked out.
        ([{**GOOD[0], **BOOM}, {**GOOD[1], **BOOM}], 0, (0, 1)),
        ([{**GOOD[0], **RESET}, {**GOOD[1], **RESET}], 0, (0, 1)),
        ([GOOD[0], {**GOOD[1], **RESET}], 1, (0, 1)),
    ],
)
def test_an_error_of_one_rank_is_that_of_its_node(records: list[Record], rank: int, nodes: tuple[int, ...]) -> None:
    (gate,) = ddp(target_of("twin")).judge([ended(records, 1)], expected("ddp"))
    assert isinstance(gate, Gate)
    assert (gate.code, gate.rank) == ("rank-failed", rank)
    assert gate.nodes == tuple(NODES[at] for at in nodes)
    assert bool(gate.asked) == (len(nodes) == 1)
