"""Judge what each node says of itself in one word or number: a node is wrong that differs from more than half.

All of it goes through one table of readings and one function: a new reading is a word of a record, and a row here.
"""

from __future__ import annotations

import ipaddress
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from lumisite.findings.finding import Finding, Severity
from lumisite.machine.host import mount_of, parse_mounts
from lumisite.site.cpu_list import CpusetError, parse_number_list
from lumisite.validate.probes.outcome import DRAIN, Located
from lumisite.validate.probes.probe import Record
from lumisite.validate.probes.records import count_in, number, text, texts, usual, whole

SHARED_MEMORY = "/dev/shm"  # noqa: S108, where POSIX shared memory is
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
        number = count_in(value)
        if number is None:
            return value
        return f"{number / 1024:.0f} MiB" if self.unit == " MiB" else f"{value}{self.unit}"


def limit_in(value: str) -> float:
    """Return the number that a text is; what is no number is no limit."""
    count = count_in(value)
    return math.inf if count is None else count


def _of_facts(key: str) -> Callable[[Record], str]:
    return lambda record: text(record, "facts", key).strip()


def _allowed_cpus(record: Record) -> str:
    with suppress(CpusetError):
        cpus = parse_number_list(_of_facts("cpus_allowed")(record))
        return str(len(cpus)) if cpus else ""
    return ""


def _mount_options(place: str, record: Record) -> str:
    mount = mount_of(tuple(parse_mounts(texts(record, "mounts"))), place)
    none = f"none of {', '.join(FORBIDDING)}"
    return "" if mount is None else ", ".join(word for word in FORBIDDING if word in mount.options) or none


def _few_options(options: str) -> float:
    return -float(sum(word in options.split(", ") for word in FORBIDDING))


def _of_resources(name: str, at: int, record: Record) -> str:
    """Return a number of the line `NAME NUMBER...`, the last of its name."""
    lines = [words[1:] for line in texts(record, "resources") if (words := line.split()) and words[0] == name]
    return lines[-1][at] if lines and len(lines[-1]) > at else ""


def _of_interface(name: str, key: str) -> Callable[[Record], str]:
    def read(record: Record) -> str:
        value = text(record, "interfaces", name, key)
        return value if count_in(value) is not None else ""

    return read


def _networks(name: str, record: Record) -> str:
    found: list[str] = []
    for word in text(record, "interfaces", name, "addresses").split():
        with suppress(ValueError):
            found.append(str(ipaddress.ip_interface(word).network))
    return " ".join(sorted(found))


_CPUS = partial(NodeReading, group="CPUs")
FACTS = (
    NodeReading("kernel", _of_facts("kernel")),
    _CPUS("online CPUs", _of_facts("cpus")),
    _CPUS("CPUs that Slurm gives the step", _of_facts("cpus_given"), worth=limit_in,
          advice="compare CPUs, CoreSpecCount and CpuSpecList of the node in slurm.conf, and `slurmd -C`"),
    _CPUS("CPUs that the step may run on", _allowed_cpus, worth=limit_in,
          advice="compare the node in slurm.conf, and the CPUs of slurmd (`taskset -cp $(pidof slurmd)`)"),
    NodeReading("CPU frequency limit", _of_facts("cpu_limit_khz"), " kHz", worth=limit_in),
    NodeReading("CPU quota", _of_facts("cpu_allowed"), " % of one CPU", worth=limit_in),
    NodeReading("CPU frequency governor", _of_facts("governor")),
    NodeReading("transparent huge pages", _of_facts("thp")),
)  # fmt: skip


def interface_readings(names: Sequence[str]) -> Iterator[NodeReading]:
    """Yield what is compared of each interface."""
    for name in names:
        row = partial(NodeReading, name, group=name, code="node-interface", advice=HARDWARE)
        yield row(read=_of_interface(name, "speed"), unit=" Mb/s", worth=limit_in, words="speed is ")
        yield row(read=_of_interface(name, "mtu"), unit=" bytes", worth=limit_in, words="MTU is ")
        yield row(read=partial(_networks, name), words="address is in ", alone=True,
                  advice="correct the address and the name of the interface (`ip address`)")  # fmt: skip


