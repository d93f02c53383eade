"""Find slow nodes among the others, from metrics that were measured on each node or on each pair of nodes."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist

from lumisite.validate.lines import Better
from lumisite.validate.samples import JobValues, Series
from lumisite.validate.verdict.stats import spread

#: The chance that some good node is called slow, by all nodes and all metrics of a maintenance together. It is half of
#: what is promised, as noise is not quite normal.
INNOCENT_ALPHA = 0.005
#: Flag a node this much below the median at least.
BELOW_LIMIT = 0.05
#: What the median absolute deviation of few nodes errs by: limits are larger by this over their number (simulated).
MAD_ERROR = 16
#: Up to so many nodes tell too little of their noise: one of them must be slower in each of its runs (by
#: BELOW_IN_ONE_RUN, over the root of their number), and as far from most others as APART times their range, and below
#: FEW_Z.
FEW_NODES = 8
FEW_Z = -3.5
BELOW_IN_ONE_RUN = 0.20
APART = 3
#: Nodes that are needed to call one of them slow.
LEAST_NODES = 3
#: Values of a node that are needed to drain it, and of pairs to call one of their nodes slow: one may be noise.
LEAST_VALUES = 2


@dataclass(frozen=True)
class SlowNode:
    """A node that is slow by one metric: `below` is the part that it is below the median of all nodes.

    `values` is how many of its own it is slow by.
    """

    node: str
    metric: str
    below: float
    z: float
    values: int = LEAST_VALUES


def is_per_node(series: Series) -> bool:
    """Return whether one run measures the metric on each node, or each pair, and not once for the job."""
    return any(len(job.values) > 1 for job in series.jobs)


def slow_nodes(
    every: Iterable[Series],
    least: Callable[[str], float] = lambda _metric: BELOW_LIMIT,
    bad: Collection[str] = (),
) -> tuple[SlowNode, ...]:
    """Return the slow nodes, by node and metric: those below the median by more than `least` for the metric.

    What was measured with a node that is `bad` for another reason says nothing of its partner. Nothing here depends on
    the order of samples.
    """
    good = [_without(series, bad) for series in every]
    scored = [(series, node_scores(series)) for series in good if is_per_node(series)]
    tested = sum(len(scores) for _, scores in scored)
    found = [
        slow
        for series, scores in scored
        for slow in _slow(series, scores, z_limit(len(scores), tested), max(BELOW_LIMIT, least(series.metric)))
    ]
    return tuple(sorted(found, key=lambda slow: (slow.node, slow.metric)))


def _without(series: Series, bad: Collection[str]) -> Series:
    """Return a series without the values of some nodes and of pairs with them."""
    if not bad:
        return series
    jobs = []
    for job in series.jobs:
        values = {nodes: value for nodes, value in job.values.items() if not {*nodes}.intersection(bad)}
        jobs += [replace(job, values=values)] if values else []
    return replace(series, jobs=tuple(jobs))


def z_limit(nodes: int, tested: int) -> float:
    """Return the robust z below which a node is slow, of so many nodes, where `tested` values share the chance.

    >>> round(z_limit(3000, 6 * 3000), 2), round(z_limit(32, 32), 2)
    (-5.03, -5.41)
    """
    return FEW_Z if nodes <= FEW_NODES else NormalDist().inv_cdf(INNOCENT_ALPHA / tested) * (1 + MAD_ERROR / nodes)


def job_value(job: JobValues, better: Better) -> float:
    """Return the one number of a job: its value, or the median over its nodes, each as good as the best of its pairs.

    A slow node spoils two pairs of a ring: among four nodes the median over pairs would fall with it, as if the system
    were slow.
    """
    if len(job.values) == 1:
        return next(iter(job.values.values()))
    return statistics.median(_best_of_pairs(job.values, better).values())


def node_scores(series: Series) -> dict[str, float]:
    """Return each node's score over all runs: a logarithm, higher is better."""
    scores: dict[str, list[float]] = {}
    for job in series.jobs:
        for node, score in _run_scores(job, series.better).items():
            scores.setdefault(node, []).append(score)
    return {node: statistics.median(found) for node, found in scores.items()}


def _run_scores(job: JobValues, better: Better) -> dict[str, float]:
    sign = 1.0 if better == "higher" else -1.0
    return {node: sign * math.log(value) for node, value in _best_of_pairs(job.values, better).items()}


def _slow(series: Series, scores: Mapping[str, float], limit: float, least: float) -> Iterator[SlowNode]:
    if len(scores) < LEAST_NODES:
        return
    middle = statistics.median(scores.values())
    noise = spread([*scores.values()])
    values = Counter(node for job in series.jobs for nodes in job.values for node in nodes)
    of_pairs = any(len(nodes) > 1 for job in series.jobs for nodes in job.values)
    for node, score in scores.items():
        z, below = (score - middle) / noise, 1 - math.exp(score - middle)
        is_told_apart = not of_pairs or values[node] >= LEAST_VALUES
        if (
            z < limit
            and below > least
            and is_told_apart
            and (len(scores) > FEW_NODES or _is_apart(node, series, scores))
        ):
            yield SlowNode(node, series.metric, below, z, values[node])


def _is_apart(node: str, series: Series, middles: Mapping[str, float]) -> bool:
    """Return whether a node among few is slow in all its runs, and far from the others, who are close to each other.

    The noise of few nodes is unknown, and that of one may be ten times that of the others.
    """
    others = sorted((score for other, score in middles.items() if other != node), reverse=True)
    majority = others[: len(middles) // 2 + 1]
    if majority[-1] - middles[node] < APART * (majority[0] - majority[-1]):
        return False
    runs = [scores for job in series.jobs if node in (scores := _run_scores(job, series.better))]
    least = math.log(1 - max(BELOW_LIMIT, BELOW_IN_ONE_RUN / math.sqrt(len(runs))))
    return all(scores[node] - statistics.median(scores.values()) < least for scores in runs)


def _best_of_pairs(values: Mapping[tuple[str, ...], float], better: Better) -> dict[str, float]:
    """Return for each node of one run the best value of the pairs that it was part of."""
    choose = max if better == "higher" else min
    best: dict[str, float] = {}
    for nodes, value in values.items():
        for node in nodes:
            best[node] = choose(value, best.get(node, value))
    return best
