"""Each planted change is told once, by its name, with what it touches and what users read; all else is silent."""

from __future__ import annotations

import pytest

from lumisite.facts.tell import words
from tests.support.breaks import BREAKS, report_of
from tests.support.breaks.row import NOTHING


@pytest.mark.parametrize("name", BREAKS)
def test_a_planted_change_is_told_once_with_its_reason_and_its_words_for_users(name: str) -> None:
    row = BREAKS[name]
    report = report_of(row)
    told = [words(one.change) for one in report.changes]
    for said in (row.said, *row.also):
        assert [said in one for one in told].count(True) == 1, (said, told)
    assert len(told) == 1 + len(row.also), told
    named = next(one for one in report.changes if row.said in words(one.change))
    found: dict[tuple[str, str], str] = {(touch.what, touch.name): touch.why for touch in named.touches}
    for what, part, why in row.touched:
        assert why in found.get((what, part), ""), found
        assert (what, part) in found, found
    users = " ".join(" ".join(report.users).split())
    assert row.users in users
    assert (NOTHING in users) == (row.users == NOTHING)


def test_there_are_sixty_rows() -> None:
    assert len(BREAKS) >= 60
