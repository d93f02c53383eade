from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.cli.validate import print_run
from lumisite.findings.finding import Severity
from lumisite.validate.lines import Gate, GateOutcome, Sample, line_json
from lumisite.validate.run.folder import Run
from lumisite.validate.samples import Recorded
from lumisite.validate.verdict.gates import GateVerdict, judge_gates
from lumisite.validate.verdict.system import Terms, judge_system
from tests.support.requests import LOADED, a_request
from tests.support.series import codes

Output = pytest.CaptureFixture[str]
EIGHT = tuple(f"n{number}" for number in range(1, 9))


def gate(
    verdict: GateOutcome, *nodes: str, name: str = "binds", run: str = "", cause: str = "libcxi is missing"
) -> Gate:
    return Gate(name, verdict, cause, "bind it", run or "-".join(nodes), nodes, 100.0)


def judged(*after: Gate, before: Sequence[Gate] = ()) -> GateVerdict:
    (one,) = judge_gates(before, after)
    return one


def test_a_gate_that_passes_passes() -> None:
    one = judged(gate("pass", "n1", "n2"), gate("pass", "n3", "n4"))
    assert (one.verdict, one.runs, one.bad, codes(one), one.causes) == ("pass", 2, 0, ["gate-passed"], ())


def test_a_failure_everywhere_is_the_system_and_causes_are_gathered() -> None:
    one = judged(
        gate("fail", "n1", "n2"), gate("fail", "n3", "n4"), gate("fail", "n3", "n4", cause="a rank hung", run="r9")
    )
    assert (one.verdict, one.nodes, codes(one)) == ("fail", (), ["gate-failed"])
    assert one.reason == "failed in 3 of 3 jobs"
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
        # Having passed among more nodes does, whatever came later.
        ([gate("fail", "n1", "n2"), gate("pass", "n1", "n3", "n4"), gate("pass", "n1"), gate("pass", "n5")], ("n2",)),
    ],
)  # fmt: skip
def test_nodes_that_explain_every_failure_are_blamed(after: list[Gate], nodes: tuple[str, ...]) -> None:
    one = judged(*after)
    assert (one.verdict, one.nodes) == ("bad-nodes", nodes)
    assert one.findings[0].nodes == nodes


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
    assert (one.verdict, codes(one)) == ("inconclusive", ["gate-unclear"])
    assert one.reason == "not answered in 1 of 2 jobs"
    assert one.causes[0].cause == "no line names the provider"
    assert judged(unclear, gate("fail", "n2")).verdict == "fail"


def test_what_failed_before_is_said() -> None:
    both = judged(gate("fail", "n1"), before=[gate("fail", "n1")])
    assert (both.verdict, both.failed_before) == ("fail", True)
    assert both.reason == "failed in 1 of 1 jobs; it failed before the change"
    mended = judged(gate("pass", "n1"), before=[gate("fail", "n1")])
    assert mended.reason == "passed in 1 of 1 jobs; it failed before the change"


def test_a_gate_that_passed_before_must_be_asked_after() -> None:
    (one,) = judge_gates([gate("pass", "n1")], [])
    assert (one.verdict, codes(one)) == ("inconclusive", ["gate-not-run"])
    # A job that was lost before says nothing about gates after.
    assert judge_gates([gate("fail", "n1", name="job")], []) == ()


# ---------------------------------------------------------------- what follows from a bad node

FOUR = ("n1", "n2", "n3", "n4")


def node(
    *bad: str, cause: str = "hsn0 is gone", code: str = "nic-gone", run: str = "r1", asked: tuple[str, ...] = FOUR
) -> list[Gate]:
    if not bad:
        return [gate("pass", *asked, name="node", run=run)]
    failed = [gate("fail", name, name="node", run=run, cause=cause) for name in bad]
    return [replace(one, code=code, location=one.nodes[0], values={"name": one.cause}) for one in failed]


def told(*after: Gate) -> dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]]:
    return {one.gate: (one.verdict, one.nodes, one.follows) for one in judge_gates((), after)}


@pytest.mark.parametrize("state", ["fail", "inconclusive"])
def test_what_fails_on_a_node_that_is_bad_follows_from_it(state: GateOutcome) -> None:
    rest = [gate(state, *FOUR, name="ddp", run="r1"), gate("pass", *FOUR, name="binds", run="r1")]
    verdicts = judge_gates((), [*rest, *node("n3")])
    assert [(one.gate, one.verdict, one.nodes, one.follows) for one in verdicts] == [
        ("node", "bad-nodes", ("n3",), ()),
        ("binds", "pass", (), ()),
        ("ddp", "inconclusive", (), ("n3",)),
    ]
    assert verdicts[2].causes == ()
    # In another job, or on other nodes, it is a cause of its own.
    assert told(*node("n3"), gate("fail", *FOUR, name="ddp", run="r2"), *node(run="r2"))["ddp"][0] == "fail"
    pair = gate("fail", "n1", "n2", name="ddp", run="r1")
    assert told(*node("n3"), pair, gate("pass", *FOUR, name="x", run="r1"))["ddp"] == ("fail", (), ())


