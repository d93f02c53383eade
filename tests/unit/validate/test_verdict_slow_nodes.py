"""A slow node is told from a slow system."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from lumisite.site.scalars import Line
from lumisite.site.validation import MetricRule
from lumisite.validate.lines import Gate
from lumisite.validate.report.headline import headline
from lumisite.validate.samples import JobValues, Recorded, Series
from lumisite.validate.verdict.slow_nodes import slow_nodes
from lumisite.validate.verdict.system import Terms, judge_system
from tests.support.series import SETS, STEADY, after, codes, per_node, scaled, series, system


def rule(metric: str, threshold: float) -> MetricRule:
    return MetricRule(metric=Line(metric), threshold=threshold)


def test_a_slow_node_is_told_from_a_slow_system() -> None:
    good, one_slow = [100.0] * 32, [100.0] * 31 + [88.0]
    old = Recorded({"m": series(STEADY), "gemm": per_node(good)})
    now = Recorded({"m": after(scaled(1.0, 5)), "gemm": per_node(one_slow, seed=2)})
    for terms in (Terms(), Terms(deciding=("m",))):  # what decides nothing of the system tells nodes all the same
        verdict = judge_system(old, now, terms)
        assert (verdict.verdict, verdict.exit_code) == ("bad-nodes", 5)
        assert [slow.node for slow in verdict.slow_nodes] == ["n31"]
        assert verdict.slow_nodes[0].below == pytest.approx(0.12, abs=0.02)
        assert verdict.drain == ("scontrol update nodename=n31 state=drain reason='lumisite: slow by gemm'",)
    fine = judge_system(old, now, Terms((rule("gemm", 0.2),), ("m",)))
    assert (fine.slow_nodes, fine.drain, fine.exit_code) == ((), (), 0)


@pytest.mark.parametrize(
    ("speeds", "runs", "noise", "slow", "drained"),
    [
        # What one value alone calls slow is measured again, and not drained.
        ([100.0] * 31 + [70.0], 1, 0.01, ["n31"], 0),
        ([100.0] * 31 + [70.0], 2, 0.01, ["n31"], 1),
        # Of few nodes one is slow only where all others of the majority are alike.
        ([100.0, 100.0, 97.0, 90.5], 16, 0.0, [], 0),
        ([100.0, 100.0, 99.5, 90.5], 16, 0.0, ["n3"], 1),
        # Equal nodes are taken to have some noise.
        ([1.0] * 9 + [0.94], 3, 0.0, ["n9"], 1),
        ([1.0] * 9 + [0.96], 3, 0.0, [], 0),
    ],
)
def test_a_node_is_slow_among_the_others(
    speeds: list[float], runs: int, noise: float, slow: list[str], drained: int
) -> None:
    verdict = system([], [per_node(speeds, runs=runs, noise=noise)])
    assert ([one.node for one in verdict.slow_nodes], len(verdict.drain)) == (slow, drained)
    if slow == ["n9"]:
        assert verdict.slow_nodes[0].z == pytest.approx(math.log(0.94) / 0.005)
    # The same where lower is better.
    times = replace(per_node([1 / speed for speed in speeds], runs=runs, noise=noise), better="lower")
    assert [one.node for one in slow_nodes([times])] == slow


def test_a_pair_with_a_node_that_has_a_finding_says_nothing_of_its_partner() -> None:
    """n2's quota is halved, and the one other pair of n3 was disturbed for a moment: it is n3 in both of its pairs."""
    pairs: dict[tuple[str, ...], float] = {("n1", "n2"): 5.0, ("n2", "n3"): 5.0, ("n3", "n4"): 6.0, ("n1", "n4"): 10.0}
    pairs |= {("n4", "n5"): 10.1, ("n1", "n5"): 9.9}
    measured = Series("pairs/send_recv_bw/2MiB/2n", "higher", (JobValues("r1", 1.0, pairs),))
    assert [slow.node for slow in slow_nodes([measured])] == ["n2", "n3"]
    assert slow_nodes([measured], bad=["n2"]) == ()
    others = per_node([100.0] * 30 + [80.0, 60.0])
    assert [slow.node for slow in slow_nodes([others], bad=["n31"])] == ["n30"]
    every = ("n1", "n2", "n3", "n4", "n5")
    text = "CPU quota: 50 %"
    quota = Gate("node", "fail", text, "raise it", "r1", ("n2",), 1.0, asked=every, location="n2")
    verdict = judge_system(Recorded({}), Recorded({measured.metric: measured}, (quota,)), Terms())
    assert (verdict.bad_nodes, verdict.slow_nodes) == (["n2"], ())
    (line,) = verdict.drain
    assert line == "scontrol update nodename=n2 state=drain reason='lumisite: CPU quota: 50 %'"


def test_few_runs_on_nodes_that_are_as_fast_as_before_tell_nothing_of_the_system_and_keep_nothing_open() -> None:
    steady = [series(STEADY), per_node([100.0] * 32)]
    same = system(steady, [after(scaled(1.0, 5)), per_node([100.0] * 32, seed=2)])
    nodes = same.metrics[0]
    assert (nodes.verdict, nodes.decides, codes(nodes)) == ("inconclusive", False, ["metric-few-jobs"])
    assert same.verdict == "pass"


