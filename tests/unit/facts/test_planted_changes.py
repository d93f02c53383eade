"""Each planted change is reported by its code, with what it touches, and a harmless pair is silent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lumisite.facts.capture import capture
from lumisite.facts.compare import compare
from lumisite.findings.finding import Severity
from lumisite.machine.host import DiskTree
from tests.support.breaks import BREAKS, LUMI, report_of
from tests.support.breaks.harmless import HARMLESS, ON_DISK
from tests.support.dict_trees import write_tree
from tests.support.nodes import lumi_node


@pytest.mark.parametrize("name", BREAKS)
def test_a_planted_change_is_reported_once(name: str) -> None:
    row = BREAKS[name]
    report = report_of(row)
    assert sorted((one.kind, one.subject) for one in report.changes) == sorted((row.change, *row.also))
    planted = next(one for one in report.changes if (one.kind, one.subject) == row.change)
    assert {*row.touched} <= {(touched.what, touched.name) for touched in planted.touches}
    assert "Nothing changed" not in report.users[0] or planted.severity is Severity.INFO
    assert planted.advice or planted.severity is Severity.INFO


@pytest.mark.parametrize("name", HARMLESS)
def test_a_harmless_pair_is_silent(name: str) -> None:
    report = report_of(HARMLESS[name])
    assert report.changes == ()
    assert "Nothing changed" in report.users[0]


@pytest.mark.parametrize("name", ON_DISK)
def test_a_harmless_pair_on_disk_is_silent(name: str, tmp_path: Path) -> None:
    before, after = (write_tree(tmp_path / one, lumi_node()) for one in ("before", "after"))
    ON_DISK[name](after)
    one, other = (capture(DiskTree(str(top)), LUMI).facts for top in (before, after))
    assert compare(one, other) == ()
    assert compare(one, replace(other, searched=())) == ()
