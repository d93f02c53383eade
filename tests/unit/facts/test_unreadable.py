"""What users may not read: reported alone, with the command that opens it, and hiding nothing else."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from lumisite.facts.capture import Captured, capture
from lumisite.facts.facts import Facts
from lumisite.facts.report import ChangeReport, make_report
from lumisite.machine.host import DiskTree
from tests.support.captured import LUMI
from tests.support.dict_trees import write_tree
from tests.support.nodes import AFTER, lumi_node

NOBODY = 65534
CXI = "/usr/lib64/libcxi.so.1.6.0"
MARK = "/opt/cray/pe/lmod/modulefiles/core/cray-mpich/.version"
SIF = f"/appl/local/laifs/containers/lumi-multitorch-{AFTER.image}"
BASE = {
    MARK: b'#%Module\nset ModulesVersion "8.1.32"\n',
    "/etc/slurm/slurm.conf": b"taskprolog=/etc/slurm/prolog.sh # each task\n",
    "/etc/slurm/prolog.sh": b"#!/bin/sh\n",
    "/etc/singularity/singularity.conf": b"mount home = yes\n",
}
#: What is closed: a library, folders above some, an image, what is deployed, a file of Slurm, and folders of the system.
CLOSED = (
    CXI,
    "/opt/cray/libfabric/1.22.0",
    "/usr/lib64",
    f"{SIF}/lumi-multitorch-full-{AFTER.image}.sif",
    "/appl/local/lumisite",
    "/etc/slurm/prolog.sh",
    "/etc",
    "/boot",
    MARK,
)


@pytest.fixture(name="root", scope="module")
def _root() -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("another user can only be tried by root")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield write_tree(Path(folder) / "node", lumi_node(AFTER, BASE))


@contextmanager
def closed(place: Path) -> Iterator[str]:
    mode = place.stat().st_mode
    place.chmod(0o700 if place.is_dir() else 0o600)
    try:
        yield f"chmod o+{'rx' if place.is_dir() else 'r'} {place}"
    finally:
        place.chmod(mode)


def captured(root: Path, user: int) -> Captured:
    os.seteuid(user)
    try:
        return capture(DiskTree(str(root)), LUMI)
    finally:
        os.seteuid(0)


def found(report: ChangeReport) -> list[tuple[str, str]]:
    return [(one.kind, one.subject) for one in report.changes]


@pytest.fixture(name="readable", scope="module")
def _readable(root: Path) -> list[Facts]:
    return [captured(root, user).facts for user in (0, NOBODY)]


@pytest.mark.parametrize("path", CLOSED)
def test_what_users_cannot_read_is_reported_alone_with_the_command(
    path: str, root: Path, readable: list[Facts]
) -> None:
    with closed(root / path[1:]) as command:
        after = [captured(root, user) for user in (0, NOBODY)]
    for one, users in zip(after, ("other users", "you"), strict=True):
        findings = [finding for finding in one.findings if finding.advice == command]
        assert [(finding.code, finding.subject, finding.message) for finding in findings] == [
            ("facts-incomplete", path, f"cannot be read by {users}")
        ]
        for old in readable:
            (change,) = make_report(old, one.facts, LUMI).changes
            assert (change.kind, change.subject, change.after) == ("unreadable", path, command)
            assert found(make_report(one.facts, old, LUMI)) == [("unreadable", path)]
    assert found(make_report(after[0].facts, after[1].facts, LUMI)) == []


def test_what_else_changes_beside_a_closed_file_is_reported(root: Path) -> None:
    before = captured(root, NOBODY).facts
    with closed(root / CXI[1:]):
        after = captured(root, NOBODY).facts
    gone = {path: one for path, one in after.interfaces.items() if path != "hsn3"}
    report = make_report(before, replace(after, interfaces=gone), LUMI)
    assert found(report) == [("unreadable", CXI), ("interface", "hsn3")]
    assert any(CXI in line for line in report.users)
    assert ("plan", "lumi-rocm") in {(touch.what, touch.name) for touch in report.changes[0].touches}
