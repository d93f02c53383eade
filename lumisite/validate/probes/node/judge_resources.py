"""Judge what ranks may use of a node: limits, huge pages, memory and local file systems.

A node is wrong that has clearly less than more than half of the others: as a number, and as a share of its memory, as
systems derive some of them from that.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

from lumisite.findings.finding import Finding, Severity
from lumisite.validate.probes.outcome import DRAIN, Located
from lumisite.validate.probes.probe import Record
from lumisite.validate.probes.records import count_in, text, texts

#: Limits by the names that scripts write, and by those that people know, with the unit.
LIMITS = {
    "memlock": ("locked memory", " B"),
    "nofile": ("open files", ""),
    "nproc": ("processes", ""),
    "tasks": ("cgroup tasks", ""),
    "stack": ("stack size", " B"),
}
#: Numbers that differ by less count as the same.
ALIKE = 0.05
SHARED_MEMORY = "/dev/shm"  # noqa: S108, where POSIX shared memory is
#: Which part of the size, and of what is free, a node needs at least: files come and go on local disks.
LEAST_IN_MEMORY, LEAST_ON_DISK, LEAST_OF_LIMITS, LEAST_OF_POOL = (0.9, 0.5), (0.9, 0.25), (0.9, 0.9), (0.95,)
#: Collectives and loaders of data share more than this between the ranks of a node, in KiB.
LEAST_SHARED_KIB = 64 * 1024


def limit_in(text: str) -> float:
    """Return the number that a text is; what is no number is no limit."""
    count = count_in(text)
    return math.inf if count is None else count


def judge_resources(records: Mapping[str, Record], local: str, *, in_memory: bool) -> Iterator[Located]:
    """Yield what ranks may use less of than on the other nodes; of a folder that cannot be written that alone.

    `local` is the folder that ranks write into, empty where there is none; `in_memory` says whether it is in memory.
    """
    amounts = _Amounts(records)
    for node, record in records.items():
        refused = {local: text(record, "private"), SHARED_MEMORY: text(record, "shm")}
        for folder, reason in refused.items():
            if reason:
                advice = (
                    f"look at `df {folder}`, `df -i {folder}` and `findmnt -T {folder}`: make room or mount it again"
                )
                yield Located(_full(folder, f"cannot be written: {reason}", advice), node)
        if lower := amounts.lower_limits(node):
            yield Located(lower, node)
        for name in sorted(amounts.numbers[node].keys() - LIMITS.keys() - {"memory"}):
            is_in_memory = name == SHARED_MEMORY or (in_memory and name == local)
            if not refused.get(name) and (found := amounts.lower_amount(node, name, in_memory=is_in_memory)):
                yield Located(found, node)


class _Amounts:
    """The numbers of each node by name: of limits soft and hard, of a folder its size and what is free there."""

    def __init__(self, records: Mapping[str, Record]) -> None:
        self.numbers = {node: _numbers(texts(record, "resources")) for node, record in records.items()}
        self.usual: dict[tuple[str, int], tuple[float | None, float | None]] = {}
        for name, at in {(name, at) for of_node in self.numbers.values() for name in of_node for at in (0, 1)}:
            having = [of_node for of_node in self.numbers.values() if len(of_node.get(name, ())) > at]
            values, shares = [of_node[name][at] for of_node in having], [_share(each, name, at) for each in having]
            self.usual[name, at] = _most(values, name), _most(shares, name)

    def expected(self, node: str, name: str, at: int, least: Sequence[float]) -> float | None:
        """Return what most nodes have of a number, where this one has clearly less of it, and for its memory too."""
        numbers, (value, share) = self.numbers[node], self.usual.get((name, at), (None, None))
        if len(numbers.get(name, ())) <= at or value is None or numbers[name][at] >= least[at] * value:
            return None
        derived = share is not None and share < math.inf and _share(numbers, name, at) >= least[at] * share
        return None if derived else value

    def lower_limits(self, node: str) -> Finding | None:
        """Return the limits that are lower than on the other nodes: they have one cause, so the first names all."""
        lower = {}
        for name in LIMITS:
            for at in (0, 1):  # where the hard limit is lower, the soft one is too
                if (expected := self.expected(node, name, at, LEAST_OF_LIMITS)) is not None:
                    lower[name] = at, expected
        if not lower:
            return None
        name, *others = lower
        at, expected = lower[name]
        title, unit = LIMITS[name]
        have, others_have = (
            f"{each:.0f}{unit}" if each < math.inf else "unlimited" for each in (self.numbers[node][name][at], expected)
        )
        message = f"{'hard' if at else 'soft'} limit is {have}, on the other nodes {others_have}"
        message += f"; lower too: {', '.join(LIMITS[other][0] for other in others)}" if others else ""
        advice = (
            "compare `systemctl show slurmd | grep Limit`, PropagateResourceLimits of slurm.conf and "
            f"/etc/security/limits.conf; restart slurmd{DRAIN}"
        )
        return Finding("node-differs", Severity.NODE, message, advice, subject=title)

    def lower_amount(self, node: str, name: str, *, in_memory: bool) -> Finding | None:
        """Return what a node has less of than the others: of a folder its size, or what is free there."""
        is_folder, numbers = name.startswith("/"), self.numbers[node][name]
        least = LEAST_IN_MEMORY if in_memory else LEAST_ON_DISK if is_folder else LEAST_OF_POOL
        for at in range(len(least)):
            if (expected := self.expected(node, name, at, least)) is None:
                continue
            if is_folder:
                have, others = (f"{each / 1024:.0f} MiB" for each in (numbers[at], expected))
                advice = f"look at `df {name}` there: its mount options, or files that earlier jobs left"
                return _full(name, f"{('size', 'free')[at]} {have}, on the other nodes {others}", advice)
            message = f"{numbers[at]:.0f}, on the other nodes {expected:.0f}"
            advice = f"compare /proc/meminfo and the kernel's command line{DRAIN}"
            return Finding("node-differs", Severity.NODE, message, advice, subject=name)
        if name == SHARED_MEMORY and len(numbers) > 1 and numbers[1] < LEAST_SHARED_KIB:
            size, free = (f"{each / 1024:.0f} MiB" for each in numbers[:2])
            advice = "remove what earlier jobs left in it (`ls -l /dev/shm`), or mount it larger "
            return _full(name, f"{free} free of {size}", f"{advice}(`mount -o remount,size=50% /dev/shm`, /etc/fstab)")
        return None


def _full(folder: str, message: str, advice: str) -> Finding:
    return Finding("node-full", Severity.NODE, message, f"{advice}{DRAIN}", subject=folder)


def _numbers(lines: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """Return the numbers of lines `NAME NUMBER...`."""
    return {name: tuple(map(limit_in, found)) for name, *found in filter(None, map(str.split, lines))}


def _share(numbers: Mapping[str, tuple[float, ...]], name: str, at: int) -> float:
    """Return a number as a share of the node's memory, infinite where that is not known: nothing is derived then."""
    memory = numbers.get("memory", (0.0,))[0]
    return numbers[name][at] / memory if memory else math.inf


def _most(values: Sequence[float], name: str) -> float | None:
    """Return what more than half have; of two limits that differ the lower one is wrong."""
    if len(values) == 2 and name in LIMITS:
        return max(values)
    middle = statistics.median_high(values) if values else 0.0
    alike = [value for value in values if middle * (1 - ALIKE) <= value <= middle * (1 + ALIKE)]
    return middle if 2 * len(alike) > len(values) else None
