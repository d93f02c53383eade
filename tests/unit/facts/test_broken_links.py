"""A link that is broken is one finding, whatever was below it and wherever it led."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from lumisite.facts.facts import Facts
from lumisite.facts.report import compare, make_report
from lumisite.findings.finding import Severity
from tests.support.breaks import LUMI, facts_of
from tests.support.breaks.row import Plant
from tests.support.dict_trees import Link
from tests.support.nodes import AFTER, lumi_node

CRAY = {path: content for path, content in lumi_node().items() if path.startswith("/opt/cray/")}
NO_CRAY: Plant = dict.fromkeys(CRAY)
#: The same node with all of it elsewhere, and a link.
LINKED: Plant = {
    **NO_CRAY,
    **{path.replace("/opt/cray/", "/vendor/hpe/24.11/"): content for path, content in CRAY.items()},
    "/opt/cray": Link("/vendor/hpe/24.11"),
}
PE: Plant = {path: None for path in CRAY if path.startswith("/opt/cray/pe/")}


def node(plant: Plant) -> Facts:
    return facts_of(lumi_node(AFTER, plant))


BROKEN: Mapping[str, tuple[Plant, Plant, str, str]] = {
    "a link in the place of a folder": ({}, {**NO_CRAY, "/opt/cray": Link("/opt/hpe/cray")}, "/opt/cray", "/opt/hpe/cray"),
    "a link of which the folder went": (
        LINKED,
        {**NO_CRAY, "/opt/cray": Link("/vendor/hpe/24.11")},
        "/opt/cray",
        "/vendor/hpe/24.11",
    ),
    "a link that leads to nothing now": (LINKED, {**LINKED, "/opt/cray": Link("/vendor/25.03")}, "/opt/cray", "/vendor/25.03"),
    "a link in a folder": ({}, {**PE, "/opt/cray/pe": Link("../hpe/pe")}, "/opt/cray/pe", "/opt/hpe"),
    "a folder above what is stated": (
        {},
        {**dict.fromkeys(path for path in CRAY if "/mpich/" in path), "/opt/cray/pe/mpich": Link("/gone")},
        "/opt/cray/pe/mpich",
        "/gone",
    ),
    "a link to itself": ({}, {**NO_CRAY, "/opt/cray": Link("/opt/cray")}, "/opt/cray", "/opt/cray"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_link_is_one_finding(name: str) -> None:
    before, after, link, target = BROKEN[name]
    (change,) = make_report(node(before), node(after), LUMI).changes
    assert (change.kind, change.subject, change.after) == ("dangling", link, target)
    assert change.severity is Severity.FAULT
    assert ("module", "singularity-CPEbits") in {(touch.what, touch.name) for touch in change.touches}
    (mended,) = compare(node(after), node(before))
    assert (mended.kind, mended.subject, mended.before) == ("dangling", link, target)


def test_what_else_changed_is_reported_beside_it() -> None:
    before, after, *_ = BROKEN["a link of which the folder went"]
    other = {**after, "/etc/os-release": b"PRETTY_NAME=x\n", "/usr/bin/singularity": b"another"}
    codes = [change.kind for change in compare(node(before), node(other))]
    assert codes == ["dangling", "runtime", "os"]


def test_a_file_system_that_is_not_mounted_is_the_cause_of_links_that_are_broken() -> None:
    table = "20 1 0:20 / / rw - overlay overlay rw\n"
    line = "21 20 0:21 / /pfs/lustrep1 rw - lustre 10.0.0.1@o2ib:/p1 rw,flock\n"
    link: Plant = {"/scratch": Link("/pfs/lustrep1/scratch"), "/pfs/lustrep1/scratch/x": b""}
    mounted: Plant = {**link, "/proc/self/mountinfo": f"{table}{line}".encode()}
    not_mounted: Plant = {**link, "/pfs/lustrep1/scratch/x": None, "/proc/self/mountinfo": table.encode()}
    found = compare(node(mounted), node(not_mounted))
    assert [(change.kind, change.subject) for change in found] == [("mounts", "/pfs/lustrep1")]
