"""Gates: what is the system's fault, what is a node's, what only follows from that, and what the commands make of it."""

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
from lumisite.findings.finding import Finding, Severity
from lumisite.validate.lines import Gate, GateOutcome, Sample, gate_of, line_json
from lumisite.validate.run.folder import Run
from lumisite.validate.samples import Recorded
from lumisite.validate.verdict.gates import GateVerdict, judge_gates
from lumisite.validate.verdict.system import Terms, judge_system
from tests.support.requests import LOADED, a_request
from tests.support.series import codes

Output = pytest.CaptureFixture[str]
FOUR = ("n1", "n2", "n3", "n4")
EIGHT = tuple(f"n{number}" for number in range(1, 9))


def gate(
    verdict: GateOutcome, *nodes: str, name: str = "binds", run: str = "", cause: str = "libcxi is missing"
) -> Gate:
    return Gate(name, verdict, cause, "bind it", run or "-".join(nodes), nodes, 100.0)


def node(
    *bad: str, cause: str = "hsn0 is gone", code: str = "nic-gone", run: str = "r1", asked: tuple[str, ...] = FOUR
) -> list[Gate]:
    """What the gate `node` says of each bad node, or that all are well."""
    failed = [
        replace(gate("fail", name, name="node", run=run, cause=cause), code=code, location=name, asked=asked)
        for name in bad
    ]
    return failed or [gate("pass", *asked, name="node", run=run)]


def judged(*after: Gate, before: Sequence[Gate] = ()) -> GateVerdict:
    (one,) = judge_gates(before, after)
    return one


def test_a_failure_everywhere_is_the_system_and_causes_are_gathered() -> None:
    one = judged(
        gate("fail", "n1", "n2"), gate("fail", "n3", "n4"), gate("fail", "n3", "n4", cause="a rank hung", run="r9")
    )
    assert (one.verdict, one.nodes, codes(one)) == ("fail", (), ["gate-failed"])
    assert one.reason == "failed in 3 of 3 jobs"
    assert [(cause.cause, cause.nodes) for cause in one.causes] == [
        ("libcxi is missing", FOUR),
        ("a rank hung", ("n3", "n4")),
    ]


# ---- whose fault it is


def ddp(verdict: GateOutcome, *nodes: str, run: str = "r1", asked: tuple[str, ...] = ()) -> Gate:
    return replace(gate(verdict, *nodes, name="ddp", run=run), asked=asked)


SEVERAL_JOBS = [
    *node(run="a", asked=("n1", "n2")),
    *node("n3", run="b"),
    ddp("pass", "n1", "n2", run="a"),
    ddp("fail", "n3", "n4", run="b"),
]
PICKED = ddp("fail", "n2", asked=("n1", "n2"))
EVERY_NODE = [one for name in FOUR for one in node(name, cause=f"fault {name * 2}x")]


