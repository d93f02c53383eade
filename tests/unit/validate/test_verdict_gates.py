from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.validate.lines import Gate, GateOutcome, Sample, line_json
from lumisite.validate.verdict.gates import GateVerdict, judge_gates

Output = pytest.CaptureFixture[str]


def gate(
    verdict: GateOutcome, *nodes: str, name: str = "binds", run: str = "", cause: str = "libcxi is missing"
) -> Gate:
    return Gate(name, verdict, cause, "bind it", run or "-".join(nodes), nodes, 100.0)


def judged(*after: Gate, before: Sequence[Gate] = ()) -> GateVerdict:
    (one,) = judge_gates(before, after)
    return one


def test_a_gate_that_passes_passes() -> None:
    one = judged(gate("pass", "n1", "n2"), gate("pass", "n3", "n4"))
    assert (one.verdict, one.runs, one.bad, one.reason, one.causes) == ("pass", 2, 0, "passed in all 2 jobs", ())


def test_a_failure_everywhere_is_the_system_and_causes_are_gathered() -> None:
    one = judged(
        gate("fail", "n1", "n2"), gate("fail", "n3", "n4"), gate("fail", "n3", "n4", cause="a rank hung", run="r9")
    )
    assert (one.verdict, one.nodes, one.reason) == ("fail", (), "failed in 3 of 3 jobs")
    assert [(cause.cause, cause.nodes) for cause in one.causes] == [
        ("libcxi is missing", ("n1", "n2", "n3", "n4")),
        ("a rank hung", ("n3", "n4")),
    ]


@pytest.mark.parametrize(
    ("after", "nodes"),
    [
        # One bad node of five, alone and as the one that bad pairs share.
        ([gate("fail", "n1"), *(gate("pass", f"n{n}") for n in range(2, 6))], ("n1",)),
        ([gate("fail", "n1", "n2"), gate("pass", "n2", "n3"), gate("pass", "n4", "n5")], ("n1",)),
        # A pair of which either may be bad, among good ones.
        ([gate("fail", "n1", "n2"), gate("pass", "n3", "n4"), gate("pass", "n5", "n6")], ("n1", "n2")),
        # Passing alone does not clear a node of a failure between nodes.
        ([gate("fail", "n1", "n2"), gate("pass", "n1"), gate("pass", "n2"), gate("pass", "n3", "n4", "n5")], ("n1", "n2")),
    ],
)  # fmt: skip
def test_nodes_that_explain_every_failure_are_blamed(after: list[Gate], nodes: tuple[str, ...]) -> None:
    one = judged(*after)
    assert (one.verdict, one.nodes) == ("bad-nodes", nodes)
    assert f"only on {','.join(nodes)}" in one.reason


@pytest.mark.parametrize(
    "after",
    [
        # Half of the nodes.
        [gate("fail", "n1"), gate("pass", "n2")],
        # The same node passes and fails.
        [gate("fail", "n1", run="a"), gate("pass", "n1", run="b"), gate("pass", "n2"), gate("pass", "n3")],
        # Two nodes fail together, and each passes with another.
        [gate("fail", "n1", "n2"), gate("pass", "n1", "n3"), gate("pass", "n2", "n4"), gate("pass", "n5", "n6")],
    ],
)
def test_what_no_few_nodes_explain_is_the_system(after: list[Gate]) -> None:
    assert judged(*after).verdict == "fail"


def test_inconclusive_is_no_pass_and_a_failure_wins_over_it() -> None:
    unclear = gate("inconclusive", "n1", cause="no line names the provider")
    one = judged(unclear, gate("pass", "n2"))
    assert (one.verdict, one.reason) == ("inconclusive", "not shown in 1 of 2 jobs")
    assert one.causes[0].cause == "no line names the provider"
    assert judged(unclear, gate("fail", "n2")).verdict == "fail"


def test_what_failed_before_is_said() -> None:
    both = judged(gate("fail", "n1"), before=[gate("fail", "n1")])
    assert (both.verdict, both.failed_before) == ("fail", True)
    assert both.reason.endswith("it failed before the change too")
    assert judged(gate("pass", "n1"), before=[gate("fail", "n1")]).reason.endswith("it failed before the change")


def test_a_gate_that_passed_before_must_be_asked_after() -> None:
    (one,) = judge_gates([gate("pass", "n1")], [])
    assert (one.verdict, one.reason) == ("inconclusive", "passed before, and was not asked after")
    # A job that was lost before says nothing about gates after.
    assert judge_gates([gate("fail", "n1", name="job")], []) == ()


# ---------------------------------------------------------------- with samples, by the command


def samples(start: int, count: int, factor: float = 1.0) -> list[str]:
    chance = random.Random(start)
    return [
        line_json(
            Sample("m", factor * chance.lognormvariate(4, 0.01), "higher", f"{start}.{n}", (f"n{n % 4}",), start + n * 1e5)
        )
        for n in range(count)
    ]  # fmt: skip


def verdict(after_gates: Sequence[Gate], capsys: Output, factor: float = 1.0) -> tuple[int, str]:
    Path("before").write_text("\n".join([*samples(0, 10), line_json(gate("pass", "n1"))]))
    Path("after").write_text("\n".join([*samples(1_000_000, 10, factor), *map(line_json, after_gates)]))
    code = main(["verdict", "--before", "before", "--after", "after"])
    return code, capsys.readouterr().out


def test_a_failed_gate_fails_whatever_the_numbers_say(capsys: Output) -> None:
    code, out = verdict([gate("fail", "n1")], capsys)
    assert (code, out.split("\n")[0]) == (1, "FAIL")
    assert "  binds: libcxi is missing (n1)\n    bind it\n" in out
    assert "no drop of 4.9 % or more" in out


def test_an_inconclusive_gate_is_exit_4_unless_something_failed(capsys: Output) -> None:
    assert verdict([gate("inconclusive", "n1")], capsys)[0] == 4
    assert verdict([gate("inconclusive", "n1")], capsys, factor=0.5)[0] == 1
    assert verdict([], capsys)[0] == 4
    assert verdict([gate("pass", "n1")], capsys)[0] == 0


def test_a_gate_that_fails_on_few_nodes_is_exit_5_and_drains_them(capsys: Output) -> None:
    code, out = verdict([gate("fail", "n8"), *(gate("pass", f"n{n}") for n in range(4))], capsys)
    assert (code, out.split("\n")[0]) == (5, "BAD-NODES")
    assert "  scontrol update nodename=n8 state=drain reason='lumisite: failed binds'\n" in out


def test_jobs_on_a_bad_node_do_not_judge_the_system(capsys: Output) -> None:
    """n0 fails a gate and is slow; the others are as fast as before."""
    slow = [line.replace('"run": "1000000.', '"run": "n0.') for line in samples(1_000_000, 20) if '"n0"' in line]
    halved = [json.dumps({**json.loads(line), "value": 30.0}) for line in slow]
    good = [line for line in samples(1_000_000, 20) if '"n0"' not in line]
    gates = [gate("fail", "n0"), *(gate("pass", f"n{n}") for n in range(1, 4))]
    Path("before").write_text("\n".join(samples(0, 10)))
    Path("after").write_text("\n".join([*halved, *good, *map(line_json, gates)]))
    assert main(["verdict", "--before", "before", "--after", "after"]) == 5
    assert "(15)" in capsys.readouterr().out
