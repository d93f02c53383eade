"""Communicators that were set up, aborted and ended, in the forms of the versions."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from lumisite.findings.finding import Severity
from lumisite.validate.nccl_log import scan
from lumisite.validate.transport import Expectation, Result, judge

#: START (empty: the version has none), COMPLETE and the part that both have: NCCL src/init.cc, RCCL src/init.cc.
FORMS = {
    "nccl 2.14": ("", "comm {a} rank {r} nranks {n} cudaDev 0 busId c1000 - Init COMPLETE"),
    "nccl 2.22": (
        "ncclCommInitRank comm {a} rank {r} nranks {n} cudaDev 0 nvmlDev 0 busId c1000 commId {c} - Init START",
        "ncclCommInitRank comm {a} rank {r} nranks {n} cudaDev 0 nvmlDev 0 busId c1000 commId {c} - Init COMPLETE",
    ),
    "nccl 2.29": (
        "[Rank {r}] ncclCommInitRank comm {a} rank {r} nranks {n} cudaDev 0 nvmlDev 0 busId c1 commId {c} - Init START",
        "ncclCommInitRank comm {a} rank {r} nranks {n} cudaDev 0 nvmlDev 0 busId c1 commId {c} - Init COMPLETE",
    ),
    "rccl of rocm 6.3": (
        "ncclCommInitRank comm {a} rank {r} nranks {n} cudaDev 0 nvmlDev 0 busId c1000 commId {c} - Init START",
        "ncclCommInitRank comm {a} rank {r} nranks {n} cudaDev 0 nvmlDev 0 busId c1 commId {c} localSize 224 - Init COMPLETE",
    ),
}
#: Those of communicators made from another one, whose address is {p}.
CHILDREN = {
    "nccl 2.27": "parent {p} splitCount {i} color {k} key {r}{s}- Init {e}",
    "nccl 2.29": "parent {p} childCount {i} color {k} key {r}{s}- Init {e}",
}
END = "comm {a} rank {r} nranks {n} cudaDev 0 busId c1000 - {how} COMPLETE"


def log_of(texts: dict[int, list[str]], seed: int = 3) -> Result:
    """Judge the lines of each rank in an order that keeps each rank's own, over cxi with all that a pass needs."""
    chance = random.Random(seed)
    queues = {rank: list(lines) for rank, lines in texts.items()}
    lines = []
    while queues:
        rank = chance.choice(sorted(queues))
        head = f"nid00{1200 + rank // 2}:{600 + rank}:{900 + rank} [{rank % 2}] NCCL INFO "
        lines.append(head + queues[rank].pop(0))
        if not queues[rank]:
            del queues[rank]
    return judge(scan([("log", [("\n".join(lines) + "\n").encode()])]), Expectation("cxi", 4))


def start_of(rank: int, world: int) -> list[str]:
    after = (rank + 1) % world
    return [
        "NET/OFI Selected Provider is cxi (found 4 nics)",
        "Using network AWS Libfabric",
        "Trees [0] 1/-1/-1->0->-1",
        f"Channel 00/0 : {rank}[c1] -> {after}[c1] [send] via NET/AWS Libfabric/0/GDRDMA",
    ]


def run_of(form: str, *, how: str = "Destroy", lost: tuple[int, ...] = (), complete: bool = True) -> Result:
    """Judge a run of four ranks whose communicator ends on all but the `lost` ones."""
    begins, done = FORMS[form]
    texts = {}
    for rank in range(4):
        about = {"a": f"0x7f{rank}a0", "r": rank, "n": 4, "c": "0xd15ea5e", "how": how}
        texts[rank] = [
            *([begins.format(**about)] if begins else []),
            *start_of(rank, 4),
            "Connected all rings",
            *([done.format(**about)] if complete else []),
            *([] if rank in lost else [END.format(**about)]),
        ]
    return log_of(texts)


def codes(result: Result) -> list[str]:
    return [finding.code for finding in result.findings]


@pytest.mark.parametrize("form", FORMS)
def test_what_ended_well_does_not_hang(form: str) -> None:
    """Trees never were connected, and the line that says `Init COMPLETE` may be lost: it was destroyed all the same."""
    for complete in (True, False):
        result = run_of(form, complete=complete)
        assert result.verdict == "pass", (complete, result.reasons)
        assert {process.init for process in result.processes} == {"complete"}