@pytest.mark.parametrize(
    ("after", "name", "verdict", "nodes", "follows"),
    [
        # One bad node of five, alone and as the one that bad pairs share.
        ([gate("fail", "n1"), *(gate("pass", f"n{n}") for n in range(2, 6))], "binds", "bad-nodes", "n1", ""),
        ([gate("fail", "n1", "n2"), gate("pass", "n2", "n3"), gate("pass", "n4", "n5")], "binds", "bad-nodes", "n1", ""),
        # A pair of which either may be bad, among good ones.
        ([gate("fail", "n1", "n2"), gate("pass", "n3", "n4"), gate("pass", "n5", "n6")], "binds", "bad-nodes", "n1 n2", ""),
        # Passing alone does not clear a node of a failure between nodes.
        ([gate("fail", "n1", "n2"), gate("pass", "n1"), gate("pass", "n2"), gate("pass", "n3", "n4", "n5")],
         "binds", "bad-nodes", "n1 n2", ""),
        # Having passed among more nodes does, whatever came later.
        ([gate("fail", "n1", "n2"), gate("pass", "n1", "n3", "n4"), gate("pass", "n1"), gate("pass", "n5")],
         "binds", "bad-nodes", "n2", ""),
        # Half of the nodes: the system.
        ([gate("fail", "n1"), gate("pass", "n2")], "binds", "fail", "", ""),
        # The same node passes and fails.
        ([gate("fail", "n1", run="a"), gate("pass", "n1", run="b"), gate("pass", "n2"), gate("pass", "n3")],
         "binds", "fail", "", ""),
        # Two nodes fail together, and each passes with another.
        ([gate("fail", "n1", "n2"), gate("pass", "n1", "n3"), gate("pass", "n2", "n4"), gate("pass", "n5", "n6")],
         "binds", "fail", "", ""),
        # The one of two that an answer picks out is bad; the same on the other in another job is no exception any more.
        ([PICKED], "ddp", "bad-nodes", "n2", ""),
        ([PICKED, replace(PICKED, nodes=("n1",), run="r2")], "ddp", "fail", "", ""),
        # Half of the nodes by one cause is the system, and by two is not, unless it is all of them.
        (node("n2", "n3"), "node", "fail", "", ""),
        ([*node("n2"), *node("n3", code="folder-gone")], "node", "bad-nodes", "n2 n3", ""),
        (EVERY_NODE, "node", "fail", "", ""),
        # What does not pass on a node that is bad follows from it.
        ([ddp("fail", *FOUR), *node("n3")], "ddp", "inconclusive", "", "n3"),
        ([ddp("inconclusive", *FOUR), *node("n3")], "ddp", "inconclusive", "", "n3"),
        # In another job, or on other nodes, or behind another gate, it is a cause of its own.
        ([*node("n3"), ddp("fail", *FOUR, run="r2"), *node(run="r2")], "ddp", "fail", "", ""),
        ([*node("n3"), ddp("fail", "n1", "n2")], "ddp", "fail", "", ""),
        ([gate("fail", *FOUR, run="r1"), ddp("fail", *FOUR)], "ddp", "fail", "", ""),
        # A node is bad in several jobs, though it was well in one; what passes without it passes.
        (SEVERAL_JOBS, "node", "bad-nodes", "n3", ""),
        ([*SEVERAL_JOBS, *node(run="c", asked=("n3", "n4"))], "node", "bad-nodes", "n3", ""),
        (SEVERAL_JOBS, "ddp", "pass", "", ""),
    ],
)  # fmt: skip
def test_few_nodes_that_explain_every_failure_are_blamed_and_what_follows_is_no_cause(
    after: list[Gate], name: str, verdict: str, nodes: str, follows: str
) -> None:
    one = next(one for one in judge_gates((), after) if one.gate == name)
    assert (one.verdict, " ".join(one.nodes), " ".join(one.follows)) == (verdict, nodes, follows)
    if follows:
        assert (codes(one), one.causes) == (["gate-follows"], ())
    elif verdict != "pass":
        assert one.findings[0].nodes == one.nodes
        assert one.findings[0].severity is (Severity.NODE if nodes else Severity.FAULT)


def test_inconclusive_is_no_pass_and_a_failure_wins_over_it() -> None:
    unclear = gate("inconclusive", "n1", cause="no line names the provider")
    one = judged(unclear, gate("pass", "n2"))
    assert (one.verdict, codes(one), one.reason) == ("inconclusive", ["gate-unclear"], "not answered in 1 of 2 jobs")
    assert one.causes[0].cause == "no line names the provider"
    assert judged(unclear, gate("fail", "n2")).verdict == "fail"


def test_what_was_before_counts() -> None:
    both = judged(gate("fail", "n1"), before=[gate("fail", "n1")])
    assert (both.failed_before, both.reason) == (True, "failed in 1 of 1 jobs; it failed before the change")
    gone = judged(before=[gate("pass", "n1")])
    assert (gone.verdict, codes(gone)) == ("inconclusive", ["gate-not-run"])
    # A job that was lost before says nothing about gates after.
    assert judge_gates([gate("fail", "n1", name="job")], []) == ()


