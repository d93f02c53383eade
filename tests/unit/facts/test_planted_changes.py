"""Each planted change is reported once, by its code, with what it touches and whether users read of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lumisite.facts.capture import capture
from lumisite.facts.report import compare
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
    assert ("This is what it means" in report.users[0]) == row.users


@pytest.mark.parametrize(
    ("name", "part", "why"),
    [
        ("hand-edited modulefile", "singularity-CPEbits/25.03", "differs from what was rendered"),
        ("another release", "singularity-AI-bindings", "the release that `current` leads to"),
        ("vanished interface", "NCCL_SOCKET_IFNAME", "its value contains hsn3"),
        ("CPE", "stacks.cpe.releases", "does not name 27.03"),
    ],
)
def test_a_change_names_why_a_part_is_touched(name: str, part: str, why: str) -> None:
    row = BREAKS[name]
    change = next(change for change in report_of(row).changes if (change.kind, change.subject) == row.change)
    touched = next(touched for touched in change.touches if touched.name == part)
    assert why in touched.why


@pytest.mark.parametrize("name", HARMLESS)
def test_a_harmless_pair_is_silent(name: str) -> None:
    row = HARMLESS[name]
    assert {**row.both, **row.files} != row.both
    report = report_of(row)
    assert report.changes == ()
    assert "Nothing changed" in report.users[0]


@pytest.mark.parametrize("name", ON_DISK)
def test_a_harmless_pair_on_disk_is_silent(name: str, tmp_path: Path) -> None:
    before, after = (write_tree(tmp_path / one, lumi_node()) for one in ("before", "after"))
    ON_DISK[name](after)
    one, other = (capture(DiskTree(str(top)), LUMI).facts for top in (before, after))
    assert compare(one, other) == ()
    assert compare(one, replace(other, searched=())) == ()