def test_a_bad_node_is_bad_in_several_jobs_and_what_passes_without_it_passes() -> None:
    jobs = [
        *node(run="a", asked=("n1", "n2")), *node("n3", run="b"), gate("pass", "n3", "n4", name="x", run="b"),
        gate("pass", "n1", "n2", name="ddp", run="a"), gate("fail", "n3", "n4", name="ddp", run="b"),
    ]  # fmt: skip
    assert told(*jobs)["node"] == ("bad-nodes", ("n3",), ())
    assert told(*jobs)["ddp"] == ("pass", (), ())
    # It was well at first: that is no excuse.
    assert told(*jobs, *node(run="c", asked=("n3", "n4")))["node"] == ("bad-nodes", ("n3",), ())


def test_the_one_node_of_two_that_an_answer_picks_out_is_bad_and_not_the_system() -> None:
    picked = replace(gate("fail", "n2", name="ddp", run="r1"), asked=("n1", "n2"))
    assert told(picked) == {"ddp": ("bad-nodes", ("n2",), ())}
    (one,) = judge_gates((), [picked])
    assert one.findings[0].severity is Severity.NODE
    # The same on the other node in another job: it is no exception any more.
    other = replace(picked, nodes=("n1",), run="r2")
    assert told(picked, other)["ddp"] == ("fail", (), ())
    assert judged(picked, other).findings[0].severity is Severity.FAULT
    # Where no answer picks a node out, one of two may be chance.
    assert told(gate("fail", "n1", name="ddp"), gate("pass", "n2", name="ddp"))["ddp"][0] == "fail"


def test_half_of_the_nodes_bad_by_one_cause_is_the_system_and_by_two_is_not() -> None:
    rest = [gate("pass", *FOUR, name="binds", run="r1"), gate("fail", *FOUR, name="ddp", run="r1")]
    assert told(*rest, *node("n2", "n3"))["node"] == ("fail", (), ())
    assert told(*rest, *node(*FOUR))["node"][0] == "fail"
    assert told(*rest, *node("n2"), *node("n3", code="folder-gone"))["node"] == ("bad-nodes", ("n2", "n3"), ())
    every = [one for name in FOUR for one in node(name, cause=f"fault {name * 2}x")]
    assert told(*rest, *every)["node"][0] == "fail"


def test_what_follows_has_to_run_on_other_nodes() -> None:
    lines = (gate("fail", *FOUR, name="ddp", run="r1"), *node("n3"))
    verdict = judge_system(Recorded({}, (gate("pass", "n1", name="pairs"),)), Recorded({}, lines), Terms())
    assert {one.gate: codes(one) for one in verdict.gates} == {
        "node": ["gate-failed"], "ddp": ["gate-follows"], "pairs": ["gate-not-run"],
    }  # fmt: skip


@pytest.mark.parametrize("baseline", [True, False])
def test_one_bad_node_of_four_is_exit_5_with_its_cause_first(baseline: bool, capsys: Output) -> None:
    low = [
        line_json(Sample("ddp/samples_per_s/comm/4n", 30.0, "higher", "r1", FOUR, 1e6)),
        line_json(Sample("collectives/gone/4n", 30.0, "higher", "r0", FOUR, 1e6)),
    ]
    lines = [*node("n3"), gate("fail", *FOUR, name="ddp", run="r1", cause="rank 2 hung"), gate("pass", *FOUR, run="r1")]
    Path("after").write_text("\n".join([low[0], *map(line_json, lines)]))
    fast = [
        line.replace("30.0", f"10{n}.0").replace("r1", f"b{n}").replace("r0", f"b{n}")
        for n in range(10)
        for line in low
    ]
    Path("before").write_text("\n".join([*fast, line_json(gate("pass", *FOUR, name="conda"))]))
    words = ["--before", "before"] if baseline else []
    assert main(["report", "after", *words]) == 5
    out = capsys.readouterr().out
    assert "hsn0 is gone" in out
    # What follows is folded into its cause.
    assert "rank 2 hung" not in out
    assert "follows from n3 (nic-gone)" in out
    assert "state=drain reason=" in out
    assert main(["report", "after", *words, "--json"]) == 5
    found = {one["gate"]: one for one in json.loads(capsys.readouterr().out)["verdict"]["gates"]}
    assert [one["cause"] for one in found["ddp"]["findings"]] == ["nic-gone"]
    assert (found["node"]["nodes"], found["ddp"]["follows"], found["ddp"]["causes"]) == (["n3"], ["n3"], [])


def test_without_a_baseline_gates_that_passed_are_enough_and_validate_and_report_agree(
    tmp_path: Path, capsys: Output
) -> None:
    """However many numbers there are of which the site expects nothing."""
    passed = [line_json(gate("pass", *FOUR, name=name, run="r1")) for name in ("node", "job")]
    numbers = [line_json(Sample("ddp/samples_per_s/comm/4n", 30.0, "higher", "r1", FOUR, 1e6))]
    for lines in (passed, [*passed, *numbers]):
        (tmp_path / "samples.jsonl").write_text("\n".join([*lines, ""]))
        assert main(["report", str(tmp_path)]) == 0
        assert print_run(Run(tmp_path), a_request(), LOADED, None, as_json=False) == 0
    capsys.readouterr()