def readings(places: Sequence[str], local: str, pools: Sequence[str], *, in_memory: bool) -> tuple[NodeReading, ...]:
    """Return all readings but those of interfaces.

    `places` are the node-local file systems, `local` the folder that ranks write into, which may be in memory,
    and `pools` the kinds of huge pages.
    """
    rows = list(FACTS)
    for place in dict.fromkeys((*places, SHARED_MEMORY)):
        rows.append(NodeReading(f"mount options of {place}", partial(_mount_options, place), worth=_few_options,
                            advice=f"mount it as on the other nodes (`findmnt -T {place}`)"))  # fmt: skip
    for name, (title, unit) in LIMITS.items():
        for at, kind in ((1, "hard"), (0, "soft")):
            rows.append(NodeReading(title, partial(_of_resources, name, at), unit, 0.9, limit_in, by_memory=True,
                                group="limits", words=f"{kind} limit is ",
                                advice="compare `systemctl show slurmd | grep Limit`, PropagateResourceLimits of "
                                "slurm.conf and /etc/security/limits.conf; restart slurmd"))  # fmt: skip
    # Files come and go on local disks, and less in memory.
    for folder, least_free in ((SHARED_MEMORY, 0.5), (local, 0.5 if in_memory else 0.25)):
        for at, (what, least) in enumerate((("size", 0.9), ("free", least_free))):
            rows.append(NodeReading(folder, partial(_of_resources, folder, at), " MiB", least, by_memory=True,
                                group=folder, words=f"{what} ", code="node-full",
                                advice=f"look at `df {folder}` there: its mount options, or files that earlier jobs "
                                "left"))  # fmt: skip
    for pool in pools:
        rows.append(NodeReading(pool, partial(_of_resources, pool, 0), "", 0.95, by_memory=True,
                            advice="compare /proc/meminfo and the kernel's command line"))  # fmt: skip
    return tuple(rows)


def pools_of(records: Mapping[str, Record]) -> list[str]:
    """Return the kinds of huge pages that nodes have."""
    words = (line.split()[:1] for record in records.values() for line in texts(record, "resources"))
    return sorted({word for line in words for word in line if word.startswith("hugepages")})


# ---- comparing


def compare(
    records: Mapping[str, Record], rows: Sequence[NodeReading], known: Sequence[tuple[str, str]] = ()
) -> Iterator[Located]:
    """Yield what of which nodes differs from the others; `known` are nodes with a subject of which nothing is said."""
    wrong: dict[tuple[str, str], list[tuple[NodeReading, str, str]]] = {}
    for row in rows:
        for node, have, others in _differing(records, row):
            if (node, row.subject) not in known:
                wrong.setdefault((node, row.group or row.subject), []).append((row, have, others))
    for (node, _), found in wrong.items():
        row, have, others = found[0]
        message = f"{row.words}{row.shown(have)}, on the other nodes {row.shown(others)}"
        lower = list(dict.fromkeys(other.subject for other, *_ in found if other.subject != row.subject))
        message += f"; lower too: {', '.join(lower)}" if lower and row.least is not None else ""
        yield Located(Finding(row.code, Severity.NODE, message, f"{row.advice}{DRAIN}", subject=row.subject), node)


def _differing(records: Mapping[str, Record], row: NodeReading) -> Iterator[tuple[str, str, str]]:
    """Yield each node that has another value, with that and what most have."""
    every = {node: row.read(record) for node, record in records.items()}
    values = {node: value for node, value in every.items() if value}
    if row.least is None:
        expected = usual(every.values())
        if expected is None and row.worth is not None and len(values) == len(records) == 2:
            expected = max(values.values(), key=row.worth)
        others = {node: value for node, value in values.items() if value != expected}
        if expected and (len(others) == 1 or not row.alone):
            yield from ((node, value, expected) for node, value in others.items())
        return
    numbers = {node: limit_in(value) for node, value in values.items()}
    most = _most(list(numbers.values()), of_two=row.worth is not None)
    if most is None:
        return
    shares = {node: _share(number, records[node]) for node, number in numbers.items()} if row.by_memory else {}
    share = _most(list(shares.values()), of_two=row.worth is not None)
    expected = next(value for node, value in values.items() if numbers[node] == most)
    for node, value in values.items():
        derived = share is not None and share < math.inf and shares[node] >= row.least * share
        if numbers[node] < row.least * most and not derived:
            yield node, value, expected


def _share(number: float, record: Record) -> float:
    """Return a number as a share of the node's memory, infinite where that is not known: nothing is derived then."""
    memory = count_in(_of_resources("memory", 0, record))
    return number / memory if memory else math.inf


def _most(values: Sequence[float], *, of_two: bool) -> float | None:
    """Return what more than half have; of two that differ, where the lower one is known to be wrong, the higher."""
    if len(values) == 2 and of_two:
        return max(values)
    middle = statistics.median_high(values) if values else 0.0
    alike = sum(middle * (1 - ALIKE) <= value <= middle * (1 + ALIKE) for value in values)
    return middle if 2 * alike > len(values) else None


def compare_clocks(records: Mapping[str, Record]) -> Iterator[Located]:
    """Judge clocks against the one in the middle; of two that differ, the controller's time tells which is wrong."""
    now = {name: number(record, "now") or 0.0 for name, record in records.items()}
    middle = sorted(now.values())[len(now) // 2]
    if len(now) == 2:
        started = max(whole(record, "started") for record in records.values())
        if not started:
            return
        middle = min(now.values(), key=lambda each: abs(each - started))
    for name, each in now.items():
        if abs(each - middle) > CLOCK_S:
            advice = f"set the clock (`chronyc makestep`){DRAIN}"
            yield Located(
                Finding("node-differs", Severity.NODE, f"{round(each - middle):+d} s off", advice, subject="clock"),
                name,
            )
