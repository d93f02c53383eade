"""A slow node is told from a slow system."""

from __future__ import annotations

import math

import pytest

from lumisite.validate.lines import Gate
from lumisite.validate.report.headline import headline
from lumisite.validate.samples import JobValues, Recorded, Series
from lumisite.validate.verdict.nodes import slow_nodes
from lumisite.validate.verdict.system import Terms, judge_system
from tests.support.series import SETS, STEADY, after, codes, per_node, scaled, series, system

Output = pytest.CaptureFixture[str]


def test_a_slow_node_is_told_from_a_slow_system() -> None:
    good, one_slow = [100.0] * 32, [100.0] * 31 + [88.0]
    verdict = system([series(STEADY), per_node(good)], [after(scaled(1.0, 5)), per_node(one_slow, seed=2)])
    assert (verdict.verdict, verdict.exit_code) == ("bad-nodes", 5)
    assert [slow.node for slow in verdict.slow_nodes] == ["n31"]
    assert verdict.slow_nodes[0].below == pytest.approx(0.12, abs=0.02)
    assert verdict.drain == ("scontrol update nodename=n31 state=drain reason='lumisite: slow by gemm'",)


def test_a_node_that_one_value_calls_slow_is_measured_again_and_not_drained() -> None:
    verdict = system([series(STEADY)], [after(scaled(1.0, 5)), per_node([100.0] * 31 + [70.0], runs=1)])
    assert ([slow.node for slow in verdict.slow_nodes], verdict.drain) == (["n31"], ())
    twice = system([series(STEADY)], [after(scaled(1.0, 5)), per_node([100.0] * 31 + [70.0], runs=2)])
    assert len(twice.drain) == 1


def test_a_pair_with_a_node_that_has_a_finding_says_nothing_of_its_partner() -> None:
    """n2's quota is halved, and the one other pair of n3 was disturbed for a moment: it is n3 in both of its pairs."""
    pairs: dict[tuple[str, ...], float] = {("n1", "n2"): 5.0, ("n2", "n3"): 5.0, ("n3", "n4"): 6.0, ("n1", "n4"): 10.0}
    pairs |= {("n4", "n5"): 10.1, ("n1", "n5"): 9.9}
    measured = Series("pairs/send_recv_bw/2MiB/2n", "higher", (JobValues("r1", 1.0, pairs),))
    assert [slow.node for slow in slow_nodes([measured])] == ["n2", "n3"]
    assert slow_nodes([measured], bad=["n2"]) == ()
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
    assert (enough.verdict, enough.exit_code) == ("bad-nodes", 5)
    few = system([series(STEADY), per_node([100.0] * 10)], [Series("m", "higher", tuple(jobs[:5])), nodes])
    assert (few.verdict, few.exit_code, few.metrics[1].verdict) == ("bad-nodes", 5, "inconclusive")
    behind = "jobs on other nodes are needed to judge the system"
    assert headline(few) == f"BAD-NODES: n9 is 19 % slower than the others; {behind}"
    assert few.metrics[1].findings[-1].message == "3 of the deciding jobs ran on bad nodes"


def test_a_set_that_is_far_slower_than_the_other_is_a_node_and_not_the_system() -> None:
    mixed = [STEADY[n] * (0.25 if n % 2 == 0 else 1.0) for n in range(5)]
    first = system([series(STEADY)], [series(mixed, at=100)])
    assert (first.metrics[0].verdict, first.exit_code) == ("inconclusive", 4)
    only = first.metrics[0].findings[-1]
    assert (only.code, only.message) == ("metric-bad-nodes", "only on n1, n2, not on n3, n4: a node, not the system")
    assert only.nodes == ("n1", "n2", "n3", "n4")
    # Nor is it fine where fewer than half of the jobs ran there.
    few = [STEADY[n] * (0.25 if n % 2 else 1.0) for n in range(5)]
    assert system([series(STEADY)], [series(few, at=100)]).exit_code == 4
    # One slow job is a stray, with a good one on the same nodes or without.
    assert system([series(STEADY)], [series([*STEADY[:3], 25.0, 100.0], at=100)]).exit_code == 0
    assert system([series(STEADY)], [series([*STEADY[:4], 25.0], sets=(*SETS, ("n9",)), at=100)]).exit_code == 0
    # More of the same does not make it the system.
    again = [STEADY[n] * (0.25 if n % 2 == 0 else 1.0) for n in range(10)]
    more = system([series(STEADY)], [series(again, at=100)])
    assert (more.exit_code, more.metrics[0].verdict) == (4, "inconclusive")


def test_a_set_is_told_apart_in_noise_too() -> None:
    noisy = [value * (1.08 if n % 2 else 0.92) for n, value in enumerate(STEADY)]
    mixed = [STEADY[n] * (0.25 if n % 2 == 0 else 1.0) for n in range(5)]
    found = system([series(noisy)], [series(mixed, at=100)]).metrics[0]
    assert found.noise is not None
    assert found.noise > 0.05
    assert found.findings[-1].nodes == ("n1", "n2", "n3", "n4")


def test_a_system_that_is_slower_on_one_set_than_on_the_other_is_the_system() -> None:
    uneven = [STEADY[n] * (0.7 if n % 2 == 0 else 0.93) for n in range(10)]
    assert system([series(STEADY)], [series(uneven, at=100)]).exit_code == 1


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


@pytest.mark.parametrize(("third", "slow"), [(97.0, []), (99.5, ["n3"])])
def test_of_few_nodes_one_is_slow_only_where_all_others_of_the_majority_are_alike(
    third: float, slow: list[str]
) -> None:
    verdict = system([], [per_node([100.0, 100.0, third, 90.5], runs=16, noise=0.0)])
    assert [one.node for one in verdict.slow_nodes] == slow


def test_equal_nodes_are_taken_to_have_some_noise() -> None:
    (slow,) = system([], [per_node([1.0] * 9 + [0.94], noise=0.0)]).slow_nodes
    assert slow.z == pytest.approx(math.log(0.94) / 0.005)
    assert system([], [per_node([1.0] * 9 + [0.96], noise=0.0)]).slow_nodes == ()
