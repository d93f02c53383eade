"""What a node has by name: each planted change is told once with what it touches, and what is harmless is silent."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from lumisite.facts import libraries
from lumisite.facts.capture import Captured, capture
from lumisite.facts.facts import Facts, format_facts
from lumisite.facts.report import ChangeReport, make_report
from lumisite.machine.host import DiskTree
from lumisite.site.load import load_site
from tests.support.dict_trees import DictTree, Link, write_tree
from tests.support.nodes import AFTER, NodeFiles, lumi_node

LUMI = load_site("lumi").site
Plant = Mapping[str, bytes | Link | None]
HSN0 = "/sys/devices/pci0000:00/0000:00:01.1/0000:c2:00.0/net/hsn0"
HUGE = "/sys/kernel/mm/hugepages/hugepages-2048kB"
CORE = "/opt/cray/pe/lmod/modulefiles/core"
CXI, JSON = "/usr/lib64/libcxi.so.1.6.0", "/usr/lib64/libjson-c.so.5"
LIB64, MPICH = "/opt/cray/pe/lib64", "/opt/cray/pe/mpich"
CONF = b"""# the site's own
ClusterName=lumi
taskprolog=/etc/slurm/prolog.sh # each task
include more.conf
"""
BASE: dict[str, bytes | Link] = {
    f"{HSN0}/mtu": b"9000\n",
    "/proc/cmdline": b"BOOT_IMAGE=/boot/a root=/dev/sda1 iommu=pt nosmt isolcpus=0,8 crashkernel=1G spire_join_token=s3cr3t\n",
    "/proc/sys/vm/unprivileged_userfaultfd": b"1\n",
    "/proc/sys/kernel/numa_balancing": b"0\n",
    f"{HUGE}/nr_hugepages": b"512\n",
    f"{HUGE}/surplus_hugepages": b"0\n",
    f"{HUGE}/nr_overcommit_hugepages": b"64\n",
    f"{HUGE}/free_hugepages": b"500\n",
    "/sys/kernel/mm/transparent_hugepage/enabled": b"always [madvise] never\n",
    "/sys/module/cxi_ss1/version": b"1.0.3\n",
    "/sys/module/cxi_ss1/srcversion": b"AAAA\n",
    "/sys/module/kdreg2/srcversion": b"BBBB\n",
    "/sys/module/loop/srcversion": b"CCCC\n",
    f"{CORE}/cray-mpich/.version": b'#%Module\nset ModulesVersion "8.1.32"\n',
    f"{CORE}/cray-mpich/8.1.32.lua": b"",
    f"{CORE}/gcc/.modulerc.lua": b'module_version("gcc/13.2", "default")\n',
    f"{CORE}/rocm/.modulerc": b"#%Module\nmodule-version rocm/6.3.4 default\n",
    f"{CORE}/papi/default": Link("7.1.lua"),
    f"{CORE}/papi/7.1.lua": b"",
    "/etc/slurm/slurm.conf": CONF,
    "/etc/slurm/more.conf": b"SwitchType=switch/hpe_slingshot\nNodeName=nid[1-9] CPUs=128\n",
    "/etc/slurm/prolog.sh": b"#!/bin/sh\n",
    "/etc/slurm/plugstack.conf": b"include plugstack.conf.d/*.conf\n",
    "/etc/slurm/plugstack.conf.d/lua.conf": b"optional  spank_lua.so  a=1\n",
    "/usr/lib64/slurm/spank_lua.so": b"one",
    f"{LIB64}/libmpi_gnu_123.so.12": Link(f"{MPICH}/8.1.32/ofi/gnu/12.3/lib/libmpi_gnu_123.so.12"),
    f"{LIB64}/libmpi_gtl_hsa.so.0": Link(f"{MPICH}/8.1.32/gtl/lib/libmpi_gtl_hsa.so.0"),
    "/etc/singularity/singularity.conf": b"# a comment\nmount home = yes\n",
    "/usr/libexec/singularity/bin/starter-suid": b"starter",
}


def padded(path: str, byte: bytes) -> bytes:
    content = lumi_node()[path]
    assert isinstance(content, bytes)
    return content + byte * 8


def rebuilt(path: str) -> Plant:
    """The same file with other bytes behind it; the node itself has `a`."""
    return {path: padded(path, b"b")}


#: What is planted; the code and the subject of the change; what it touches.
CHANGES: Mapping[str, tuple[Plant, tuple[str, str], set[tuple[str, str]]]] = {
    "MTU": (
        {f"{HSN0}/mtu": b"1500\n"},
        ("interface", "hsn0"),
        {("site", "fabric.interfaces"), ("setting", "NCCL_SOCKET_IFNAME")},
    ),
    "no IOMMU": (
        {"/proc/cmdline": b"root=/dev/sda1 nosmt isolcpus=0,8 crashkernel=1G"},
        ("kernel-parameter", "iommu"),
        {("site", "platforms.2026-01.kernel")},
    ),
    "userfaultfd": (
        {"/proc/sys/vm/unprivileged_userfaultfd": b"0\n"},
        ("kernel-setting", "vm.unprivileged_userfaultfd"),
        {("setting", "FI_MR_CACHE_MONITOR")},
    ),
    "fewer huge pages": (
        {f"{HUGE}/nr_hugepages": b"0\n"},
        ("kernel-setting", "hugepages-2048kB"),
        set(),
    ),
    "transparent huge pages": (
        {"/sys/kernel/mm/transparent_hugepage/enabled": b"[always] madvise never\n"},
        ("kernel-setting", "transparent_hugepage"),
        set(),
    ),
    "driver of the network": (
        {"/sys/module/cxi_ss1/version": b"1.1.0\n"},
        ("kernel-module", "cxi_ss1"),
        {("site", "fabric.interfaces")},
    ),
    "default by .version": (
        {f"{CORE}/cray-mpich/.version": b"#%Module1.0\nset  ModulesVersion 9.0.1\n"},
        ("module-default", "/opt/cray/pe/lmod/modulefiles/core/cray-mpich"),
        {("site", "platforms.2026-01.stacks.cpe.default")},
    ),
    "default by link": (
        {f"{CORE}/papi/default": Link("7.2.lua"), f"{CORE}/papi/7.2.lua": b""},
        ("module-default", "/opt/cray/pe/lmod/modulefiles/core/papi"),
        set(),
    ),
    "TaskProlog": (
        {"/etc/slurm/slurm.conf": CONF.replace(b"prolog.sh", b"other.sh"), "/etc/slurm/other.sh": b""},
        ("slurm-conf", "TaskProlog"),
        {("helper", "spank/task_prolog")},
    ),
    "lib64 led elsewhere": (
        {f"{LIB64}/libmpi_gnu_123.so.12": Link(f"{MPICH}/9.0.1/ofi/gnu/12.3/lib/libmpi_gnu_123.so.12")},
        ("links", "/opt/cray/pe/lib64"),
        {("module", "singularity-CPEbits")},
    ),
    "library rebuilt to the same size": (
        rebuilt(CXI),
        ("library", "libcxi.so.1"),
        {("plan", "lumi-rocm")},
    ),
}
HARMLESS: Mapping[str, Plant] = {
    "another boot": {
        "/proc/cmdline": b"BOOT_IMAGE=/boot/b  nosmt root=UUID=12 crashkernel=1G isolcpus=0,8 iommu=pt spire_join_token=x nid=5001\n"
    },
    "pages beyond the pool": {
        f"{HUGE}/nr_hugepages": b"530\n",
        f"{HUGE}/surplus_hugepages": b"18\n",
        f"{HUGE}/free_hugepages": b"1\n",
    },
    "blanks in plugstack.conf": {"/etc/slurm/plugstack.conf.d/lua.conf": b"# one\noptional spank_lua.so a=1\n\n"},
    "a comment in singularity.conf": {"/etc/singularity/singularity.conf": b"mount home  = yes\n# the end\n"},
}


def node_files(plant: Plant | None = None) -> NodeFiles:
    files = lumi_node(AFTER, BASE)
    files |= {path: padded(path, b"a") for path in (CXI, JSON, "/usr/bin/singularity")}
    for path, planted in (plant or {}).items():
        files.pop(path, None)
        if planted is not None:
            files[path] = planted
    return files


def facts_of(plant: Plant | None = None) -> Facts:
    return capture(DictTree(node_files(plant)), LUMI).facts


@pytest.fixture(name="node", scope="module")
def _node() -> Facts:
    return facts_of()


def told(report: ChangeReport) -> list[tuple[str, str]]:
    return [(one.kind, one.subject) for one in report.changes]


@pytest.mark.parametrize("name", CHANGES)
def test_a_planted_change_is_told_alone_with_what_it_touches(name: str, node: Facts) -> None:
    plant, change, touched = CHANGES[name]
    report = make_report(node, facts_of(plant), LUMI)
    assert told(report) == [change]
    assert touched <= {(touch.what, touch.name) for touch in report.changes[0].touches}


@pytest.mark.parametrize("name", HARMLESS)
def test_a_harmless_difference_is_silent(name: str, node: Facts) -> None:
    assert told(make_report(node, facts_of(HARMLESS[name]), LUMI)) == []


def test_a_capture_holds_no_secret(node: Facts) -> None:
    assert "s3cr3t" not in format_facts(node)


def test_a_part_that_one_capture_lacks_is_not_known(node: Facts) -> None:
    old = replace(node, texts={}, libraries={path: replace(one, sha256=None) for path, one in node.libraries.items()})
    assert told(make_report(old, node, LUMI)) == told(make_report(node, old, LUMI)) == []


def test_a_large_library_is_known_by_its_size_alone(node: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
    smallest = min(library.size_bytes for library in node.libraries.values())
    monkeypatch.setattr(libraries, "_LARGEST_DIGEST_BYTES", smallest)
    captured = capture(DictTree(node_files()), LUMI)
    assert [one.size_bytes for one in captured.facts.libraries.values() if one.sha256] == [smallest]
    assert told(make_report(node, captured.facts, LUMI)) == []


# What users may not read

NOBODY = 65534
SIF = f"/appl/local/laifs/containers/lumi-multitorch-{AFTER.image}"
#: What is closed: a library and one that is only needed by others, folders above them, an image, what is deployed, files
#: of Slurm, and a file system that is only looked at.
CLOSED = (
    CXI,
    "/opt/cray/libfabric/1.22.0/lib64/libfabric.so.1",
    "/opt/cray/libfabric/1.22.0",
    "/usr/lib64",
    f"{SIF}/lumi-multitorch-full-{AFTER.image}.sif",
    "/appl/local/lumisite",
    "/etc/slurm/prolog.sh",
    "/etc",
    "/boot",
    f"{CORE}/cray-mpich/.version",
)


@pytest.fixture(name="root", scope="module")
def _root() -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("another user can only be tried by root")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield write_tree(Path(folder) / "node", node_files())


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


@pytest.fixture(name="readable", scope="module")
def _readable(root: Path) -> list[Facts]:
    return [captured(root, user).facts for user in (0, NOBODY)]


@pytest.mark.parametrize("path", CLOSED)
def test_what_users_cannot_read_is_told_alone_with_the_command(path: str, root: Path, readable: list[Facts]) -> None:
    with closed(root / path[1:]) as command:
        after = [captured(root, user) for user in (0, NOBODY)]
    for one, users in zip(after, ("other users", "you"), strict=True):
        found = [finding for finding in one.findings if finding.advice == command]
        assert [(finding.code, finding.subject, finding.message) for finding in found] == [
            ("facts-incomplete", path, f"cannot be read by {users}")
        ]
        for old in readable:
            (change,) = make_report(old, one.facts, LUMI).changes
            assert (change.kind, change.subject, change.after) == ("unreadable", path, command)
            assert told(make_report(one.facts, old, LUMI)) == [("unreadable", path)]
    assert told(make_report(after[0].facts, after[1].facts, LUMI)) == []


def test_what_else_changes_beside_a_closed_file_is_told(root: Path) -> None:
    before = captured(root, NOBODY).facts
    with closed(root / CXI[1:]):
        after = captured(root, NOBODY).facts
    gone = {path: one for path, one in after.interfaces.items() if path != "hsn3"}
    said = told(make_report(before, replace(after, interfaces=gone), LUMI))
    assert said == [("unreadable", CXI), ("interface", "hsn3")]
    report = make_report(before, after, LUMI)
    assert any(CXI in line for line in report.users)
    assert ("plan", "lumi-rocm") in {(touch.what, touch.name) for touch in report.changes[0].touches}
