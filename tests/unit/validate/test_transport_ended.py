"""Communicators that have ended, on all of their ranks or on some, in the forms of the versions."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
import yaml

from lumisite.validate.transport import communicators
from lumisite.validate.transport.judge import Expectation, judge
from lumisite.validate.transport.log import scan
from lumisite.validate.transport.result import Result

#: START (empty: the version has none), COMPLETE and the part that both have: NCCL src/init.cc, RCCL src/init.cc.
FORMS = {
    "nccl 2.14": ("", "comm {a} rank {r} nranks {n} cudaDev 0 busId c1000 - Init COMPLETE"),
    "rccl of rocm 5.4": (
        "",
        "comm {a} rank {r} nranks {n} cudaDev 0 busId c1000 localSize 224 used 52 bytes - Init COMPLETE",
    ),
    "nccl 2.17": ("", "comm {a} rank {r} nranks {n} cudaDev 0 busId c1000 commId {c} - Init COMPLETE"),
    "nccl 2.18.6": (
        "comm {a} rank {r} nranks {n} cudaDev 0 nvmlDev 0 busId c1000 commId {c} - Init START",
        "comm {a} rank {r} nranks {n} cudaDev 0 nvmlDev 0 busId c1000 commId {c} - Init COMPLETE",
    ),
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
    "nccl 2.21": "parent {p} color {k} key {r} commId 0x1f - Init {e}",
    "nccl 2.23": "parent {p} color {k} key {r}{s}- Init {e}",
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


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("how", ["Destroy", "Abort"])
def test_ranks_that_did_not_end_are_named(form: str, how: str) -> None:
    result = run_of(form, how=how, lost=(1, 2))
    assert (result.verdict, codes(result)) == ("inconclusive", ["transport-not-ended"])
    (finding,) = result.findings
    assert finding.values["ranks"] == (1, 2)
    assert (finding.values["ended"], finding.values["world"]) == (2, 4)
    assert finding.values["processes"] == ("rank 1 (nid001200:601)", "rank 2 (nid001201:602)")
    assert finding.values["communicator"] == ("0xd15ea5e" if "commId" in FORMS[form][1] else "")


def test_a_run_that_ends_without_leaving_is_no_finding() -> None:
    assert run_of("nccl 2.22", lost=(0, 1, 2, 3)).verdict == "pass"


def test_what_was_aborted_while_it_was_set_up_is_no_hang() -> None:
    result = run_of("nccl 2.22", how="Abort", complete=False)
    assert codes(result) == ["transport-setup-aborted"]
    assert {process.init for process in result.processes} == {"aborted"}
    assert result.verdict == "inconclusive"


def test_the_rank_that_others_gave_up_is_named_before_them() -> None:
    result = run_of("rccl of rocm 6.3", how="Abort", complete=False, lost=(3,))
    found = {finding.code: finding.values.get("ranks") for finding in result.findings}
    assert found == {"transport-setup-aborted": None, "transport-not-ended": (3,)}


def family_of(form: str, lost: set[tuple[int, int]], *, again: bool = True) -> Result:
    """Judge four ranks, split into two pairs by color, twice; `lost` are rank and turn of what does not end."""
    begins, done = FORMS["nccl 2.22"]
    texts = {}
    for rank in range(4):
        about = {"a": f"0x9{rank}0", "r": rank, "n": 4, "c": "0xfa11", "how": "Destroy"}
        lines = [begins.format(**about), *start_of(rank, 4), done.format(**about)]
        for turn in range(2 if again else 1):
            child = {"a": f"0x9{rank}{1 + turn}", "r": rank // 2, "n": 2, "how": "Destroy"}
            place = {"p": about["a"], "k": rank % 2, "r": rank // 2, "i": turn + 1}
            head = "ncclCommSplit comm {a} rank {r} nranks {n} cudaDev 0 nvmlDev 0 busId c1000 ".format(**child)
            lines += [head + CHILDREN[form].format(**place, e="START", s="")]
            lines += [head + CHILDREN[form].format(**place, e="COMPLETE", s=" ")]
            if (rank, turn) not in lost:
                lines.append(END.format(**child))
        texts[rank] = [*lines, END.format(**about)]
    return log_of(texts)


@pytest.mark.parametrize("form", CHILDREN)
def test_children_of_a_communicator_are_told_apart(form: str) -> None:
    assert family_of(form, set()).verdict == "pass"
    result = family_of(form, {(3, 1)})
    assert codes(result) == ["transport-not-ended"]
    assert result.findings[0].values["processes"] == ("rank 3 (nid001201:603)",)
    assert (result.findings[0].values["ended"], result.findings[0].values["world"]) == (1, 2)


def test_a_shrunk_communicator_ends_without_the_rank_that_is_gone() -> None:
    """Rank 2 died; the others abort the old communicator and destroy the one that they made from it."""
    begins, done = FORMS["nccl 2.29"]
    texts = {}
    for rank in range(4):
        about = {"a": f"0x8{rank}0", "r": rank, "n": 4, "c": "0x5417"}
        texts[rank] = [begins.format(**about), *start_of(rank, 4), done.format(**about)]
        if rank == 2:
            continue
        small = {"a": f"0x8{rank}1", "r": rank - (rank > 2), "n": 3, "how": "Destroy"}
        head = "ncclCommShrink comm {a} rank {r} nranks {n} cudaDev 0 nvmlDev 0 busId c1 ".format(**small)
        text = CHILDREN["nccl 2.29"]
        place = {"p": about["a"], "k": 0, "r": rank, "i": 1}
        texts[rank] += [
            f"comm {about['a']} rank {rank} nRanks 4 cudaDev 0 busId c1 - Abort START",
            head + text.format(**place, e="START", s=""),
            head + text.format(**place, e="COMPLETE", s=" "),
            END.format(**about, how="Abort"),
            END.format(**small),
        ]
    result = log_of(texts)
    assert codes(result) == ["transport-not-ended"]
    assert (result.findings[0].values["ranks"], result.findings[0].values["communicator"]) == ((2,), "0x5417")


def test_communicators_that_lines_do_not_tell_apart_are_not_judged() -> None:
    """In 2.18 all children have one `commId` and no parent: two pairs look like one communicator."""
    texts = {}
    for rank in range(4):
        about = {"a": f"0x6{rank}0", "r": rank // 2, "n": 2, "c": "0x0", "how": "Destroy"}
        lines = [text.format(**about) for text in FORMS["nccl 2.18.6"]]
        texts[rank] = [*start_of(rank // 2, 2), *lines, *([] if rank % 2 else [END.format(**about)])]
    assert "transport-not-ended" not in codes(log_of(texts))


def test_a_torn_line_is_not_taken_for_a_rank_that_stays() -> None:
    about = {"n": 2, "c": "0xbeef", "how": "Destroy"}
    lines = []
    for rank in range(2):
        head = f"n{rank}:{rank}0:{rank}1 [0] NCCL INFO "
        texts = (*FORMS["nccl 2.22"][:1], *start_of(rank, 2), FORMS["nccl 2.22"][1])
        lines += [head + text.format(**about, a=f"0x{rank}1", r=rank) for text in texts]
    ends = [END.format(**about, a=f"0x{rank}1", r=rank) for rank in range(2)]
    glued = f"n0:00:01 [0] NCCL INFO {ends[0][:30]}n1:10:11 [0] NCCL INFO {ends[1]}\n{ends[0][30:]}\n"
    result = judge(scan([("log", [("\n".join(lines) + "\n" + glued).encode()])]), Expectation("cxi"))
    assert "transport-not-ended" not in codes(result)


def test_an_address_that_is_used_again_was_free() -> None:
    """A program that makes and destroys communicators all day: nothing is kept of what has ended."""
    texts: dict[int, list[str]] = {rank: start_of(rank, 2) for rank in range(2)}
    for turn in range(50):
        for rank in range(2):
            about = {"a": f"0x4{rank}", "r": rank, "n": 2, "c": hex(turn + 16), "how": "Destroy"}
            texts[rank] += [text.format(**about) for text in (*FORMS["nccl 2.22"], END)]
    lines = "".join(f"n{rank}:{rank}:9 [0] NCCL INFO {text}\n" for rank in texts for text in texts[rank])
    log = scan([("log", [lines.encode()])])
    assert log.communicators == {}
    assert judge(log, Expectation("cxi")).verdict == "pass"


def test_ranks_that_are_missing_are_counted_and_the_first_listed() -> None:
    line = b"n1:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 1048576 cudaDev 0 busId 1 commId 0x1 - Init COMPLETE\n"
    found = judge(scan([("log", [line])]), Expectation("cxi")).findings
    (values,) = [finding.values for finding in found if finding.code == "transport-ranks-missing"]
    assert values["missing"] == 1048575
    assert values["ranks"] == tuple(range(1, 1001))


def test_what_was_opened_is_not_called_unknown() -> None:
    """The answer `network` names the network that was opened last; no finding may say that nothing shows it."""
    text = b"n1:1:2 [0] NCCL INFO Bootstrap : Using e0\nn1:1:2 [0] NCCL INFO NET/Socket : Using [0]ib0:10.0.0.1<0>\n"
    result = judge(scan([("log", [text])]), Expectation("cxi"))
    assert result.network == "Socket"
    assert "transport-network-unknown" not in codes(result)
    assert result.verdict != "pass"
    opened = [finding for finding in result.findings if finding.code == "transport-network-opened"]
    assert [finding.values["network"] for finding in opened] == ["Socket"]


def test_every_verdict_that_is_no_pass_has_a_command_as_next_step() -> None:
    text = (Path(communicators.__file__).parents[2] / "findings" / "transport.yaml").read_text()
    for code, entry in yaml.safe_load(text).items():
        advice = entry.get("advice", [])
        for one in [advice] if isinstance(advice, str) else advice:
            assert entry["severity"] == "info" or re.search("`[^`]+`", one), (code, one)
        assert advice or entry["severity"] == "info", code
