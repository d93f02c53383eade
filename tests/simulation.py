"""Maintenances by chance: ln x = shift + N(0, .5 c^2) per job + N(0, .3 c^2) per node set + N(0, .2 c^2) per day.

Two node sets by turns; 10 jobs on three days before, 5 on one day after, 5 on another day to confirm.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from lumisite.validate.lines import State
from lumisite.validate.samples import JobValues, Recorded, Series
from lumisite.validate.verdict.nodes import slow_nodes
from lumisite.validate.verdict.system import Terms, judge_system

SETS = (("nid1", "nid2"), ("nid3", "nid4"))
DAY_S = 86400
#: The noise of twelve metrics of a site: six quiet ones, four usual ones, two loud ones.
TWELVE = (*[0.01] * 6, *[0.02] * 4, *[0.03] * 2)


@dataclass(frozen=True)
class World:
    """What is simulated: noise `c` of one job, a `drop` after the change, and `strays`: jobs before that are 30 % slow."""

    c: float
    drop: float = 0.0
    strays: float = 0.0
    before: int = 10


def maintenance(chance: random.Random, worlds: Sequence[World]) -> State:
    """Judge one maintenance, with a metric for each world."""
    sides: tuple[dict[str, Series], dict[str, Series]] = ({}, {})
    for number, world in enumerate(worlds):
        name = f"m{number}"
        for side, jobs in zip(sides, _jobs(chance, world), strict=True):
            side[name] = Series(name, "higher", tuple(jobs))
    before, after = (Recorded(side) for side in sides)
    return judge_system(before, after, Terms()).verdict


def rate(wanted: State, worlds: Sequence[World], trials: int, seed: str) -> float:
    """Give the part of `trials` that ends with the wanted verdict."""
    chance = random.Random(seed)
    return sum(maintenance(chance, worlds) == wanted for _ in range(trials)) / trials


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


def blame(ring: Ring, trials: int, seed: str) -> tuple[float, float]:
    """Give the parts of `trials` in which the first node is named, and any other."""
    chance = random.Random(seed)
    named = [named_nodes(chance, ring) for _ in range(trials)]
    return sum("n0" in nodes for nodes in named) / trials, sum(bool(nodes - {"n0"}) for nodes in named) / trials
