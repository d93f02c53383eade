"""The judge of `communicators`: who hangs, where, and with which variables; and what is no hang."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lumisite.validate.lines import Gate, Sample
from lumisite.validate.probes.communicators.judge import GROUPS, communicators
from lumisite.validate.probes.definition import options_of
from lumisite.validate.probes.probe import Backend, Ended, Line, Record
from lumisite.validate.probes.suite import LIMITS_S
from lumisite.validate.verdict.deciding import decides
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
    assert (gate.verdict, gate.code) == ("pass", "checks-passed")
    # The rank that came last made the group in the shortest time; the slower one ends the collective.
    assert values(lines) == {"communicators/first_group_s/2n": 21.0, "communicators/next_group_s/2n": 2.25}


def test_of_its_times_the_first_group_decides() -> None:
    (first, others) = [line.metric for line in judged([rank(0, groups=rows()), rank(1, groups=rows())], 0)
                       if isinstance(line, Sample)]  # fmt: skip
    assert (decides(first), decides(others)) == (True, False)


def test_a_rank_loses_its_patience_before_pytorch_and_before_the_step() -> None:
    backends: tuple[Backend, ...] = ("gloo", "nccl")
    for backend in backends:
        words = options_of("communicators", backend)
        options, limit_s = dict(zip(words[::2], words[1::2], strict=True)), LIMITS_S[backend]
        assert options["--groups"] == str(GROUPS)
        assert float(options["--patience"]) < float(options["--limit"])
        assert 2 * float(options["--patience"]) < limit_s


# ---- a hang of all ranks, and what was set


def test_a_hang_of_all_ranks_names_them_their_place_and_their_variables() -> None:
    settings = {"FI_MR_CACHE_MONITOR": "memhooks", "NCCL_NET_GDR_LEVEL": "PHB"}
    gate = failure([gave_up(number, 2, "running", settings) for number in (0, 1)])
    assert (gate.code, gate.nodes, gate.rank) == ("step-hung", NODES, None)
    assert gate.text.startswith(
        "ranks 0-1 on nid000001, nid000002: no progress for 100 s: hung while running group 2 of 8; "
        "set: NCCL_NET_GDR_LEVEL=PHB, FI_MR_CACHE_MONITOR=memhooks; unset: NCCL_"
    )


def test_over_gloo_its_own_variable_is_named_and_none_of_libfabric() -> None:
    gate = failure([gave_up(number, 2, "running", {"GLOO_SOCKET_IFNAME": "eth0"}) for number in (0, 1)], backend="gloo")
    assert gate.text.endswith("hung while running group 2 of 8; set: GLOO_SOCKET_IFNAME=eth0")


def test_the_end_of_the_steps_time_is_a_hang_too() -> None:
    gate = failure([at(0, 3, "running"), at(1, 3, "running")], code=124, seconds=240.0)
    assert (gate.code, gate.values["ranks"]) == ("step-hung", "0-1")
    assert "no progress for 240 s" in gate.text


# ---- one rank that is not where the others wait for it


@pytest.mark.parametrize(
    ("other", "code", "message"),
    [
        (at(1, 3, "entering"), "step-hung", "hung while entering group 3 of 8"),
        (at(1, 2, "running"), "step-hung", "hung while running group 2 of 8"),
        (at(1, 0, ""), "step-hung", "hung while loading PyTorch"),
        (at(1, 3, "running", time=150.0), "step-hung", "fell silent while running group 3 of 8"),
        ({**gave_up(1, 3, "running", time=217.0), "froze": True}, "step-hung", "fell silent while running group 3"),
        (gave_up(1, 3, "making", time=202.0), "step-hung", "hung while making group 3 of 8"),
        ({}, "record-missing", "no record is left after 100 s"),
    ],
)
def test_the_rank_that_did_not_get_there_is_named_and_no_other(other: Record, code: str, message: str) -> None:
    gate = failure([record for record in (gave_up(0, 3, "running"), other) if record])
    assert gate.code == code
    assert message in gate.text
    assert "100 s" in gate.text
    assert "; 1 other rank waited" in gate.text
    assert (gate.nodes, gate.rank) == (NODES[1:], 1)


def test_a_rank_that_never_began_comes_before_one_that_fell_silent() -> None:
    gate = failure(
        [at(0, 3, "running", time=150.0), {"host": NODES[0], "rank": 2, "phase": "x", "time": 200.0}],
        code=124,
        seconds=240.0,
    )
    assert (gate.code, gate.rank) == ("record-missing", 1)
    assert "no record is left after 240 s" in gate.text


def test_what_the_others_met_when_one_gave_up_is_no_error_of_theirs() -> None:
    broken = {
        **rank(0),
        **place(2, "running", NONE),
        "error": "RuntimeError: Connection closed by peer",
        "error_time": 203.0,
    }
    gate = failure([broken, gave_up(1, 2, "entering")])
    assert (gate.code, gate.rank) == ("step-hung", 1)
    assert "hung while entering group 2" in gate.text


def test_a_rank_that_was_done_hangs_no_more() -> None:
    gate = failure([rank(0, groups=rows()), gave_up(1, 8, "leaving")])
    assert (gate.code, gate.rank) == ("step-hung", 1)
    assert "hung while leaving group 8" in gate.text


# ---- what is no hang


def test_an_error_before_anybody_lost_patience_is_the_cause() -> None:
    error = {"error": "RuntimeError: boom", "error_at": "making group 3", "error_time": 150.0}
    failed = {**rank(1), **place(3, "making", NONE), **error}
    gate = failure([gave_up(0, 3, "running"), failed])
    assert gate.code == "rank-failed"
    assert gate.text == "rank 1 on nid000002: failed while making group 3: RuntimeError: boom"


def test_a_rank_that_crashed_is_named_and_not_the_one_that_was_killed_with_it() -> None:
    words = "srun: error: nid000002: task 1: Segmentation fault | srun: error: nid000001: task 0: Killed"
    gate = failure([at(0, 3, "running", time=9.0), at(1, 3, "running", time=9.0)], code=139, seconds=9.0, words=words)
    assert gate.code == "rank-failed"
    assert gate.text == "rank 1 on nid000002: ended without a record while at group 3: Segmentation fault"
    assert (gate.nodes, gate.rank) == (NODES[1:], 1)
    words = "srun: error: nid000001: task 0: Killed | srun: error: nid000002: tasks 1-2: Exited with exit code 3"
    gate = failure([], code=137, seconds=9.0, words=words.replace("1-2", "1"))
    assert gate.text == "rank 1 on nid000002: ended without a record: Exited with exit code 3"


def test_what_another_rank_met_when_one_crashed_is_not_the_cause() -> None:
    words = "srun: error: nid000002: task 1: Aborted (core dumped) | srun: error: nid000001: task 0: Exited with exit code 1"
    met = {**rank(0), "error": "RuntimeError: Connection reset by peer", "error_at": "at group 2", "error_time": 10.0}
    gate = failure([met, at(1, 2, "running", time=9.5)], code=134, seconds=9.0, words=words)
    assert (gate.code, gate.rank) == ("rank-failed", 1)
    assert gate.text.endswith("Aborted (core dumped)")
    gate = failure([met, at(1, 2, "running", time=10.5)], code=134, seconds=9.0, words=words)
    assert (gate.code, gate.rank) == ("rank-failed", 0)


def test_where_srun_names_nobody_its_words_are_the_cause() -> None:
    words = "srun: error: nid000002: task 1: Terminated"
    gate = failure([at(0, 3, "running"), at(1, 3, "running")], seconds=9.0, words=words)
    assert (gate.code, gate.text) == ("step-failed", f"srun ended with exit code 137: {words}")


def test_missing_records_of_a_step_that_ended_well_are_told() -> None:
    gate = failure([rank(0, groups=rows())], code=0)
    assert (gate.code, gate.rank) == ("record-missing", 1)
    assert gate_of(judged([rank(0), rank(1)], 0)).verdict == "inconclusive"


def test_wrong_sums_are_told_with_their_group_and_ranks() -> None:
    wrong = [*rows()[:4], row(5, wrong=3), *rows()[5:]]
    gate = failure([rank(0, groups=rows()), rank(1, groups=wrong)], code=0)
    assert gate.code == "results-wrong"
    assert gate.text == "the first collective of group 5 gave wrong sums on rank 1 on nid000002"


def test_warnings_that_every_good_run_prints_are_no_fault() -> None:
    words = "NCCL WARN /src/graph/topo.cc:1550 Could not find any local path from gpu 1 to net"
    lines = judged([rank(0, groups=rows()), rank(1, groups=rows())], 0, words=words)
    assert gate_of(lines).verdict == "pass"
    gate = failure([gave_up(number, 2, "running") for number in (0, 1)], words=words)
    assert gate.code == "step-hung"