def test_one_fault_on_several_nodes_is_one_cause_with_all_of_them() -> None:
    (both,) = judged(*node("n2", "n5", asked=EIGHT)).causes
    assert (both.text, both.nodes) == ("hsn0 is gone", ("n2", "n5"))
    (one,) = judged(*node("n2", asked=EIGHT)).causes
    assert (one.text, one.nodes) == ("n2: hsn0 is gone", ("n2",))


def test_what_all_nodes_have_is_one_finding_and_the_rest_follows() -> None:
    no_image = Finding("node-path", Severity.NODE, "missing (the image)", subject="/appl/images/torch.sif")
    rest = [gate("fail", *FOUR, name=name, run="r1") for name in ("environment", "transport", "ddp")]
    verdict = judge_system(Recorded({}), Recorded({}, (gate_of(no_image, "node", "r1", FOUR, 1.0), *rest)), Terms())
    assert (verdict.verdict, verdict.exit_code) == ("fail", 1)
    assert {one.gate: (one.verdict, one.follows) for one in verdict.gates if one.gate != "node"} == dict.fromkeys(
        ("environment", "transport", "ddp"), ("inconclusive", FOUR)
    )
    assert {finding.cause for one in verdict.gates for finding in one.findings} == {None, "node-path"}


# ---- what the commands make of it


@pytest.mark.parametrize("baseline", [True, False])
def test_one_bad_node_of_four_is_exit_5_with_its_cause_first(baseline: bool, capsys: Output) -> None:
    low = [
        Sample("ddp/samples_per_s/comm/4n", 30.0, "higher", "r1", FOUR, 1e6),
        Sample("collectives/all_reduce_busbw/128MiB/4n", 30.0, "higher", "r0", FOUR, 1e6),
    ]
    lines = [*node("n3"), gate("fail", *FOUR, name="ddp", run="r1", cause="rank 2 hung"), gate("pass", *FOUR, run="r1")]
    Path("after").write_text("\n".join([line_json(low[0]), *map(line_json, lines)]))
    fast = [replace(one, value=100.0 + n, run=f"b{n}") for n in range(10) for one in low]
    Path("before").write_text("\n".join([*map(line_json, fast), line_json(gate("pass", *FOUR, name="conda"))]))
    words = ["--before", "before"] if baseline else []
    assert main(["report", "after", *words]) == 5
    out = capsys.readouterr().out
    # What follows is folded into its cause.
    assert "rank 2 hung" not in out
    assert re.search(r"\n  ddp +inconclusive \(follows\) +follows from n3 \(nic-gone\)\n", out)
    assert "state=drain reason='lumisite: hsn0 is gone'" in out
    assert main(["report", "after", *words, "--json"]) == 5
    gates = {one["gate"]: one for one in json.loads(capsys.readouterr().out)["verdict"]["gates"]}
    assert [one["cause"] for one in gates["ddp"]["findings"]] == ["nic-gone"]
    assert (gates["node"]["nodes"], gates["ddp"]["follows"], gates["ddp"]["causes"]) == (["n3"], ["n3"], [])


@pytest.mark.parametrize(("elsewhere", "code"), [([], 5), ([gate("pass", "n5", "n6", run="r2")], 4)])
def test_a_gate_that_did_not_run_counts_where_a_job_ran_without_bad_nodes(elsewhere: list[Gate], code: int) -> None:
    before = Recorded({}, (gate("pass", *FOUR, name="conda"),))
    assert judge_system(before, Recorded({}, (*node("n3"), *elsewhere)), Terms()).exit_code == code


