"""What a gate probe found: pass, fail or inconclusive, with the cause and what to do, told once for all ranks alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lumisite.site.cpus import format_cpu_list

if TYPE_CHECKING:
    from typing import TypeAlias

Record: TypeAlias = Mapping[str, object]
"""One task's record, as a script in a job has left it: JSON that anything may be missing from."""

Outcome: TypeAlias = Literal["pass", "fail", "inconclusive"]

#: Nodes that a cause names; more are counted.
NAMED_NODES = 4


@dataclass(frozen=True)
class JobShape:
    """The job that a probe ran in: `nodes` in the order of their ranks, those that were lost left out."""

    nodes: tuple[str, ...]
    tasks_per_node: int

    @property
    def shape(self) -> str:
        """How metrics name it: `1g` one rank, `1n` one node, `2n` two nodes."""
        if len(self.nodes) > 1:
            return f"{len(self.nodes)}n"
        return "1g" if self.tasks_per_node == 1 else "1n"


@dataclass(frozen=True)
class Finding:
    """One line about a gate; `rank` is given where it is about that one alone."""

    gate: str
    verdict: Outcome
    cause: str
    advice: str
    nodes: tuple[str, ...]
    rank: int | None = None


@dataclass(frozen=True)
class Measure:
    """One number that a gate probe measured beside its finding."""

    metric: str
    value: float
    better: Literal["higher", "lower"]
    nodes: tuple[str, ...]
    unit: str


@dataclass(frozen=True)
class Trace:
    """Numbers in the order in which they came, for tables and plots: one for each epoch."""

    quantity: str
    values: tuple[float, ...]
    unit: str


Found: TypeAlias = "Finding | Measure | Trace"
"""What a gate probe may give."""


@dataclass(frozen=True)
class Fault:
    """What is wrong with one task, before equal ones are put together; without `rank` it is the node's."""

    cause: str
    advice: str
    node: str
    rank: int | None = None
    verdict: Outcome = "fail"


def findings(gate: str, faults: Iterable[Fault], passed: str, job: JobShape) -> tuple[Finding, ...]:
    """Give one finding for each distinct fault, in the order of the first rank that has it; or `passed` if none."""
    alike: dict[tuple[Outcome, str, str], list[Fault]] = {}
    for fault in faults:
        alike.setdefault((fault.verdict, fault.cause, fault.advice), []).append(fault)
    if not alike:
        return (Finding(gate, "pass", passed, "", job.nodes),)
    return tuple(
        Finding(
            gate,
            verdict,
            f"{_where(same)}: {cause}",
            advice,
            tuple(dict.fromkeys(fault.node for fault in same)),
            same[0].rank if len(same) == 1 else None,
        )
        for (verdict, cause, advice), same in alike.items()
    )


def missing(records: Sequence[Record], job: JobShape, *, each: Literal["node", "gpu"], what: str) -> list[Fault]:
    """Give a fault for each task that should have left a record and has not."""
    cause = f"{what} left no record: it did not start, or was ended"
    advice = "read the step's stderr, which has the container runtime's own words"
    if each == "node":
        seen = {text(record, "host") for record in records}
        return [Fault(cause, advice, node) for node in job.nodes if node not in seen]
    ranks = {number(record, "rank") for record in records}
    return [
        Fault(cause, advice, job.nodes[rank // job.tasks_per_node], rank)
        for rank in range(len(job.nodes) * job.tasks_per_node)
        if rank not in ranks
    ]


def by_rank(records: Iterable[Record]) -> list[Record]:
    """Sort records by rank."""
    return sorted(records, key=lambda record: number(record, "rank"))


def value_at(record: object, *keys: str) -> object:
    """Give what stands below some keys, `None` where one is missing."""
    for key in keys:
        record = record.get(key) if isinstance(record, Mapping) else None
    return record


def text(record: object, *keys: str) -> str:
    """Give a text of a record, empty where there is none."""
    value = value_at(record, *keys)
    return value if isinstance(value, str) else ""


def number(record: object, *keys: str) -> int:
    """Give a whole number of a record, 0 where there is none."""
    value = value_at(record, *keys)
    return value if isinstance(value, int) else 0


def table(record: object, *keys: str) -> Mapping[str, object]:
    """Give what a record has by name, empty where there is nothing."""
    value = value_at(record, *keys)
    return value if isinstance(value, Mapping) else {}


def rows(record: object, *keys: str) -> Sequence[object]:
    """Give a list of a record, empty where there is none."""
    value = value_at(record, *keys)
    return value if isinstance(value, list) else ()


def in_image(mount: object) -> bool:
    """Tell whether what is on a mount is the image's own, not the host's: the root, or part of a squashfs file.

    Without overlay a runtime mounts parts of its squashfs one by one ("underlay" of SingularityCE's admin guide).
    """
    return text(mount, "point") in ("", "/") or "squash" in text(mount, "type")


def counted(count: int, thing: str) -> str:
    """Count something.

    >>> counted(1, "rank"), counted(2, "rank")
    ('1 rank', '2 ranks')
    """
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def named(nodes: Sequence[str]) -> str:
    """Name nodes, the first few of many."""
    shown = ", ".join(nodes[:NAMED_NODES])
    return shown if len(nodes) <= NAMED_NODES else f"{shown} and {len(nodes) - NAMED_NODES} more"


def _where(faults: Sequence[Fault]) -> str:
    nodes = tuple(dict.fromkeys(fault.node for fault in faults))
    ranks = [fault.rank for fault in faults if fault.rank is not None]
    if not ranks:
        return named(nodes)
    return f"rank{'s' * (len(ranks) > 1)} {format_cpu_list(ranks)} on {named(nodes)}"
