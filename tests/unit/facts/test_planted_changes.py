"""Each planted change is reported by its code, with what it touches, and a harmless pair is silent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from lumisite.facts.capture import capture
from lumisite.facts.compare import compare
from lumisite.facts.report import make_report
from lumisite.findings.finding import Severity
from lumisite.machine.host import DiskTree
from tests.support.breaks import BREAKS, LUMI, facts_of, report_of
from tests.support.breaks.harmless import HARMLESS, ON_DISK
from tests.support.breaks.row import Plant
from tests.support.dict_trees import Link, write_tree
from tests.support.nodes import AFTER, lumi_node


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


# Links that are broken: one finding, whatever was below them and wherever they led

CRAY = {path: content for path, content in lumi_node().items() if path.startswith("/opt/cray/")}
NO_CRAY: Plant = dict.fromkeys(CRAY)
#: The same node with all of it elsewhere, and a link.
LINKED: Plant = {
    **NO_CRAY,
    **{path.replace("/opt/cray/", "/vendor/hpe/24.11/"): content for path, content in CRAY.items()},
    "/opt/cray": Link("/vendor/hpe/24.11"),
}
NO_PE: Plant = {path: None for path in CRAY if path.startswith("/opt/cray/pe/")}
BROKEN: Mapping[str, tuple[Plant, Plant, str, str]] = {
    "a link in the place of a folder": (
        {}, {**NO_CRAY, "/opt/cray": Link("/opt/hpe/cray")}, "/opt/cray", "/opt/hpe/cray",
    ),
    "a link of which the folder went": (
        LINKED, {**NO_CRAY, "/opt/cray": Link("/vendor/hpe/24.11")}, "/opt/cray", "/vendor/hpe/24.11",
    ),
    "a link in a folder": ({}, {**NO_PE, "/opt/cray/pe": Link("../hpe/pe")}, "/opt/cray/pe", "/opt/hpe"),
    "a link to itself": ({}, {**NO_CRAY, "/opt/cray": Link("/opt/cray")}, "/opt/cray", "/opt/cray"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_link_is_one_finding(name: str) -> None:
    before, after = (facts_of(lumi_node(AFTER, plant)) for plant in BROKEN[name][:2])
    (change,) = make_report(before, after, LUMI).changes
    assert (change.kind, change.subject, change.after) == ("dangling", *BROKEN[name][2:])
    assert change.severity is Severity.FAULT
    assert ("module", "singularity-CPEbits") in {(touch.what, touch.name) for touch in change.touches}
    (mended,) = compare(after, before)
    assert (mended.kind, mended.subject, mended.before) == ("dangling", *BROKEN[name][2:])


def test_what_else_changed_is_reported_beside_a_broken_link() -> None:
    plant = {**BROKEN["a link in the place of a folder"][1], "/etc/os-release": b"PRETTY_NAME=x\n"}
    codes = [change.kind for change in compare(facts_of(lumi_node()), facts_of(lumi_node(AFTER, plant)))]
    assert codes == ["dangling", "os"]
