"""The judge of `communicators`: who hangs and where, and what is no hang."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lumisite.validate.lines import Gate
from lumisite.validate.probes.communicators.judge import GROUPS, OPTIONS, communicators
from lumisite.validate.probes.probe import Backend, Line
from lumisite.validate.probes.suite import LIMITS_S
from tests.support.ranks import NODES, ended, expected, gate_of, rank, values
from tests.support.records import target_of

Record = dict[str, Any]


def rows(slow: float = 1.0, wrong: int = 0) -> list[Record]:
    """The groups of one rank; in the fifth some sums are wrong."""
    times = [(1.0, 10.0)] + [(0.25, 1.0)] * (GROUPS - 1)
    return [{"make_s": make * slow, "first_s": first * slow, "wrong": wrong if number == 4 else 0}
            for number, (make, first) in enumerate(times)]  # fmt: skip


def place(group: int, part: str) -> Record:
    return {"group": group, "part": part, "settings": {}}


def gave_up(number: int, group: int, part: str) -> Record:
    """The record of a rank that lost its patience."""
    hung = {"hung_time": 200.0, "hung_s": 100.0, "hung_at": f"{part} group {group} of 8"}
    return {**rank(number), **place(group, part), **hung}


def at(number: int, group: int, part: str, time: float = 200.0) -> Record:
    """What is left of a rank that was killed."""
    here = place(group, part) | {"phase": f"{part} group {group} of 8"} if group else {"phase": "loading PyTorch"}
    return {"host": NODES[number], "rank": number, "time": time, **here}


def judged(records: list[Record], code: int = 137, **changes: Any) -> list[Line]:
    left = replace(ended([*records], code), **{"seconds": 130.0, "stderr": (), **changes})
    left = replace(left, step=replace(left.step, limit_s=240))
    return list(communicators(target_of("lumi")).judge([left], expected("communicators")))


def failure(records: list[Record], code: int = 137, **changes: Any) -> Gate:
    gate = gate_of(judged(records, code, **changes))
    assert gate.verdict == "fail"
    return gate


def test_good_groups_pass_with_the_times_of_the_first_and_of_the_others() -> None:
    """The rank that came last made the group in the shortest time; the slower one ends the collective."""
    lines = judged([rank(0, groups=rows()), rank(1, groups=rows(slow=2.0))], 0)
    assert gate_of(lines).code == "checks-passed"
    assert values(lines) == {"communicators/first_group_s/2n": 21.0, "communicators/next_group_s/2n": 2.25}


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_a_rank_loses_its_patience_before_pytorch_and_before_the_step(backend: Backend) -> None:
    words = OPTIONS[backend].split()
    options = dict(zip(words[::2], map(int, words[1::2]), strict=True))
    assert options["--patience"] < options["--limit"]
    assert 2 * options["--patience"] < LIMITS_S[backend]


@pytest.mark.parametrize(
    ("other", "code", "message"),
    [
        (at(1, 3, "entering"), "step-hung", "hung while entering group 3 of 8"),
        (at(1, 2, "running"), "step-hung", "hung while running group 2 of 8"),
        (at(1, 0, ""), "step-hung", "hung while loading PyTorch"),
        (at(1, 3, "running", time=150.0), "step-hung", "fell silent while running group 3 of 8"),
        ({**gave_up(1, 3, "running"), "froze": True}, "step-hung", "fell silent while running group 3"),
        ({}, "record-missing", "no record is left after 100 s"),
    ],
)
def test_the_rank_that_did_not_get_there_is_named_and_no_other(other: Record, code: str, message: str) -> None:
    gate = failure([record for record in (gave_up(0, 3, "running"), other) if record])
    assert (gate.code, gate.nodes, gate.rank) == (code, NODES[1:], 1)
    assert message in gate.text
    assert "; 1 other rank waited" in gate.text


def test_the_end_of_the_steps_time_is_a_hang_and_who_never_began_comes_first() -> None:
    gate = failure([at(0, 3, "running"), at(1, 3, "running")], code=124, seconds=240.0)
    assert (gate.code, gate.values["ranks"]) == ("step-hung", "0-1")
    assert "no progress for 240 s" in gate.text
    newest = {"host": NODES[0], "rank": 2, "phase": "x", "time": 200.0}
    gate = failure([at(0, 3, "running", time=150.0), newest], code=124, seconds=240.0)
    assert (gate.code, gate.rank) == ("record-missing", 1)


def test_what_others_report_after_one_gave_up_is_no_error_of_theirs_and_an_error_before_is_the_cause() -> None:
    error = {**rank(0), **place(2, "running"), "error": "RuntimeError: boom", "error_at": "running group 2"}
    gate = failure([{**error, "error_time": 203.0}, gave_up(1, 2, "entering")])
    assert (gate.code, gate.rank) == ("step-hung", 1)
    gate = failure([{**error, "error_time": 150.0}, gave_up(1, 2, "entering")])
    assert gate.text == "rank 0 on nid000001: failed while running group 2: RuntimeError: boom"


def test_wrong_sums_are_reported_with_their_group_and_ranks() -> None:
    gate = failure([rank(0, groups=rows()), rank(1, groups=rows(wrong=3))], code=0)
    assert gate.code == "results-wrong"
    assert gate.text == "the first collective of group 5 gave wrong sums on rank 1 on nid000002"
