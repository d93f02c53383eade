"""What is known of one job of a run while it goes on, and under which conditions it ran.

What it measured may be replaced meanwhile, and variables may be set before it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lumisite.text import some
from lumisite.validate.lines import Gate, GateOutcome, Sample
from lumisite.validate.probes.probe import Line
from lumisite.validate.run.folder import END
from lumisite.validate.run.script import JobPlan
from lumisite.vendors import all_gpus

#: Files that a job is set aside for that are named; more are counted.
FILES_TOLD = 4
#: Variables that bear on ranks that work together, whatever a cause says; so do those of vendors.
NETWORK = ("NCCL_", "FI_", "GLOO_", "MASTER_")


@dataclass
class LiveJob:
    """What is known of one job while the run goes on. `state` is the last event of its journal (`EVENTS`)."""

    plan: JobPlan
    state: str = "new"
    id: str = ""
    attempt: int = 0
    lost: bool = False
    """Whether Slurm has said that it is over; its marks may still be on their way."""
    done_since: float = 0.0
    collected: set[str] = field(default_factory=set)
    samples: list[Sample] = field(default_factory=list)
    shown: str = ""
    """The group of steps that was last said to have begun, and what was last said of Slurm's."""
    told: str = ""

    @property
    def goes_on(self) -> bool:
        """Whether there is still something to come of it."""
        return self.state not in ("ended", "lost", "aside", "over")

    def gate(self, verdict: GateOutcome, cause: str, advice: str, time: float) -> Gate:
        """Give the line that says how it ended; where it shows nothing, it is of the nodes that the cause names."""
        named = [node for node in self.plan.nodes if verdict == "inconclusive" and node in cause.partition(": ")[0]]
        return Gate(END, verdict, cause, advice, self.plan.run, tuple(sorted(named or self.plan.nodes)), time)


def changed(own: Sequence[Mapping[str, str]], first: Mapping[str, str]) -> str:
    """Say what of a job was changed while it ran, or since the run's `first` job; empty if nothing was.

    `own` is what stood behind each name (of an image, a file of the release, the link to that) as the job went on.
    """
    for later in own[1:]:
        if told := _differences(own[0], later, {*own[0], *later}):
            return f"{told} while the job ran"
    told = _differences(first, own[0], {*first} & {*own[0]}) if own else ""
    return f"{told} since the first job of this run" if told else ""


def _differences(old: Mapping[str, str], new: Mapping[str, str], names: set[str]) -> str:
    other = sorted(name for name in names if old.get(name) != new.get(name))
    links = [name for name in other if name.endswith("/current")]
    told = [f"{link} led to {old.get(link)} and then to {new.get(link)}" for link in links]
    # Behind another release, all files are others.
    told += [f"{name} was changed" for name in other if not any(f"{name}/".startswith(f"{link}/") for link in links)]
    return some(told, FILES_TOLD, ", ")


def with_setters(lines: Sequence[Line], set_before: Sequence[str], *, together: bool) -> list[Line]:
    """Name to what did not pass the variables that were set before lumisite ran (NAME=VALUE …) and that bear on it."""
    network = (*NETWORK, *(one.collectives.prefix for one in all_gpus()))

    def bears(told: str, gate: Gate) -> bool:
        name = re.escape(re.split(r"\W", told, maxsplit=1)[0])
        return (together and told.startswith(network)) or bool(re.search(rf"\b{name}\b", f"{gate.cause} {gate.advice}"))

    def named(line: Line) -> Line:
        if not isinstance(line, Gate) or line.verdict == "pass":
            return line
        more = [told for told in set_before if bears(told, line)]
        return replace(line, advice="; ".join(filter(None, [line.advice, *more])))

    return [named(line) for line in lines]