def test_verdict_of_one_run_says_what_compares_and_what_shows_one(capsys: Output) -> None:
    assert main(["verdict", "--after", "runs/today"]) == 2
    error = capsys.readouterr().err
    assert "`lumisite verdict --before FILE --after RUN`" in error
    assert "`lumisite report RUN`" in error


def test_the_drain_line_says_what_the_node_has(capsys: Output) -> None:
    code, out = verdict([*node("n3"), gate("pass", *FOUR, run="r1")], capsys)
    assert code == 5
    assert "  scontrol update nodename=n3 state=drain reason='lumisite: hsn0 is gone'\n" in out


def test_a_failure_always_says_what_to_do(capsys: Output) -> None:
    bare = replace(gate("fail", "n1"), advice="")
    assert "look at its step, in the folder jobs of the run" in verdict([bare], capsys)[1]
    code, out = verdict([gate("pass", "n1")], capsys, factor=0.5)
    assert (code, "what to do\n  1. slower: m: " in out) == (1, True)


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
    assert (code, out.split("\n")[0]) == (1, "FAIL: binds failed (libcxi is missing)")
    assert "\n  1. binds: libcxi is missing (n1): bind it\n" in out
    assert re.search(r"\n  m .*  pass\n", out)


def test_an_inconclusive_gate_is_exit_4_unless_something_failed(capsys: Output) -> None:
    assert verdict([gate("inconclusive", "n1")], capsys)[0] == 4
    assert verdict([gate("inconclusive", "n1")], capsys, factor=0.5)[0] == 1
    assert verdict([], capsys)[0] == 4
    assert verdict([gate("pass", "n1")], capsys)[0] == 0


def test_a_gate_that_fails_on_few_nodes_is_exit_5_and_drains_them(capsys: Output) -> None:
    code, out = verdict([gate("fail", "n8"), *(gate("pass", f"n{n}") for n in range(4))], capsys)
    assert (code, out.split("\n")[0]) == (5, "BAD-NODES: n8 failed (libcxi is missing); the system is fine")
    assert "  scontrol update nodename=n8 state=drain reason='lumisite: binds: libcxi is missing'\n" in out


def test_nodes_with_different_faults_have_a_drain_line_each_that_ends_with_a_word() -> None:
    # As long as a quoted line of Slurm may be.
    long = "left no record: " + "srun: error: Task launch failed: Communication connection failure | " * 4
    gates = [
        Gate("node", "fail", cause, "repair it", f"r{at}", (name,), 100.0, asked=EIGHT, location=name)
        for at, (name, cause) in enumerate(
            (("n2", "hsn0: interface is down"), ("n5", long), ("n7", "hsn0: interface is down"))
        )
    ]
    verdict = judge_system(Recorded({}), Recorded({}, tuple(gates)), Terms())
    assert verdict.bad_nodes == ["n2", "n5", "n7"]
    down, lost = verdict.drain
    assert down == "scontrol update nodename=n2,n7 state=drain reason='lumisite: hsn0: interface is down'"
    assert lost.startswith("scontrol update nodename=n5 state=drain reason='lumisite: left no record: srun: error: ")
    words = lost.partition("lumisite: ")[2].removesuffix(" ...'")
    assert long.startswith(f"{words} "), "it ends with a whole word"
    assert len(words) > 90


def test_one_fault_on_several_nodes_is_one_cause_with_all_of_them() -> None:
    gates = [
        Gate(
            *("node", "fail", "hsn0: interface is down", "repair it", "r", (name,), 100.0),
            asked=EIGHT,
            location=name,
        )
        for name in ("n2", "n5")
    ]
    (both,) = judged(*gates).causes
    assert (both.text, both.nodes) == ("hsn0: interface is down", ("n2", "n5"))
    (one,) = judged(gates[0]).causes
    assert (one.text, one.nodes) == ("n2: hsn0: interface is down", ("n2",))


def test_jobs_on_a_bad_node_do_not_judge_the_system(capsys: Output) -> None:
    """n0 fails a gate and is slow; the others are as fast as before."""
    slow = [line.replace('"run": "1000000.', '"run": "n0.') for line in samples(1_000_000, 20) if '"n0"' in line]
    halved = [json.dumps({**json.loads(line), "value": 30.0}) for line in slow]
    good = [line for line in samples(1_000_000, 20) if '"n0"' not in line]
    gates = [gate("fail", "n0"), *(gate("pass", f"n{n}") for n in range(1, 4))]
    Path("before").write_text("\n".join(samples(0, 10)))
    Path("after").write_text("\n".join([*halved, *good, *map(line_json, gates)]))
    assert main(["verdict", "--before", "before", "--after", "after"]) == 5
    found = capsys.readouterr().out
    assert found.startswith("BAD-NODES: n0 failed (libcxi is missing); the system is fine\n")
    assert re.search(r"\n  m .*  10, 5  pass\n", found), "of 15 jobs"
