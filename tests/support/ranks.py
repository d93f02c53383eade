"""Ranks of two nodes that work together: their records, the step that they ran in, and what a judge said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lumisite.validate.lines import Gate, Sample
from lumisite.validate.probes.probe import Ended, Expected, Line, ProbeStep, Record, Srun
from tests.support.records import a_job

NODES = ("nid000001", "nid000002")


def rank(number: int, tasks: int = 1, ranks: int = 2, **more: object) -> dict[str, object]:
    """Return what a rank records that came to its end."""
    place = {"host": NODES[number // tasks], "rank": number, "local_rank": number % tasks}
    return {**place, "tasks": ranks, "world_size": ranks, **more}


def ended(records: Sequence[Record], code: int = 0, tasks: int = 1, **environment: str) -> Ended:
    """Return a step with these records and exit code."""
    step = ProbeStep("p", Srun("", (), environment=tuple(environment.items())), "several", NODES, tasks, 60)
    return Ended(step, tuple(records), code, ("the last words",) if code else ())


def expected(probe: str, tasks: int = 1) -> Expected:
    """Return what the judge of a probe knows of its job."""
    return replace(a_job(NODES, tasks, probe), run="r1", time=100.0)


def gate_of(lines: Sequence[Line]) -> Gate:
    """Return the one answer."""
    (gate,) = [line for line in lines if isinstance(line, Gate)]
    return gate


def values(lines: Sequence[Line]) -> dict[str, float]:
    """Return the numbers, by metric."""
    return {line.metric: line.value for line in lines if isinstance(line, Sample)}
