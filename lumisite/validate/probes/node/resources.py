"""Judge what ranks may use of a node: limits, huge pages, memory and local file systems.

What a node should have is what more than half of the others have: alike in number, or as a share of the node's memory.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from lumisite.findings.finding import Finding, Severity
from lumisite.validate.probes.outcome import DRAIN
from lumisite.validate.probes.records import count_in

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

#: Numbers by name: of limits soft and hard, of a folder its size and what is free there.
Numbers = Mapping[str, tuple[float, ...]]
#: What most nodes have, by name and place among its numbers: the number, and its share of the node's memory.
Usual = Mapping[tuple[str, int], tuple[float | None, float | None]]


def numbers_of(lines: Iterable[str]) -> dict[str, tuple[float, ...]]:
    """Return the numbers of lines `NAME NUMBER...`; what is no number is no limit."""
    words = filter(None, map(str.split, lines))
    return {name: tuple(map(limit_in, found)) for name, *found in words}


def limit_in(text: str) -> float:
    """Return the number that a text is; what is no number is no limit."""
    count = count_in(text)
    return math.inf if count is None else count


def lower_limits(numbers: Numbers, usual: Usual) -> Finding | None:
    """Return the limits that are lower than on the other nodes: they have one cause, so the first names all."""
    lower = []
    for name in LIMITS:
        # Where the hard limit is lower, the soft one is too.
        kinds = [kind for kind in (1, 0) if _expected(name, kind, LEAST_OF_LIMITS, numbers, usual) is not None]
        lower += [(name, kind) for kind in kinds[:1]]
    if not lower:
        return None
    name, kind = lower[0]
    title, unit = LIMITS[name]
    expected = _expected(name, kind, LEAST_OF_LIMITS, numbers, usual) or 0.0
    values = [f"{each:.0f}{unit}" if each < math.inf else "unlimited" for each in (numbers[name][kind], expected)]
    more = ", ".join(LIMITS[other][0] for other, _ in lower[1:])
    message = f"{'hard' if kind else 'soft'} limit is {values[0]}, on the other nodes {values[1]}"
    message += f"; lower too: {more}" if more else ""
    advice = (
        "compare `systemctl show slurmd | grep Limit`, PropagateResourceLimits of slurm.conf and "
        f"/etc/security/limits.conf; restart slurmd{DRAIN}"
    )
    return Finding("node-differs", Severity.NODE, message, advice, subject=title)


def lower_amounts(numbers: Numbers, usual: Usual, in_memory: Set[str]) -> Iterator[Finding]:
    """Yield what a node has less of than the others: of a folder its size, or what is free there."""
    for name in sorted(numbers.keys() - LIMITS.keys() - {"memory"}):
        is_folder = name.startswith("/")
        least = LEAST_IN_MEMORY if name in in_memory else LEAST_ON_DISK if is_folder else LEAST_OF_POOL
        lower = [kind for kind in range(len(least)) if _expected(name, kind, least, numbers, usual) is not None]
        if lower:
            yield _lower_amount(name, lower[0], numbers[name], _expected(name, lower[0], least, numbers, usual) or 0.0)
        elif name == SHARED_MEMORY and len(numbers[name]) > 1 and numbers[name][1] < LEAST_SHARED_KIB:
            size, free = (f"{each / 1024:.0f} MiB" for each in numbers[name][:2])
            advice = (
                "remove what earlier jobs left in it (`ls -l /dev/shm`), or mount it larger "
                f"(`mount -o remount,size=50% /dev/shm`, /etc/fstab){DRAIN}"
            )
            yield Finding("node-full", Severity.NODE, f"{free} free of {size}", advice, subject=name)


def _lower_amount(name: str, kind: int, found: Sequence[float], expected: float) -> Finding:
    if name.startswith("/"):
        have, others = (f"{each / 1024:.0f} MiB" for each in (found[kind], expected))
        message = f"{('size', 'free')[kind]} {have}, on the other nodes {others}"
        advice = f"look at `df {name}` there: its mount options, or files that earlier jobs left{DRAIN}"
        return Finding("node-full", Severity.NODE, message, advice, subject=name)
    message = f"{found[kind]:.0f}, on the other nodes {expected:.0f}"
    advice = f"compare /proc/meminfo and the kernel's command line{DRAIN}"
    return Finding("node-differs", Severity.NODE, message, advice, subject=name)


def usual_numbers(every: Sequence[Numbers]) -> Usual:
    """Return what more than half of the nodes have of each number, and of it as a share of their memory."""
    found = {}
    for name in {name for numbers in every for name in numbers}:
        for kind in (0, 1):
            having = [numbers for numbers in every if len(numbers.get(name, ())) > kind]
            values = [numbers[name][kind] for numbers in having]
            shares = [_share(numbers, name, kind) for numbers in having]
            found[name, kind] = _most(values, name), _most(shares, name)
    return found


def _share(numbers: Numbers, name: str, kind: int) -> float:
    """Return a number as a share of the node's memory, infinite where that is not known: nothing is derived then."""
    memory = numbers.get("memory", (0.0,))[0]
    return numbers[name][kind] / memory if memory else math.inf


def _most(values: Sequence[float], name: str) -> float | None:
    """Return what more than half have; of two limits that differ the lower one is wrong."""
    if len(values) == 2 and name in LIMITS:
        return max(values)
    middle = statistics.median_high(values) if values else 0.0
    alike = [value for value in values if middle * (1 - ALIKE) <= value <= middle * (1 + ALIKE)]
    return middle if 2 * len(alike) > len(values) else None


def _expected(name: str, kind: int, least: Sequence[float], numbers: Numbers, usual: Usual) -> float | None:
    """Return what most nodes have of a number, where this one has clearly less of it, and for its memory too."""
    value, share = usual.get((name, kind), (None, None))
    if len(numbers.get(name, ())) <= kind or value is None or numbers[name][kind] >= least[kind] * value:
        return None
    derived = share is not None and share < math.inf and _share(numbers, name, kind) >= least[kind] * share
    return None if derived else value
