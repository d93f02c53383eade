"""Maintenances by chance: ln x = shift + N(0, .5 c^2) per job + N(0, .3 c^2) per node set + N(0, .2 c^2) per day.

Half of the variance is common to jobs of a day and of a node set. Two node sets by turns; 10 jobs on three days before,
5 on one day after, 5 on another day to confirm. Each metric has chances of its own.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lumisite.validate.lines import State
from lumisite.validate.samples import JobValues, Recorded, Series
from lumisite.validate.verdict.slow_nodes import slow_nodes
from lumisite.validate.verdict.system import SystemVerdict, Terms, judge_system

SETS = (("nid1", "nid2"), ("nid3", "nid4"))
DAY_S = 86400
#: The noise of twelve metrics of a site: six quiet ones, four usual ones, two loud ones.
TWELVE = (*[0.01] * 6, *[0.02] * 4, *[0.03] * 2)
#: Twenty metrics of lumisite's own probes; the first eight decide.
DECIDING = (
    "ddp/samples_per_s/compute/1g",
    "ddp/samples_per_s/comm/1n",
    "ddp/samples_per_s/comm/2n",
    "collectives/all_reduce_busbw/1MiB/2n",
    "collectives/all_reduce_busbw/128MiB/1n",
    "collectives/all_reduce_busbw/128MiB/2n",
    "pairs/send_recv_bw/256MiB/2n",
    "communicators/first_group_s/2n",
)
TWENTY = (
    *DECIDING,
    *(f"ddp/step_time_p{percent}_s/comm/{shape}" for percent in (50, 90, 99) for shape in ("1n", "2n")),
    *(f"collectives/all_gather_busbw/{size}/2n" for size in ("16MiB", "128MiB", "1GiB")),
    *(f"collectives/reduce_scatter_busbw/{size}/2n" for size in ("16MiB", "128MiB", "1GiB")),
)


@dataclass(frozen=True)
class World:
    """What is simulated: noise `c` of one job, a `drop` after the change, and `strays`: jobs before that are 30 % slow."""

    c: float
    drop: float = 0.0
    strays: float = 0.0
    before: int = 10


def maintenance(
    chance: random.Random, worlds: Sequence[World], names: Sequence[str] = (), after: int = 10
) -> SystemVerdict:
    """Judge one maintenance with so many jobs after, with a metric for each world."""
    sides: tuple[dict[str, Series], dict[str, Series]] = ({}, {})
    for number, world in enumerate(worlds):
        name = names[number] if names else f"m{number}"
        old, new = _jobs(chance, world)
        for side, jobs in zip(sides, (old, new[:after]), strict=True):
            side[name] = Series(name, "higher", tuple(jobs))
    before, later = map(Recorded, sides)
    return judge_system(before, later, Terms())


def verdicts(
    worlds: Sequence[World], trials: int, seed: str, names: Sequence[str] = (), after: int = 10
) -> Counter[State]:
    """Count the verdicts of so many maintenances."""
    chance = random.Random(seed)
    return Counter(maintenance(chance, worlds, names, after).verdict for _ in range(trials))


def rate(wanted: State, worlds: Sequence[World], trials: int, seed: str) -> float:
    """Give the part of `trials` that ends with the wanted verdict."""
    return verdicts(worlds, trials, seed)[wanted] / trials


def _jobs(chance: random.Random, world: World) -> tuple[list[JobValues], list[JobValues]]:
    sets = [chance.gauss(0, math.sqrt(0.3) * world.c) for _ in SETS]
    shift = math.log(1 - world.drop)

    def some(count: int, days: range, shift: float, strays: float) -> list[JobValues]:
        day = {one: chance.gauss(0, math.sqrt(0.2) * world.c) for one in days}
        jobs = []
        for n in range(count):
            when = days[n * len(days) // count]
            stray = math.log(0.7) if strays and chance.random() < strays else 0.0
            value = shift + stray + sets[n % 2] + day[when] + chance.gauss(0, math.sqrt(0.5) * world.c)
            jobs.append(JobValues(f"{when}.{n}", when * DAY_S + n * 600, {SETS[n % 2]: math.exp(value)}))
        return jobs

    after = [*some(5, range(20, 21), shift, 0), *some(5, range(21, 22), shift, 0)]
    return some(world.before, range(3), 0.0, world.strays), after


@dataclass(frozen=True)
class Ring:
    """Nodes that are measured alone and in a ring of pairs, in so many `runs`, the best of five repeats each.

    What disturbs a node only takes time: a half of normal noise, of a size of its own for each node within `noise`.
    Nodes differ for good by 2 %. `cpu` and `link` are the speed of the first node, of itself and of its link.
    """

    nodes: int
    noise: tuple[float, float]
    runs: int = 1
    cpu: float = 1.0
    link: float = 1.0


def named_nodes(chance: random.Random, ring: Ring) -> frozenset[str]:
    """Give the nodes that one validation calls slow."""
    names = [f"n{number}" for number in range(ring.nodes)]
    noise = {name: chance.uniform(*ring.noise) for name in names}
    speed = {name: math.exp(chance.gauss(0, 0.02)) for name in names}

    def best(*nodes: str) -> float:
        delay = min(max(abs(chance.gauss(0, noise[node])) for node in nodes) for _ in range(5))
        return min(speed[node] for node in nodes) * math.exp(-delay)

    def alone(name: str) -> float:
        return best(name) * (ring.cpu if name == "n0" else 1.0)

    def pair(*nodes: str) -> float:
        return best(*nodes) * (ring.link if "n0" in nodes else 1.0)

    pairs = list(zip(names, [*names[1:], names[0]], strict=True))
    every = []
    for metric in ("gemm", "copy_bw", "all_reduce", "send_recv"):
        together = metric in ("all_reduce", "send_recv")
        jobs = [
            JobValues(
                f"j{run}",
                run,
                {nodes: pair(*nodes) for nodes in pairs} if together else {(n,): alone(n) for n in names},
            )
            for run in range(ring.runs)
        ]
        every.append(Series(metric, "higher", tuple(jobs)))
    return frozenset(slow.node for slow in slow_nodes(every))


def innocents(
    nodes: int, metrics: int, runs: int, seed: str, *, noise: float = 0.03, slow: float = 1.0
) -> tuple[int, int]:
    """Count the validations, each of one job with all nodes, that name a good node, and those that name the first.

    All metrics are of single nodes; the first one is slow by the factor `slow`.
    """
    chance = random.Random(seed)
    names = [(f"n{number}",) for number in range(nodes)]
    wrong = found = 0
    for _ in range(runs):
        every = []
        for metric in range(metrics):
            values: dict[tuple[str, ...], float] = {name: math.exp(chance.gauss(0, noise)) for name in names}
            values[names[0]] *= slow
            every.append(Series(f"m{metric}", "higher", (JobValues("j", 0, values),)))
        named = {one.node for one in slow_nodes(every)}
        wrong += bool(named - {"n0"})
        found += "n0" in named
    return wrong, found


def blame(ring: Ring, trials: int, seed: str) -> tuple[float, float]:
    """Give the parts of `trials` in which the first node is named, and any other."""
    chance = random.Random(seed)
    named = [named_nodes(chance, ring) for _ in range(trials)]
    return sum("n0" in nodes for nodes in named) / trials, sum(bool(nodes - {"n0"}) for nodes in named) / trials
