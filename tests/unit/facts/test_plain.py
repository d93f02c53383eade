"""What a node has by name: each planted change is told once with what it touches, and what is harmless is silent."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from lumisite.facts import capture_plain
from lumisite.facts.capture import Captured, capture
from lumisite.facts.compare import compare
from lumisite.facts.facts import Facts, Plain, format_facts, parse_facts
from lumisite.facts.tell import Report, make_report, words
from lumisite.machine.host import DiskTree
from lumisite.site.load import load_site
from tests.support.breaks.row import NOTHING
from tests.support.dict_trees import DictTree, Link, write_tree
from tests.support.nodes import AFTER, MODULEFILE, RELEASE, NodeFiles, lumi_node

LUMI = load_site("lumi").site
Plant = Mapping[str, bytes | Link | None]
HSN0 = "/sys/devices/pci0000:00/0000:00:01.1/0000:c2:00.0/net/hsn0"
HUGE = "/sys/kernel/mm/hugepages/hugepages-2048kB"
CORE = "/opt/cray/pe/lmod/modulefiles/core"
CXI, JSON = "/usr/lib64/libcxi.so.1.6.0", "/usr/lib64/libjson-c.so.5"
LIB64 = "/opt/cray/pe/lib64"
MPICH = "/opt/cray/pe/mpich"
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


#: What is planted; what is said of it; what it touches.
CHANGES: Mapping[str, tuple[Plant, str, set[tuple[str, str]]]] = {
    "MTU": (
        {f"{HSN0}/mtu": b"1500\n"},
        "interface hsn0: mtu 9000 -> 1500",
        {("site", "fabric.interfaces"), ("setting", "NCCL_SOCKET_IFNAME")},
    ),
    "MTU beyond": ({f"{HSN0}/mtu": b"9216\n"}, "interface hsn0: mtu 9000 -> 9216", {("site", "fabric.interfaces")}),
    "no IOMMU": (
        {"/proc/cmdline": b"root=/dev/sda1 nosmt isolcpus=0,8 crashkernel=1G"},
        "kernel parameter iommu: iommu=pt -> none",
        {("site", "platforms.2026-01.kernel")},
    ),
    "isolated CPUs": (
        {"/proc/cmdline": b"iommu=pt nosmt isolcpus=0 crashkernel=1G"},
        "kernel parameter isolcpus: isolcpus=0,8 -> isolcpus=0",
        set(),
    ),
    "a parameter more": (
        {"/proc/cmdline": b"iommu=pt nosmt isolcpus=0,8 crashkernel=1G amdgpu.noretry=0"},
        "kernel parameter amdgpu.noretry: none -> amdgpu.noretry=0",
        set(),
    ),
    "userfaultfd": (
        {"/proc/sys/vm/unprivileged_userfaultfd": b"0\n"},
        "sysctl vm.unprivileged_userfaultfd: 1 -> 0",
        {("setting", "FI_MR_CACHE_MONITOR")},
    ),
    "NUMA balancing": ({"/proc/sys/kernel/numa_balancing": b"1\n"}, "sysctl kernel.numa_balancing: 0 -> 1", set()),
    "fewer huge pages": (
        {f"{HUGE}/nr_hugepages": b"0\n"},
        "hugepages 2048kB: 512 reserved, 64 on demand -> 0 reserved, 64 on demand",
        {("setting", "FI_CXI_DISABLE_CQ_HUGETLB"), ("setting", "CXI_FORK_SAFE_HP")},
    ),
    "transparent huge pages": (
        {"/sys/kernel/mm/transparent_hugepage/enabled": b"[always] madvise never\n"},
        "hugepages transparent: madvise -> always",
        {("setting", "CXI_FORK_SAFE_HP")},
    ),
    "driver of the network": (
        {"/sys/module/cxi_ss1/version": b"1.1.0\n"},
        "kernel module cxi_ss1: 1.0.3 (build AAAA) -> 1.1.0 (build AAAA)",
        {("site", "fabric.interfaces")},
    ),
    "kdreg2 built anew": (
        {"/sys/module/kdreg2/srcversion": b"DDDD\n"},
        "kernel module kdreg2: (build BBBB) -> (build DDDD)",
        {("site", "fabric.interfaces")},
    ),
    "default by .version": (
        {f"{CORE}/cray-mpich/.version": b"#%Module1.0\nset  ModulesVersion 9.0.1\n"},
        f"default version of the modules in {CORE}/cray-mpich: 8.1.32 -> 9.0.1",
        {("site", "platforms.2026-01.stacks.cpe.default")},
    ),
    "default by .modulerc.lua": (
        {f"{CORE}/gcc/.modulerc.lua": b"module_version('gcc/14.1','default')\n"},
        f"default version of the modules in {CORE}/gcc: gcc/13.2 -> gcc/14.1",
        {("site", "platforms.2026-01.stacks.cpe.default")},
    ),
    "default by .modulerc": (
        {f"{CORE}/rocm/.modulerc": b"module-version rocm/7.0 default\n"},
        f"default version of the modules in {CORE}/rocm: rocm/6.3.4 -> rocm/7.0",
        set(),
    ),
    "default by link": (
        {f"{CORE}/papi/default": Link("7.2.lua"), f"{CORE}/papi/7.2.lua": b""},
        f"default version of the modules in {CORE}/papi: 7.1 -> 7.2",
        set(),
    ),
    "no default": (
        {f"{CORE}/papi/default": None},
        f"default version of the modules in {CORE}/papi: 7.1 -> none",
        set(),
    ),
    "TaskProlog": (
        {"/etc/slurm/slurm.conf": CONF.replace(b"prolog.sh", b"other.sh"), "/etc/slurm/other.sh": b""},
        "Slurm's TaskProlog: /etc/slurm/prolog.sh (sha256",
        {("helper", "spank/task_prolog")},
    ),
    "TaskProlog edited": (
        {"/etc/slurm/prolog.sh": b"#!/bin/sh\necho export X=1\n"},
        "Slurm's TaskProlog: /etc/slurm/prolog.sh (sha256",
        {("helper", "spank/task_prolog")},
    ),
    "plugin more": (
        {"/etc/slurm/plugstack.conf.d/pyxis.conf": b"required /opt/pyxis.so\n"},
        "Slurm's plugstack /opt/pyxis.so: none -> required /opt/pyxis.so",
        {("helper", "spank/task_prolog")},
    ),
    "plugin replaced": (
        {"/usr/lib64/slurm/spank_lua.so": b"two"},
        "Slurm's plugstack spank_lua.so: optional spank_lua.so a=1 (sha256",
        set(),
    ),
    "included": (
        {"/etc/slurm/more.conf": b"SwitchType=switch/none\n"},
        "Slurm's SwitchType: switch/hpe_slingshot -> switch/none",
        set(),
    ),
    "lib64 led elsewhere": (
        {f"{LIB64}/libmpi_gnu_123.so.12": Link(f"{MPICH}/9.0.1/ofi/gnu/12.3/lib/libmpi_gnu_123.so.12")},
        f"{LIB64} leads elsewhere: {MPICH}/8.1.32 (2 links) -> {MPICH}/8.1.32 (1 links), {MPICH}/9.0.1 (1 links)",
        {("module", "singularity-CPEbits")},
    ),
    "lib64 that is a link": (
        {
            f"{LIB64}/libmpi_gnu_123.so.12": None,
            f"{LIB64}/libmpi_gtl_hsa.so.0": None,
            LIB64: Link(f"{MPICH}/8.1.32/gtl/lib"),
        },
        f"{LIB64} leads elsewhere: {MPICH}/8.1.32 (2 links) -> {MPICH}/8.1.32/gtl/lib",
        {("module", "singularity-CPEbits")},
    ),
    "configuration of the runtime": (
        {"/etc/singularity/singularity.conf": b"mount home = no\n"},
        "runtime file /etc/singularity/singularity.conf: sha256",
        {("helper", "spank/bin")},
    ),
    "starter": (
        {"/usr/libexec/singularity/bin/starter-suid": b"changed"},
        "runtime file /usr/libexec/singularity/bin/starter-suid: sha256",
        {("helper", "spank/bin")},
    ),
    "library rebuilt to the same size": (
        rebuilt(CXI),
        f"libcxi.so.1: another file under the same name, {CXI} (other content of the same size, sha256",
        {("plan", "lumi-pytorch")},
    ),
    "need rebuilt to the same size": (
        rebuilt(JSON),
        f"libjson-c.so.5: another file under the same name, {JSON} (other content of the same size, sha256",
        {("plan", "lumi-pytorch")},
    ),
    "runtime rebuilt to the same size": (
        rebuilt("/usr/bin/singularity"),
        "container runtime: /usr/bin/singularity, ",
        {("site", "runtimes.singularity.variant"), ("helper", "spank/bin")},
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
    "a module that carries no traffic": {"/sys/module/loop/srcversion": b"EEEE\n"},
    "a comment beside a default": {
        f"{CORE}/cray-mpich/.version": b'#%Module\n# set ModulesVersion "1"\nset ModulesVersion "8.1.32"\n'
    },
    "a version beside the default": {f"{CORE}/cray-mpich/8.1.33.lua": b""},
    "a comment in slurm.conf": {
        "/etc/slurm/slurm.conf": b"# new\nTaskProlog = /etc/slurm/prolog.sh\nInclude more.conf\nNodeName=x\n"
    },
    "blanks in plugstack.conf": {"/etc/slurm/plugstack.conf.d/lua.conf": b"# one\noptional spank_lua.so a=1\n\n"},
    "a link of the same release": {
        f"{LIB64}/libmpi_gtl_hsa.so.0": Link(f"{MPICH}/8.1.32/ofi/gnu/12.3/lib/libmpi_gnu_123.so.12")
    },
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


def told(report: Report) -> list[str]:
    return [words(one.change) for one in report.changes]


@pytest.mark.parametrize("name", CHANGES)
def test_a_planted_change_is_told_alone_with_what_it_touches(name: str, node: Facts) -> None:
    plant, said, touched = CHANGES[name]
    report = make_report(node, facts_of(plant), LUMI)
    assert len(report.changes) == 1, told(report)
    assert said in told(report)[0]
    assert touched <= {(touch.what, touch.name) for touch in report.changes[0].touches}
    assert (NOTHING in " ".join(report.users)) == (not report.changes[0].touches)


@pytest.mark.parametrize("name", HARMLESS)
def test_a_harmless_difference_is_silent(name: str, node: Facts) -> None:
    assert told(make_report(node, facts_of(HARMLESS[name]), LUMI)) == []


def test_each_part_has_a_planted_change_and_a_capture_holds_no_secret(node: Facts) -> None:
    seen = {change.kind for plant, _, _ in CHANGES.values() for change in compare(node, facts_of(plant))}
    assert seen >= {*get_args(Plain)} - {"unreadable", "private"}
    assert "s3cr3t" not in format_facts(node)


def test_a_file_of_before_these_parts_compares_as_not_known(node: Facts) -> None:
    document = json.loads(format_facts(node))
    del document["plain"], document["runtime"]["sha256"], document["interfaces"]["hsn0"]["mtu"]
    for library in document["libraries"].values():
        del library["sha256"]
    old = parse_facts(json.dumps(document).encode(), "old.json")
    assert told(make_report(old, node, LUMI)) == told(make_report(node, old, LUMI)) == []


def test_digests_are_bounded_and_the_largest_go_without(node: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
    smallest = min(library.size_bytes for library in node.libraries.values())
    monkeypatch.setattr(capture_plain, "_MOST_DIGEST_BYTES", smallest)
    captured = capture(DictTree(node_files()), LUMI)
    assert [one.size_bytes for one in captured.facts.libraries.values() if one.sha256] == [smallest]
    assert any("are known by their size alone" in note for note in captured.notes)
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
    "/opt",
    "/usr/lib64",
    f"{SIF}/lumi-multitorch-full-{AFTER.image}.sif",
    SIF,
    f"/appl/local/lumisite/releases/{RELEASE}/{MODULEFILE}",
    "/appl/local/lumisite",
    "/etc/slurm/slurm.conf",
    "/etc/slurm/prolog.sh",
    "/etc",
    "/usr/bin/singularity",
    "/boot",
    "/pfs",
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
    for one in after:
        assert len([note for note in one.notes if note.endswith(f": {command}")]) == 1, one.notes
        for old in readable:
            assert told(make_report(old, one.facts, LUMI)) == [f"users cannot read {path} ({command})"]
            assert told(make_report(one.facts, old, LUMI)) == [f"users can read {path} again"]
    assert told(make_report(after[0].facts, after[1].facts, LUMI)) == []


def test_a_capture_of_before_that_could_read_it_is_no_reason_to_call_it_gone(root: Path) -> None:
    old = replace(captured(root, NOBODY).facts, plain={})
    with closed(root / CXI[1:]) as command:
        new = captured(root, NOBODY).facts
    with closed(root / "usr/libexec"):
        elsewhere = captured(root, NOBODY).facts
    assert told(make_report(old, new, LUMI)) == [f"users cannot read {CXI} ({command})"]
    assert told(make_report(old, elsewhere, LUMI)) == []


def test_what_else_changes_beside_a_closed_file_is_told(root: Path) -> None:
    before = captured(root, NOBODY).facts
    with closed(root / CXI[1:]) as command:
        after = captured(root, NOBODY).facts
    gone = {path: one for path, one in after.interfaces.items() if path != "hsn3"}
    said = told(make_report(before, replace(after, interfaces=gone), LUMI))
    assert said == [f"users cannot read {CXI} ({command})", "interface hsn3 is gone"]
    report = make_report(before, after, LUMI)
    assert f"{CXI} can be read by users no more." in " ".join(" ".join(report.users).split())
    assert ("plan", "lumi-pytorch") in {(touch.what, touch.name) for touch in report.changes[0].touches}