def test_rings_of_a_communicator_that_is_complete_are_no_hang_of_the_next() -> None:
    """NCCL from 2.22 on connects rings and trees at their first use, each for itself."""
    begins, done = FORMS["nccl 2.22"]
    texts = {}
    for rank in range(2):
        first, second = ({"a": f"0x{turn}{rank}", "r": rank, "n": 2, "c": f"0x{turn}"} for turn in (1, 2))
        before = [begins.format(**first), *start_of(rank, 2), done.format(**first), "Connected all rings"]
        texts[rank] = [*before, begins.format(**second)]
    result = log_of(texts)
    assert ({process.init for process in result.processes}, result.verdict) == ({"unfinished"}, "inconclusive")


def test_what_was_aborted_while_it_was_set_up_is_no_hang() -> None:
    result = run_of("nccl 2.22", how="Abort", complete=False)
    assert codes(result) == ["transport-unfinished"]
    assert "aborted before its setup completed" in result.reasons[0]
    assert {process.init for process in result.processes} == {"aborted"}
    assert result.verdict == "inconclusive"


def test_a_rank_that_others_gave_up_is_named_beside_them() -> None:
    result = run_of("rccl of rocm 6.3", how="Abort", complete=False, lost=(3,))
    found = {finding.message: finding.subject for finding in result.findings}
    assert found["rings are connected, trees never were"] == "rank 3 (nid001201:603)"
    assert found["a communicator was aborted before its setup completed"].startswith("rank 0 (nid001200:600), rank 1")


@pytest.mark.parametrize("form", CHILDREN)
@pytest.mark.parametrize("hung", [(), (3,)])
def test_communicators_made_from_others_are_looked_at_too(form: str, hung: tuple[int, ...]) -> None:
    """Four ranks, split into two pairs by color, twice; of the second time one rank may hang."""
    begins, done = FORMS["nccl 2.22"]
    texts = {}
    for rank in range(4):
        about = {"a": f"0x9{rank}0", "r": rank, "n": 4, "c": "0xfa11", "how": "Destroy"}
        lines = [begins.format(**about), *start_of(rank, 4), done.format(**about)]
        for turn in range(2):
            child = {"a": f"0x9{rank}{1 + turn}", "r": rank // 2, "n": 2, "how": "Destroy"}
            place = {"p": about["a"], "k": rank % 2, "r": rank // 2, "i": turn + 1}
            head = "ncclCommSplit comm {a} rank {r} nranks {n} cudaDev 0 nvmlDev 0 busId c1000 ".format(**child)
            lines += [head + CHILDREN[form].format(**place, e="START", s="")]
            if turn and rank in hung:
                break
            lines += [head + CHILDREN[form].format(**place, e="COMPLETE", s=" "), END.format(**child)]
        texts[rank] = [*lines, END.format(**about)]
    result = log_of(texts)
    assert result.verdict == ("inconclusive" if hung else "pass")
    assert [process.rank for process in result.processes if process.init == "unfinished"] == [*hung]


def test_an_address_that_is_used_again_was_free() -> None:
    """A program that makes and destroys communicators all day: nothing is kept of what has ended."""
    texts: dict[int, list[str]] = {rank: start_of(rank, 2) for rank in range(2)}
    for turn in range(50):
        for rank in range(2):
            about = {"a": f"0x4{rank}", "r": rank, "n": 2, "c": hex(turn + 16), "how": "Destroy"}
            texts[rank] += [text.format(**about) for text in (*FORMS["nccl 2.22"], END)]
    lines = "".join(f"n{rank}:{rank}:9 [0] NCCL INFO {text}\n" for rank in texts for text in texts[rank])
    log = scan([("log", [lines.encode()])])
    assert [process.alive for process in log.processes] == [{}, {}]
    assert judge(log, Expectation("cxi")).verdict == "pass"


def test_every_verdict_that_is_no_pass_has_a_command_as_next_step() -> None:
    logs = sorted((Path(__file__).parents[2] / "data" / "transport").glob("*.log"))
    for expectation in (Expectation(), Expectation("cxi", 4, require_gdr=True), Expectation("IB", 2)):
        for path in logs:
            for finding in judge(scan([("log", [path.read_bytes()])]), expectation).findings:
                assert finding.severity is Severity.INFO or re.search("`[^`]+`", finding.advice), finding
