"""Judge what each node says of itself in one word or number: a node is wrong that differs from more than half.

All of it goes through one table: a new fact is a word of a record, and a row here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from lumisite.findings.finding import Finding, Severity
from lumisite.machine.host import mount_of, parse_mounts
from lumisite.site.cpu_list import CpusetError, parse_number_list
from lumisite.validate.probes.node.judge_resources import SHARED_MEMORY, limit_in
from lumisite.validate.probes.outcome import DRAIN, Located
from lumisite.validate.probes.probe import Record
from lumisite.validate.probes.records import count_in, number, text, texts, usual, whole

#: A clock counts as wrong that is further from the others, in seconds; tasks of a step start within a few.
CLOCK_S = 30
#: Options of a mount that forbid programs what they may do elsewhere.
FORBIDDING = ("noexec", "nosuid", "nodev")
#: Options that all mounts have in common with their opposite say nothing.
NONE_OF_THEM = "none of noexec, nosuid, nodev"


@dataclass(frozen=True)
class Fact:
    """A fact by the name that people know, how a record says it (empty: not at all), and its unit.

    Of two nodes the one is wrong whose `worth` is lower, where one can be better than the other. A node
    with fewer CPUs shows it in each fact `of_cpus`.
    """

    name: str
    read: Callable[[Record], str]
    unit: str = ""
    worth: Callable[[str], float] | None = None
    of_cpus: bool = False
    advice: str = "set it as on the other nodes"


def _of_facts(key: str) -> Callable[[Record], str]:
    return lambda record: text(record, "facts", key).strip()


def _allowed_cpus(record: Record) -> str:
    with suppress(CpusetError):
        cpus = parse_number_list(text(record, "facts", "cpus_allowed").strip())
        return str(len(cpus)) if cpus else ""
    return ""


def _mount_options(place: str, record: Record) -> str:
    mount = mount_of(tuple(parse_mounts(texts(record, "mounts"))), place)
    return "" if mount is None else ", ".join(word for word in FORBIDDING if word in mount.options) or NONE_OF_THEM


def _few_options(options: str) -> float:
    return -float(sum(word in options.split(", ") for word in FORBIDDING))


FACTS = (
    Fact("kernel", _of_facts("kernel")),
    Fact("online CPUs", _of_facts("cpus"), of_cpus=True),
    Fact("CPUs that Slurm gives the step", _of_facts("cpus_given"), worth=limit_in, of_cpus=True,
         advice="compare CPUs, CoreSpecCount and CpuSpecList of the node in slurm.conf, and `slurmd -C`"),
    Fact("CPUs that the step may run on", _allowed_cpus, worth=limit_in, of_cpus=True,
         advice="compare the node in slurm.conf, and the CPUs of slurmd (`taskset -cp $(pidof slurmd)`)"),
    Fact("CPU frequency limit", _of_facts("cpu_limit_khz"), " kHz", limit_in),
    Fact("CPU quota", _of_facts("cpu_allowed"), " % of one CPU", limit_in),
    Fact("CPU frequency governor", _of_facts("governor")),
    Fact("transparent huge pages", _of_facts("thp")),
)  # fmt: skip


def facts_of(places: Sequence[str]) -> tuple[Fact, ...]:
    """Return all facts, with the mount options of these node-local places and of shared memory."""
    mounts = (
        Fact(f"mount options of {place}", partial(_mount_options, place), worth=_few_options,
             advice=f"mount it as on the other nodes (`findmnt -T {place}`)")
        for place in dict.fromkeys((*places, SHARED_MEMORY))
    )  # fmt: skip
    return (*FACTS, *mounts)


def compare_facts(records: Mapping[str, Record], facts: Sequence[Fact]) -> Iterator[Located]:
    """Yield which facts of which nodes differ; fewer CPUs are one finding, by whatever they show first."""
    fewer_cpus: set[str] = set()
    for fact in facts:
        values = {name: fact.read(record) for name, record in records.items()}
        expected = usual(values.values())
        if expected is None and fact.worth is not None and len(values) == 2 and "" not in values.values():
            expected = max(values.values(), key=fact.worth)
        for name, found in values.items():
            if not found or not expected or found == expected or (fact.of_cpus and name in fewer_cpus):
                continue
            if fact.of_cpus:
                fewer_cpus.add(name)
            have, others = (f"{each}{'' if count_in(each) is None else fact.unit}" for each in (found, expected))
            message, advice = f"{have}, on the other nodes {others}", f"{fact.advice}{DRAIN}"
            yield Located(Finding("node-differs", Severity.NODE, message, advice, subject=fact.name), name)


def compare_clocks(records: Mapping[str, Record]) -> Iterator[Located]:
    """Judge clocks against the one in the middle; of two that differ, the controller's time tells which is wrong."""
    now = {name: number(record, "now") or 0.0 for name, record in records.items()}
    middle = sorted(now.values())[len(now) // 2]
    if len(now) == 2:
        started = max(whole(record, "started") for record in records.values())
        middle = min(now.values(), key=lambda each: abs(each - started)) if started else min(now.values())
        if not started and max(now.values()) - middle > CLOCK_S:
            return
    for name, each in now.items():
        if abs(each - middle) > CLOCK_S:
            message = f"{round(each - middle):+d} s off"
            advice = f"set the clock (`chronyc makestep`){DRAIN}"
            yield Located(Finding("node-differs", Severity.NODE, message, advice, subject="clock"), name)
