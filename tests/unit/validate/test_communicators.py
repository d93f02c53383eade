"""The judge of `communicators`: who hangs, where, and which setting is to blame; and what is no hang."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lumisite.validate.lines import Gate, Sample
from lumisite.validate.probes.communicators.judge import GROUPS, communicators, suspects
from lumisite.validate.probes.definition import options_of
from lumisite.validate.probes.probe import Backend, Ended, Line, Record
from lumisite.validate.probes.suite import LIMITS_S
from lumisite.validate.verdict.system import Terms
from tests.support.records import target_of
from tests.unit.validate.test_measuring_judges import NODES, ended, expected, gate_of, rank, values

if TYPE_CHECKING:
    from typing import TypeAlias

Settings: TypeAlias = "dict[str, str]"
NONE: Settings = {}
PATIENCE_S = 100.0
TARGETS = {"nccl": target_of("lumi"), "gloo": target_of("twin")}


def row(number: int, wrong: int = 0, slow: float = 1.0) -> dict[str, object]:
    make_s, first_s = (1.0, 10.0) if number == 1 else (0.25, 1.0)
    return {"make_s": make_s * slow, "first_s": first_s * slow, "wrong": wrong}


def rows(**changed: float) -> list[dict[str, object]]:
    return [row(number, **changed) for number in range(1, GROUPS + 1)]  # type: ignore[arg-type]


def place(group: int, part: str, settings: dict[str, str]) -> dict[str, object]:
    return {"group": group, "part": part, "settings": settings}


def gave_up(number: int, group: int, part: str, settings: Settings = NONE, time: float = 200.0) -> dict[str, object]:
    """What the record of a rank says that lost its patience."""
    return {**rank(number), **place(group, part, settings), "hung_time": time, "hung_s": PATIENCE_S}


def at(number: int, group: int, part: str, time: float = 200.0) -> dict[str, object]:
    """What is left of a rank that was killed."""
    here = place(group, part, NONE) if group else {}
    phase = f"at group {group}" if group else "loading PyTorch"
    return {"host": NODES[number], "rank": number, "phase": phase, "time": time, **here}


def judged(
    records: list[Record], code: int = 137, backend: Backend = "nccl", seconds: float = 130.0, words: str = ""
) -> list[Line]:
    left: Ended = replace(ended(records, code), seconds=seconds, stderr=tuple(filter(None, words.split(" | "))))
    left = replace(left, step=replace(left.step, limit_s=240))
    return list(communicators(TARGETS[backend]).judge([left], expected("communicators")))


def failure(records: list[Record], **more: object) -> Gate:
    gate = gate_of(judged(records, **more))  # type: ignore[arg-type]
    assert gate.verdict == "fail"
    return gate


# ---- all is well


def test_good_groups_pass_with_the_times_of_the_first_and_of_the_others() -> None:
    lines = judged([rank(0, groups=rows()), rank(1, groups=rows(slow=2.0))], 0)
    gate = gate_of(lines)
    assert (gate.verdict, gate.code) == ("pass", "communicators-fine")
    # The rank that came last made the group in the shortest time; the slower one ends the collective.
    assert values(lines) == {"communicators/first_group_s/2n": 21.0, "communicators/next_group_s/2n": 2.25}


def test_of_its_times_the_first_group_decides() -> None:
    (first, others) = [line.metric for line in judged([rank(0, groups=rows()), rank(1, groups=rows())], 0)
                       if isinstance(line, Sample)]  # fmt: skip
    assert (Terms().decides(first), Terms().decides(others)) == (True, False)


def test_a_rank_loses_its_patience_before_pytorch_and_before_the_step() -> None:
    backends: tuple[Backend, ...] = ("gloo", "nccl")
    for backend in backends:
        words = options_of("communicators", backend)
        options, limit_s = dict(zip(words[::2], words[1::2], strict=True)), LIMITS_S[backend]
        assert options["--groups"] == str(GROUPS)
        assert float(options["--patience"]) < float(options["--limit"])
        assert 2 * float(options["--patience"]) < limit_s


# ---- a hang of all ranks, and the setting to suspect


@pytest.mark.parametrize(("monitor", "shown"), [({}, " (unset)"), ({"FI_MR_CACHE_MONITOR": "memhooks"}, "=memhooks")])
def test_a_hang_of_the_second_group_without_the_monitor_names_it(monitor: dict[str, str], shown: str) -> None:
    gate = failure([gave_up(number, 2, "running", monitor) for number in (0, 1)])
    assert gate.code == "communicator-hung"
    known = {
        "limit_s": PATIENCE_S,
        "moment": "running",
        "group": 2,
        "groups": 8,
        "ranks": "0-1",
        "suspect": f"FI_MR_CACHE_MONITOR{shown}",
        "variable": "FI_MR_CACHE_MONITOR",
        "expected": "userfaultfd",
    }
    assert known.items() <= gate.values.items()
    assert "0 of 18 attempts stalled with userfaultfd and 21 of 23 without it" in str(gate.values["effect"])
    assert "COMMENT-issue-44.md; LCR issue 44; AIG pull request 118" in str(gate.values["source"])
    assert (gate.nodes, gate.rank) == (NODES, None)


def test_a_hang_of_the_second_group_with_the_monitor_says_what_was_set() -> None:
    settings = {"FI_MR_CACHE_MONITOR": "userfaultfd", "NCCL_NET_GDR_LEVEL": "PHB"}
    gate = failure([gave_up(number, 2, "making", settings) for number in (0, 1)])
    assert (gate.code, gate.values["moment"]) == ("communicator-hung", "making")
    assert gate.values["settings"] == ("FI_MR_CACHE_MONITOR=userfaultfd", "NCCL_NET_GDR_LEVEL=PHB")


@pytest.mark.parametrize("level", ["PHB", "SYS", "3", "4", "5"])
@pytest.mark.parametrize("part", ["entering", "running"])
def test_a_hang_of_the_first_collective_names_the_level(level: str, part: str) -> None:
    gate = failure([gave_up(number, 1, part, {"NCCL_NET_GDR_LEVEL": level}) for number in (0, 1)])
    assert gate.values["suspect"] == f"NCCL_NET_GDR_LEVEL={level}"
    assert "expected" not in gate.values
    assert "STUDY" in str(gate.values["source"])


@pytest.mark.parametrize(("part", "level"), [("making", "PHB"), ("running", "PIX"), ("running", "")])
def test_a_hang_of_the_first_group_that_no_setting_explains_names_none(part: str, level: str) -> None:
    gate = failure([gave_up(number, 1, part, {"NCCL_NET_GDR_LEVEL": level}) for number in (0, 1)])
    assert "suspect" not in gate.values


def test_without_libfabric_none_of_its_settings_is_to_blame() -> None:
    gate = failure([gave_up(number, 2, "running", {"GLOO_SOCKET_IFNAME": "eth0"}) for number in (0, 1)], backend="gloo")
    assert gate.values["settings"] == ("GLOO_SOCKET_IFNAME=eth0",)
    alone = [{**gave_up(number, 2, "running"), "host": NODES[0]} for number in (0, 1)]
    asked = expected("communicators", tasks=2, nodes=NODES[:1])
    on_one_node = gate_of(list(communicators(TARGETS["nccl"]).judge([ended(list(alone), 137, tasks=2)], asked)))
    assert "suspect" not in on_one_node.values


def test_the_end_of_the_steps_time_is_a_hang_too() -> None:
    gate = failure([at(0, 3, "running"), at(1, 3, "running")], code=124, seconds=240.0)
    assert (gate.code, gate.values["limit_s"], gate.values["ranks"]) == ("communicator-hung", 240.0, "0-1")
    assert gate.values["suspect"] == "FI_MR_CACHE_MONITOR (unset)"


def test_what_to_suspect_is_read_from_the_ledger() -> None:
    """With ROCm 6.0 in the image the site sets the level itself, which hangs with later releases."""

    def blamed(level: str, *image: str) -> bool:
        known = [one for one in suspects(target_of("lumi", *image)) if one.name == "NCCL_NET_GDR_LEVEL"]
        return any(one.hangs(level) for one in known)

    assert [one.name for one in suspects(TARGETS["nccl"]) if one.hangs("")] == ["FI_MR_CACHE_MONITOR"]
    assert blamed("PHB")
    assert not blamed("PHB", "/images/lumi-pytorch-rocm-6.0.3-python-3.12-pytorch-v2.3.1.sif")


# ---- one rank that is not where the others wait for it


@pytest.mark.parametrize(
    ("other", "code", "values"),
    [
        (at(1, 3, "entering"), "communicator-hung", {"moment": "entering", "group": 3}),
        (at(1, 2, "running"), "communicator-hung", {"moment": "running", "group": 2}),
        (at(1, 0, ""), "rank-hung", {"phase": "loading PyTorch"}),
        (at(1, 3, "running", time=150.0), "communicator-silent", {"moment": "running", "group": 3}),
        ({**gave_up(1, 3, "running", time=217.0), "froze": True}, "communicator-silent", {"group": 3}),
        (gave_up(1, 3, "making", time=202.0), "communicator-hung", {"moment": "making", "group": 3}),
        ({}, "communicator-never-began", {}),
    ],
)
def test_the_rank_that_did_not_get_there_is_named_and_no_other(
    other: Record, code: str, values: dict[str, object]
) -> None:
    gate = failure([record for record in (gave_up(0, 3, "running"), other) if record])
    assert gate.code == code
    assert ({"limit_s": 100.0, "waiting": 1} | values).items() <= gate.values.items()
    assert (gate.nodes, gate.rank) == (NODES[1:], 1)


def test_a_rank_that_never_began_comes_before_one_that_fell_silent() -> None:
    gate = failure(
        [at(0, 3, "running", time=150.0), {"host": NODES[0], "rank": 2, "phase": "x", "time": 200.0}],
        code=124,
        seconds=240.0,
    )
    assert (gate.code, gate.rank, gate.values["limit_s"]) == ("communicator-never-began", 1, 240.0)


def test_what_the_others_met_when_one_gave_up_is_no_error_of_theirs() -> None:
    broken = {
        **rank(0),
        **place(2, "running", NONE),
        "error": "RuntimeError: Connection closed by peer",
        "error_time": 203.0,
    }
    gate = failure([broken, gave_up(1, 2, "entering")])
    assert (gate.code, gate.rank, gate.values["moment"]) == ("communicator-hung", 1, "entering")


def test_a_rank_that_was_done_hangs_no_more() -> None:
    gate = failure([rank(0, groups=rows()), gave_up(1, 8, "leaving")])
    assert (gate.code, gate.rank, gate.values["moment"]) == ("communicator-hung", 1, "leaving")
    assert "suspect" in gate.values


# ---- what is no hang


def test_an_error_before_anybody_lost_patience_is_the_cause() -> None:
    error = {"error": "RuntimeError: boom", "error_at": "making group 3", "error_time": 150.0}
    failed = {**rank(1), **place(3, "making", NONE), **error}
    gate = failure([gave_up(0, 3, "running"), failed])
    assert gate.code == "rank-failed"
    assert gate.values == {"subject": "rank 1 on nid000002", "phase": "making group 3", "error": "RuntimeError: boom"}


def test_a_rank_that_crashed_is_named_and_not_the_one_that_was_killed_with_it() -> None:
    words = "srun: error: nid000002: task 1: Segmentation fault | srun: error: nid000001: task 0: Killed"
    gate = failure([at(0, 3, "running", time=9.0), at(1, 3, "running", time=9.0)], code=139, seconds=9.0, words=words)
    assert gate.code == "rank-crashed"
    assert gate.values == {"ranks": "1", "phase": "at group 3", "words": "Segmentation fault"}
    assert (gate.nodes, gate.rank) == (NODES[1:], 1)
    words = "srun: error: nid000001: task 0: Killed | srun: error: nid000002: tasks 1-2: Exited with exit code 3"
    gate = failure([], code=137, seconds=9.0, words=words.replace("1-2", "1"))
    assert gate.values == {"ranks": "1", "words": "Exited with exit code 3"}


def test_what_another_rank_met_when_one_crashed_is_not_the_cause() -> None:
    words = "srun: error: nid000002: task 1: Aborted (core dumped) | srun: error: nid000001: task 0: Exited with exit code 1"
    met = {**rank(0), "error": "RuntimeError: Connection reset by peer", "error_at": "at group 2", "error_time": 10.0}
    gate = failure([met, at(1, 2, "running", time=9.5)], code=134, seconds=9.0, words=words)
    assert (gate.code, gate.rank, gate.values["words"]) == ("rank-crashed", 1, "Aborted (core dumped)")
    gate = failure([met, at(1, 2, "running", time=10.5)], code=134, seconds=9.0, words=words)
    assert (gate.code, gate.rank) == ("rank-failed", 0)


def test_where_srun_names_nobody_its_words_are_the_cause() -> None:
    words = "srun: error: nid000002: task 1: Terminated"
    gate = failure([at(0, 3, "running"), at(1, 3, "running")], seconds=9.0, words=words)
    assert gate.code == "srun-failed"
    assert gate.values == {"exit_code": 137, "words": words}


def test_missing_records_of_a_step_that_ended_well_are_told() -> None:
    gate = failure([rank(0, groups=rows())], code=0)
    assert (gate.code, gate.rank) == ("record-missing", 1)
    assert gate_of(judged([rank(0), rank(1)], 0)).verdict == "inconclusive"


def test_wrong_sums_are_told_with_their_group_and_ranks() -> None:
    wrong = [*rows()[:4], row(5, wrong=3), *rows()[5:]]
    gate = failure([rank(0, groups=rows()), rank(1, groups=wrong)], code=0)
    assert (gate.code, gate.values) == ("communicator-wrong", {"group": 5, "where": "rank 1 on nid000002"})


def test_warnings_that_every_good_run_prints_are_no_fault() -> None:
    words = "NCCL WARN /src/graph/topo.cc:1550 Could not find any local path from gpu 1 to net"
    lines = judged([rank(0, groups=rows()), rank(1, groups=rows())], 0, words=words)
    assert gate_of(lines).verdict == "pass"
    gate = failure([gave_up(number, 2, "running") for number in (0, 1)], words=words)
    assert gate.code == "communicator-hung"
