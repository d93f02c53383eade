"""Each planted change is told once, by its name, with what it touches and what users read; all else is silent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lumisite.facts.capture import capture
from lumisite.facts.compare import compare
from lumisite.facts.tell import words
from lumisite.machine.host import DiskTree
from tests.support.breaks import BREAKS, LUMI, facts_of, report_of
from tests.support.breaks.harmless import HARMLESS, ON_DISK
from tests.support.breaks.row import NOTHING
from tests.support.dict_trees import write_tree
from tests.support.elves import elf
from tests.support.nodes import AFTER, lumi_node


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


@pytest.mark.parametrize("name", HARMLESS)
def test_a_harmless_pair_is_silent(name: str) -> None:
    row = HARMLESS[name]
    assert {**row.both, **row.files} != row.both
    report = report_of(row)
    assert [words(one.change) for one in report.changes] == []
    assert report.users[0] == NOTHING


@pytest.mark.parametrize("name", ON_DISK)
def test_a_harmless_pair_on_disk_is_silent(name: str, tmp_path: Path) -> None:
    before, after = (write_tree(tmp_path / one, lumi_node()) for one in ("before", "after"))
    ON_DISK[name](after)
    one, other = (capture(DiskTree(str(top)), LUMI).facts for top in (before, after))
    assert [words(change) for change in compare(one, other)] == []


def test_a_capture_of_before_symbol_versions_were_captured_is_no_change() -> None:
    facts = facts_of(lumi_node(AFTER, {"/usr/lib64/libjson-c.so.3": elf("libjson-c.so.3")}))
    libraries = {path: replace(one, gives=None) for path, one in facts.libraries.items()}
    assert compare(replace(facts, libraries=libraries, beside=()), facts) == ()


def test_there_are_forty_harmless_pairs() -> None:
    assert len(HARMLESS) + len(ON_DISK) >= 40
