"""The table of what nodes are compared by: one word or number of each. A node is wrong that differs from most.

A new reading is a word of a record (job.sh), and a row of `readings`. What is wrong without any other node to compare
it with is in `judge_folders` and in judge_interfaces.py.
"""

from __future__ import annotations

import ipaddress
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from lumisite.findings.finding import Finding, Severity
from lumisite.machine.mounts import mount_of, parse_mounts
from lumisite.site.cpu_list import parse_number_list
from lumisite.validate.probes.outcome import DRAIN, Located
from lumisite.validate.probes.probe import Record
from lumisite.validate.probes.records import rows, text, usual

SHARED_MEMORY = "/dev/shm"  # noqa: S108, where POSIX shared memory is
#: Collectives and loaders of data share more than this between the ranks of a node, in KiB.
LEAST_SHARED_KIB = 64 * 1024
#: Numbers that differ by less count as the same.
ALIKE = 0.05
#: A clock counts as wrong that is further from the others, in seconds; tasks of a step start within a few.
CLOCK_S = 30
#: Options of a mount that forbid programs what they may do elsewhere.
FORBIDDING = ("noexec", "nosuid", "nodev")
#: Limits by the names that scripts write, and by those that people know, with the unit.
LIMITS = {
    "memlock": ("locked memory", " B"),
    "nofile": ("open files", ""),
    "nproc": ("processes", ""),
    "tasks": ("cgroup tasks", ""),
    "stack": ("stack size", " B"),
}
HARDWARE = "look at cable, switch port and driver (`ip -s -s link show`, dmesg)"


@dataclass(frozen=True)
class NodeReading:
    """What a node says in one word: its `subject`, how a record says it (empty: not at all), and its unit.

    With `least` it is a number, and a node is wrong that has less than this part of what most have; without, one that
    has another text. Of two nodes the one of lower `worth` is wrong, where that is known. A number `by_memory` may be
    derived from the node's memory: it is wrong only if it is so as a share of that, too. With `alone` only one node may
    differ: where several do, they may belong to another group of nodes. Of several readings of one
    `group` the first that is wrong on a node is a finding, as they have one cause, and names the others.
    """

    subject: str
    read: Callable[[Record], str]
    unit: str = ""
    least: float | None = None
    worth: Callable[[str], float] | None = None
    by_memory: bool = False
    alone: bool = False
    group: str = ""
    words: str = ""
    advice: str = "set it as on the other nodes"
    code: str = "node-differs"

    def shown(self, value: str) -> str:
        """Return a value with its unit."""
        if self.unit == " MiB":
            return f"{int(value) / 1024:.0f} MiB"
        return f"{value}{self.unit}" if value.isdecimal() else value


def limit_in(value: str) -> float:
    """Return the number that a text is; what is no number is no limit."""
    return int(value) if value.isdecimal() else math.inf


# ---- the table


def readings(places: Sequence[str], local: str, *, in_memory: bool) -> Iterator[NodeReading]:
    """Yield all readings but those of interfaces.

    `places` are the node-local file systems, and `local` is the folder that ranks write into, which may be in memory.
    """
    yield NodeReading("kernel", _fact("kernel"))
    row = partial(NodeReading, group="CPUs", worth=limit_in)
    yield row("online CPUs", _fact("cpus"), worth=None)
    advice = "compare CPUs, CoreSpecCount and CpuSpecList of the node in slurm.conf, and `slurmd -C`"
    yield row("CPUs that Slurm gives the step", _fact("cpus_given"), advice=advice)
    advice = "compare the node in slurm.conf, and the CPUs of slurmd (`taskset -cp $(pidof slurmd)`)"
    yield row("CPUs that the step may run on", _allowed_cpus, advice=advice)
    yield NodeReading("CPU frequency limit", _fact("cpu_limit_khz"), " kHz", worth=limit_in)
    yield NodeReading("CPU quota", _fact("cpu_allowed"), " % of one CPU", worth=limit_in)
    yield NodeReading("CPU frequency governor", _fact("governor"))
    for place in dict.fromkeys((*places, SHARED_MEMORY)):
        advice = f"mount it as on the other nodes (`findmnt -T {place}`)"
        yield NodeReading(
            f"mount options of {place}", partial(_mount_options, place), worth=_few_options, advice=advice
        )
    for name, (title, unit) in LIMITS.items():
        advice = "compare `systemctl show slurmd | grep Limit`, PropagateResourceLimits of slurm.conf and "
        advice += "/etc/security/limits.conf; restart slurmd"
        limit = partial(NodeReading, title, unit=unit, group="limits", advice=advice)
        row = partial(limit, least=0.9, worth=limit_in, by_memory=True)
        yield row(_resource(name, 1), words="hard limit is ")
        yield row(_resource(name, 0), words="soft limit is ")
    # Files come and go on local disks, and less in memory.
    for folder, least_free in ((SHARED_MEMORY, 0.5), (local, 0.5 if in_memory else 0.25)):
        advice = f"look at `df {folder}` there: its mount options, or files that earlier jobs left"
        row = partial(NodeReading, folder, unit=" MiB", by_memory=True, group=folder, code="node-full", advice=advice)
        yield row(_resource(folder, 0), words="size ", least=0.9)
        yield row(_resource(folder, 1), words="free ", least=least_free)