def test_all_nodes_slower_is_the_system() -> None:
    verdict = system([per_node([100.0] * 32)], [per_node([90.0] * 32, seed=2)])
    assert verdict.slow_nodes == ()
    assert (verdict.verdict, verdict.exit_code) == ("inconclusive", 4)
    assert codes(verdict.metrics[0]) == ["metric-few-jobs", "metric-few-jobs"]
    assert verdict.metrics[0].reason.startswith("all nodes together are slower by ")
    runs = system([per_node([100.0] * 32, runs=10)], [per_node([90.0] * 32, seed=2, runs=5)])
    assert runs.metrics[0].verdict == "unconfirmed"


def test_jobs_on_a_slow_node_are_left_out() -> None:
    nodes = per_node([100.0] * 9 + [80.0], seed=3)
    slow_set, fine = ("n9", "n1"), ("n5", "n6")
    jobs = [
        JobValues(f"a{n}", 100 + n, {(slow_set if n < 3 else fine): 85.0 if n < 3 else 100.0 + n / 10})
        for n in range(8)
    ]
    enough = system([series(STEADY), per_node([100.0] * 10)], [Series("m", "higher", tuple(jobs)), nodes])
    assert (enough.verdict, enough.exit_code, enough.metrics[1].verdict) == ("bad-nodes", 5, "pass")
    few = system([series(STEADY), per_node([100.0] * 10)], [Series("m", "higher", tuple(jobs[:5])), nodes])
    assert (few.verdict, few.exit_code, few.metrics[1].verdict) == ("bad-nodes", 5, "inconclusive")
    behind = "jobs on other nodes are needed to judge the system"
    assert headline(few) == f"BAD-NODES: n9 is 19 % slower than the others; {behind}"
    assert few.metrics[1].findings[-1].message == "3 of the deciding jobs ran on bad nodes"


def every_other(slow: float, fast: float = 1.0, count: int = 5, first: int = 0) -> list[float]:
    return [STEADY[n] * (slow if n % 2 == first else fast) for n in range(count)]


#: Jobs that differ by more than a twentieth.
NOISY = [value * (1.08 if n % 2 else 0.92) for n, value in enumerate(STEADY)]


@pytest.mark.parametrize(
    ("before", "new", "sets", "code", "told_apart"),
    [
        # One set is far slower than the other, in noise too: a node, and not the system.
        (STEADY, every_other(0.25), SETS[:2], 4, True),
        (NOISY, every_other(0.25), SETS[:2], 4, True),
        # More of the same does not make it the system, nor is it fine where fewer than half of the jobs ran there.
        (STEADY, every_other(0.25, count=10), SETS[:2], 4, True),
        (STEADY, every_other(0.25, first=1), SETS[:2], 4, True),
        # One slow job is a stray, with a good one on the same nodes or without.
        (STEADY, [*STEADY[:3], 25.0, 100.0], SETS[:2], 0, False),
        (STEADY, [*STEADY[:4], 25.0], (*SETS, ("n9",)), 0, False),
        # The system is slower on one set than on the other.
        (STEADY, every_other(0.7, 0.93, count=10), SETS[:2], 1, False),
    ],
)
def test_a_set_that_is_far_slower_than_the_other_is_a_node_and_not_the_system(
    before: list[float], new: list[float], sets: Sequence[tuple[str, ...]], code: int, told_apart: bool
) -> None:
    verdict = system([series(before)], [series(new, sets=sets, at=100)])
    last = verdict.metrics[0].findings[-1]
    assert (verdict.exit_code, last.code == "metric-bad-nodes") == (code, told_apart)
    if told_apart:
        assert re.fullmatch("only on n., n., not on n., n.: a node, not the system", last.message)
        assert last.nodes == ("n1", "n2", "n3", "n4")
        assert verdict.metrics[0].verdict == "inconclusive"


def test_a_node_slow_before_does_not_spoil_the_baseline() -> None:
    jobs = [
        JobValues(f"b{n}", n, {(("n9",) if n % 2 else ("n3",)): (80.0 if n % 2 else 100.0) + n / 10}) for n in range(12)
    ]
    verdict = system(
        [Series("m", "higher", tuple(jobs)), per_node([100.0] * 9 + [80.0])],
        [after(scaled(0.88, 10)), per_node([100.0] * 10)],
    )
    assert verdict.metrics[1].jobs_before == 6
    assert verdict.exit_code == 1


def test_a_slow_node_among_four_does_not_look_like_a_slow_system() -> None:
    """It spoils two of the ring's four pairs, and with them the median over pairs."""

    def ring(run: str, at: int, slow: float) -> Series:
        pairs: dict[tuple[str, ...], float] = {
            ("n0", "n1"): 100.0,
            ("n1", "n2"): slow,
            ("n2", "n3"): slow,
            ("n0", "n3"): 100.3,
        }
        return Series("pairs", "higher", (JobValues(run, at, pairs),))

    verdict = system([ring("b", 1, 100.1)], [ring("a", 100, 60.0)])
    assert [slow.node for slow in verdict.slow_nodes] == ["n2"]
    assert verdict.metrics[0].change == pytest.approx(0, abs=0.01)
    assert verdict.exit_code == 5