def test_without_a_baseline_gates_that_passed_are_enough_and_validate_and_report_agree(tmp_path: Path) -> None:
    """However many numbers there are of which the site expects nothing."""
    passed = [line_json(gate("pass", *FOUR, name=name, run="r1")) for name in ("node", "job")]
    numbers = [line_json(Sample("ddp/samples_per_s/comm/4n", 30.0, "higher", "r1", FOUR, 1e6))]
    for lines in (passed, [*passed, *numbers]):
        (tmp_path / "samples.jsonl").write_text("\n".join([*lines, ""]))
        assert main(["report", str(tmp_path)]) == 0
        assert print_run(Run(tmp_path), a_request(), LOADED, None, as_json=False) == 0


def test_verdict_of_one_run_says_what_compares_and_what_shows_one(capsys: Output) -> None:
    assert main(["verdict", "--after", "runs/today"]) == 2
    error = capsys.readouterr().err
    assert "`lumisite verdict --before FILE --after RUN`" in error
    assert "`lumisite report RUN`" in error


def samples(start: int, count: int, factor: float = 1.0) -> list[str]:
    chance = random.Random(start)
    return [
        line_json(
            Sample("m", factor * chance.lognormvariate(4, 0.01), "higher", f"{start}.{n}", (f"n{n % 4}",), start + n * 1e5)
        )
        for n in range(count)
    ]  # fmt: skip


GOOD = [gate("pass", f"n{n}") for n in range(4)]
WORDS = "libcxi is missing"


@pytest.mark.parametrize(
    ("gates", "factor", "code", "words"),
    [
        (GOOD[1:2], 1.0, 0, ["PASS: "]),
        (GOOD[1:2], 0.5, 1, ["what to do\n  1. slower: m: "]),
        # A failed gate fails whatever the numbers say, and says what to do.
        ([gate("fail", "n1")], 1.0, 1, [f"FAIL: binds failed ({WORDS})\n", f"\n  1. binds: {WORDS} (n1): bind it\n"]),
        ([replace(gate("fail", "n1"), advice="")], 1.0, 1, ["look at its step, in the folder jobs of the run"]),
        ([gate("inconclusive", "n1")], 1.0, 4, ["INCONCLUSIVE: "]),
        ([gate("inconclusive", "n1")], 0.5, 1, ["FAIL: "]),
        ([], 1.0, 4, ["INCONCLUSIVE: binds: passed before the change, and did not run after it"]),
        (
            [gate("fail", "n8"), *GOOD], 1.0, 5,
            [
                f"BAD-NODES: n8 failed ({WORDS}); the system is fine\n",
                f"  scontrol update nodename=n8 state=drain reason='lumisite: binds: {WORDS}'\n",
            ],
        ),
    ],
)  # fmt: skip
def test_gates_and_numbers_make_one_answer(
    gates: Sequence[Gate], factor: float, code: int, words: list[str], capsys: Output
) -> None:
    Path("before").write_text("\n".join([*samples(0, 10), line_json(gate("pass", "n1"))]))
    Path("after").write_text("\n".join([*samples(1_000_000, 10, factor), *map(line_json, gates)]))
    assert main(["verdict", "--before", "before", "--after", "after"]) == code
    out = capsys.readouterr().out
    assert all(text in out for text in words)


def test_nodes_with_different_faults_have_a_drain_line_each_that_ends_with_a_word() -> None:
    # As long as a quoted line of Slurm may be.
    long = "left no record: " + "srun: error: Task launch failed: Communication connection failure | " * 4
    gates = [*node("n2", "n7", asked=EIGHT), *node("n5", code="record-missing", cause=long, asked=EIGHT)]
    verdict = judge_system(Recorded({}), Recorded({}, tuple(gates)), Terms())
    assert verdict.bad_nodes == ["n2", "n5", "n7"]
    down, lost = verdict.drain
    assert down == "scontrol update nodename=n2,n7 state=drain reason='lumisite: hsn0 is gone'"
    words = lost.removeprefix("scontrol update nodename=n5 state=drain reason='lumisite: ").removesuffix(" ...'")
    assert long.startswith(f"{words} "), "it ends with a whole word"
    assert len(words) > 90