def interface_readings(names: Sequence[str]) -> Iterator[NodeReading]:
    """Yield what is compared of each interface."""
    for name in names:
        row = partial(NodeReading, name, group=name, code="node-interface", advice=HARDWARE)
        yield row(read=_of_interface(name, "speed"), unit=" Mb/s", worth=limit_in, words="speed is ")
        yield row(read=_of_interface(name, "mtu"), unit=" bytes", worth=limit_in, words="MTU is ")
        advice = "correct the address and the name of the interface (`ip address`)"
        yield row(read=partial(_networks, name), words="address is in ", alone=True, advice=advice)


def _fact(key: str) -> Callable[[Record], str]:
    return lambda record: text(record, "facts", key).strip()


def _resource(name: str, at: int) -> Callable[[Record], str]:
    """Return a reader of one number of the line `NAME NUMBER...`, the last of its name."""

    def read(record: Record) -> str:
        lines = [words[1:] for line in rows(record, "resources") if (words := line.split())[0] == name]
        return lines[-1][at] if lines and len(lines[-1]) > at else ""

    return read


def _of_interface(name: str, key: str) -> Callable[[Record], str]:
    """Return a reader of a number; a link that is down has none, or -1."""

    def read(record: Record) -> str:
        value = text(record, "interfaces", name, key)
        return value if value.isdecimal() else ""

    return read


def _networks(name: str, record: Record) -> str:
    words = text(record, "interfaces", name, "addresses").split()
    return " ".join(sorted(str(ipaddress.ip_interface(word).network) for word in words))


def _allowed_cpus(record: Record) -> str:
    cpus = _fact("cpus_allowed")(record)
    return str(len(parse_number_list(cpus))) if cpus else ""


def _mount_options(place: str, record: Record) -> str:
    mount = mount_of(tuple(parse_mounts(rows(record, "mounts"))), place)
    none = f"none of {', '.join(FORBIDDING)}"
    return "" if mount is None else ", ".join(word for word in FORBIDDING if word in mount.options) or none


def _few_options(options: str) -> float:
    return -float(sum(word in options.split(", ") for word in FORBIDDING))


# ---- comparing


def compare(
    records: Mapping[str, Record], table: Iterable[NodeReading], known: Iterable[Located] = ()
) -> Iterator[Located]:
    """Yield what of which nodes differs from the others, but for subjects that are `known` to be wrong on a node."""
    reported = {(entry.node, entry.finding.subject) for entry in known}
    wrong: dict[tuple[str, str], list[tuple[NodeReading, str, str]]] = {}
    for row in table:
        for node, have, others in _differing(records, row):
            if (node, row.subject) not in reported:
                wrong.setdefault((node, row.group or row.subject), []).append((row, have, others))
    for (node, _), found in wrong.items():
        row, have, others = found[0]
        message = f"{row.words}{row.shown(have)}, on the other nodes {row.shown(others)}"
        lower = list(dict.fromkeys(other.subject for other, *_ in found if other.subject != row.subject))
        message += f"; lower too: {', '.join(lower)}" if lower and row.least is not None else ""
        yield Located(Finding(row.code, Severity.NODE, message, f"{row.advice}{DRAIN}", subject=row.subject), node)


def _differing(records: Mapping[str, Record], row: NodeReading) -> Iterator[tuple[str, str, str]]:
    """Yield each node that has another value, with that and what most have."""
    values = {node: value for node, record in records.items() if (value := row.read(record))}
    if row.least is not None:
        yield from _lower(records, row, values, row.least)
        return
    expected = usual([values.get(node, "") for node in records])
    if expected is None and row.worth is not None and len(values) == len(records) == 2:
        expected = max(values.values(), key=row.worth)
    others = {node: value for node, value in values.items() if value != expected}
    if expected and (len(others) == 1 or not row.alone):
        yield from ((node, value, expected) for node, value in others.items())


def _lower(
    records: Mapping[str, Record], row: NodeReading, values: Mapping[str, str], least: float
) -> Iterator[tuple[str, str, str]]:
    numbers = {node: limit_in(value) for node, value in values.items()}
    most = _most([*numbers.values()], of_two=row.worth is not None)
    if most is None:
        return
    # Without the node's memory nothing is derived from it.
    memory = {node: limit_in(_resource("memory", 0)(records[node])) for node in numbers}
    shares = {node: number / memory[node] for node, number in numbers.items() if memory[node] < math.inf}
    share = _most([*shares.values()], of_two=row.worth is not None) if row.by_memory else None
    expected = next(value for node, value in values.items() if numbers[node] == most)
    for node, value in values.items():
        derived = share is not None and share < math.inf and shares.get(node, 0.0) >= least * share
        if numbers[node] < least * most and not derived:
            yield node, value, expected


def _most(values: Sequence[float], *, of_two: bool) -> float | None:
    """Return what more than half have; of two that differ, where the lower one is known to be wrong, the higher."""
    if len(values) == 2 and of_two:
        return max(values)
    middle = statistics.median_high(values) if values else 0.0
    alike = sum(middle * (1 - ALIKE) <= value <= middle * (1 + ALIKE) for value in values)
    return middle if 2 * alike > len(values) else None


def compare_clocks(records: Mapping[str, Record]) -> Iterator[Located]:
    """Judge clocks against the one in the middle; of two that differ, the controller's time tells which is wrong."""
    now: dict[str, float] = {name: record["now"] for name, record in records.items()}
    middle = sorted(now.values())[len(now) // 2]
    if len(now) == 2:
        started = max(record["started"] for record in records.values())
        if not started:
            return
        middle = min(now.values(), key=lambda each: abs(each - started))
    for name, each in now.items():
        if abs(each - middle) > CLOCK_S:
            message, advice = f"{round(each - middle):+d} s off", f"set the clock (`chronyc makestep`){DRAIN}"
            yield Located(Finding("node-differs", Severity.NODE, message, advice, subject="clock"), name)


def judge_folders(records: Mapping[str, Record], local: str) -> Iterator[Located]:
    """Yield the folders that ranks cannot write into, and shared memory too small for any job."""
    for node, record in records.items():
        refused = {local: text(record, "private"), SHARED_MEMORY: text(record, "shm")}
        for folder, reason in refused.items():
            if reason:
                advice = (
                    f"look at `df {folder}`, `df -i {folder}` and `findmnt -T {folder}`: make room or mount it again"
                )
                yield Located(_full(folder, f"cannot be written: {reason}", advice), node)
        size, free = (_resource(SHARED_MEMORY, at)(record) for at in (0, 1))
        if free and int(free) < LEAST_SHARED_KIB and not refused[SHARED_MEMORY]:
            advice = "remove what earlier jobs left in it (`ls -l /dev/shm`), or mount it larger "
            advice += "(`mount -o remount,size=50% /dev/shm`, /etc/fstab)"
            message = f"{int(free) / 1024:.0f} MiB free of {int(size) / 1024:.0f} MiB"
            yield Located(_full(SHARED_MEMORY, message, advice), node)


def _full(folder: str, message: str, advice: str) -> Finding:
    return Finding("node-full", Severity.NODE, message, f"{advice}{DRAIN}", subject=folder)
