"""Each change that is planted into a node is reported once, with what it touches; what means the same is silent."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lumisite.facts.capture import capture
from lumisite.facts.change_kinds import KINDS
from lumisite.facts.compare import compare
from lumisite.facts.report import ChangeReport, make_report
from lumisite.findings.finding import Severity
from lumisite.machine.host import DiskTree
from tests.support.captured import LUMI, Plant, node_with, together
from tests.support.dict_trees import Link, write_tree
from tests.support.elves import elf, loader_cache
from tests.support.nodes import (
    AFTER,
    CXI_VERSIONS,
    FABRIC_VERSIONS,
    LATEST,
    NEW_KERNEL,
    RELEASE,
    lumi_node,
    sif_head,
)
from tests.unit.facts.test_january import JANUARY

NODE = lumi_node()
CXI, CXI_FILE = "/usr/lib64/libcxi.so.1", "/usr/lib64/libcxi.so.1.6.0"
JSON, JANSSON = "/usr/lib64/libjson-c.so.5", "/usr/lib64/libjansson.so.4"
FABRIC = "/opt/cray/libfabric/1.22.0/lib64/libfabric.so.1"
PLUGIN = "/opt/cray/aws-ofi-rccl/lib/librccl-net.so"
IMAGES = f"/appl/local/laifs/containers/lumi-multitorch-{AFTER.image}"
IMAGE, OTHER_IMAGE = f"{IMAGES}/lumi-multitorch-full-{AFTER.image}.sif", f"{IMAGES}/other.sif"
DEPLOYED = f"/appl/local/lumisite/releases/{RELEASE}"
CONFIG = f"/boot/config-{NEW_KERNEL}"
HSN0, GPUS = "/sys/devices/pci0000:00/0000:00:01.1/0000:c2:00.0", "/sys/bus/pci/devices"


WANTS = {"libc.so.6": ["GLIBC_2.38"]}


def cxi(gives: Sequence[str] = CXI_VERSIONS) -> bytes:
    return elf("libcxi.so.1", ["libc.so.6"], verneed=WANTS, verdef=gives)


def fabric(*needed: str) -> bytes:
    return elf("libfabric.so.1", [*needed, "libc.so.6"], verneed=WANTS, verdef=FABRIC_VERSIONS)


def swapped_gpus() -> Plant:
    """Two GPUs have changed places: each bus now answers with the other's neighbours."""
    names = [f"{GPUS}/0000:{bus}:00.0/{name}" for bus in ("c9", "d1") for name in ("numa_node", "local_cpulist")]
    return dict(zip(names, [NODE[name] for name in (*names[2:], *names[:2])], strict=True))


def one_domain() -> Plant:
    """What NPS1 makes of NPS4: each device is in the one domain, and near all CPUs."""
    domains = "/sys/devices/system/node/node"
    changes: dict[str, bytes | Link | None] = {}
    for path in NODE:
        if path.startswith((f"{domains}1/", f"{domains}2/", f"{domains}3/")):
            changes[path] = None
        elif path.endswith("/numa_node"):
            changes[path] = b"0\n"
        elif path.endswith(("/local_cpulist", "node0/cpulist")):
            changes[path] = b"0-127\n"
    return changes


@dataclass(frozen=True)
class Break:
    """`files` are planted in the node after, `both` before and after.

    `change` and `also` are the changes that are reported, of which the first touches `touched`. An admin reads `message`
    of it, users read `users`.
    """

    files: Plant
    change: str
    touched: tuple[str, ...]
    also: tuple[str, ...] = ()
    both: Plant = field(default_factory=dict)
    message: str = ""
    users: str = ""


LIBRARIES = {
    "another SONAME of a need, and the old one stays": Break(
        {"/usr/lib64/libjson-c.so.6": elf("libjson-c.so.6"), FABRIC: fabric("libcxi.so.1", "libjson-c.so.6")},
        "library libfabric.so.1",
        ("plan lumi-rocm",),
    ),
    "json-c mismatch": Break(
        {JSON: None, "/usr/lib64/libjson-c.so.3": elf("libjson-c.so.3", ["libc.so.6"])},
        "library-missing libjson-c.so.5",
        ("plan lumi-rocm",),
    ),
    "vanished library": Break(
        {JANSSON: None},
        "library-missing libjansson.so.4",
        ("site binds[2].path", "module singularity-CPEbits"),
    ),
    "emptied library": Break(
        {CXI_FILE: b""},
        "library-missing libcxi.so.1",
        ("plan lumi-rocm", "site binds[1].path"),
        message="cannot be loaded (",
        users="take libcxi.so.1 from the host, which no longer has it.",
    ),
    "dangling link": Break(
        {CXI_FILE: None},
        "library-missing libcxi.so.1",
        ("plan lumi-rocm", "site binds[1].path"),
        message="/usr/lib64/libcxi.so.1 is a broken link to /usr/lib64/libcxi.so.1.6.0",
        users="take libcxi.so.1",
    ),
    "rebuilt library": Break(
        {JSON: elf("libjson-c.so.5", ["libc.so.6"], rpath="/opt/x")},
        "library libjson-c.so.5",
        ("plan lumi-rocm",),
        message="another file /usr/lib64/libjson-c.so.5",
        users="are other files now: libjson-c.so.5.",
    ),
    "a symbol version that libcxi lost": Break(
        {CXI_FILE: cxi(CXI_VERSIONS[:-1])},
        "library libcxi.so.1",
        ("plan lumi-rocm",),
        message="no longer has symbol versions LIBCXI_1.5",
    ),
    "library from another folder": Break(
        {CXI: None, CXI_FILE: None, "/usr/lib/libcxi.so.1": cxi()},
        "library libcxi.so.1",
        ("plan lumi-rocm",),
        also=("path /usr/lib64/libcxi.so.1",),
        message="loaded from /usr/lib64/libcxi.so.1.6.0 -> /usr/lib/libcxi.so.1",
    ),
    "a need that is nowhere": Break(
        {FABRIC: fabric("libcxi.so.1", "libjson-c.so.5", "libyaml-0.so.2")},
        "library-missing libyaml-0.so.2",
        ("plan lumi-rocm",),
        also=("library libfabric.so.1",),
    ),
    "a need that is there again": Break(
        {"/usr/lib64/libyaml-0.so.2": elf("libyaml-0.so.2")},
        "library-new libyaml-0.so.2",
        ("plan lumi-rocm",),
        both={FABRIC: fabric("libcxi.so.1", "libjson-c.so.5", "libyaml-0.so.2")},
    ),
    "a cache that is older than two libraries": Break(
        {JSON: None, JANSSON: None, "/etc/ld.so.conf": b"/opt/net/lib\n", "/opt/net/lib/libjson-c.so.5": elf("libjson-c.so.5", ["libc.so.6"]), "/opt/net/lib/libjansson.so.4": elf("libjansson.so.4")},
        "library-missing libjson-c.so.5",
        ("plan lumi-rocm",),
        also=("library-missing libjansson.so.4",),
        both={"/etc/ld.so.cache": loader_cache({"libjson-c.so.5": JSON, "libjansson.so.4": JANSSON})},
        message="is in /opt/net/lib, but not in /etc/ld.so.cache",
        users="libjson-c.so.5",
    ),
    "plugin in a folder of its release": Break(
        {PLUGIN: None, PLUGIN.replace("/lib/", "/1.9/lib/"): NODE[PLUGIN]},
        "library librccl-net.so",
        ("plan tykky",),
        also=("product /opt/cray/aws-ofi-rccl",),
    ),
}  # fmt: skip
RELEASES = {
    "a release of MPICH has gone": Break(
        {path: None for path in NODE if path.startswith("/opt/cray/pe/mpich/9.0.1/")},
        "product /opt/cray/pe/mpich",
        ("site stacks.cpe.releases.25.09.libraries.cray-mpich", "module singularity-CPEbits"),
        message="gone: 9.0.1",
        users="that name /opt/cray/pe/mpich/9.0.1: gone.",
    ),
    "all of /opt/cray has gone": Break(
        {path: None for path in NODE if path.startswith("/opt/cray/")},
        "path /opt/cray",
        ("site binds[0].path", "site platforms.2026-01.libraries.libfabric", "plan lumi-rocm"),
    ),
    "default libfabric": Break(
        {"/opt/cray/libfabric/default": Link("2.0.1")},
        "default /opt/cray/libfabric",
        ("module singularity-CPEbits",),
        also=("library libfabric.so.1",),
        both={FABRIC.replace("1.22.0", "2.0.1"): NODE[FABRIC]},
    ),
    "another release is deployed": Break(
        {"/appl/local/lumisite/current": Link("releases/old"), "/appl/local/lumisite/releases/old/x": b""},
        "release deployed release",
        ("module singularity-AI-bindings",),
    ),
}  # fmt: skip
FILES = {
    "alias of an image led elsewhere": Break(
        {LATEST: Link(OTHER_IMAGE), OTHER_IMAGE: sif_head(2)},
        f"image {LATEST}",
        ("family laif-multitorch", "module singularity-userfilesystems", "site validation.image"),
        message="other.sif",
        users="To stay with the image that it was, name /appl/local/laifs",
    ),
    "vanished image": Break(
        {LATEST: None},
        f"image {LATEST}",
        ("site validation.image",),
        message="image is gone",
        users=f"{LATEST} is gone.",
    ),
    "an image more": Break(
        {OTHER_IMAGE: sif_head(4)},
        f"image {OTHER_IMAGE}",
        ("family laif-rocm70",),
        message="new image",
        users="other.sif: new image.",
    ),
    "file system": Break(
        {"/scratch": None}, "path /scratch", ("site file_systems[1].path", "module singularity-userfilesystems")
    ),
    "file system of a broken link": Break(
        {"/scratch": Link("/pfs9")}, "dangling /scratch", ("site file_systems[1].path",)
    ),
    "file system led elsewhere": Break(
        {"/scratch": Link("/pfs2"), "/pfs2/.here": b""}, "path /scratch", ("module singularity-userfilesystems",)
    ),
    "kernel's configuration of another name": Break(
        {CONFIG: None, "/boot/config-6.4.0-new": b"CONFIG_64BIT=y\n"},
        "kernel-config kernel configuration",
        ("setting NCCL_DMABUF_ENABLE",),
    ),
    "container runtime": Break(
        {"/usr/bin/singularity": b"another one"},
        "runtime container runtime",
        ("site runtimes.singularity.variant", "helper spank/bin"),
    ),
}  # fmt: skip
HARDWARE = {
    "vanished interface": Break(
        {"/sys/class/net/hsn3": None},
        "interface hsn3",
        ("site fabric.interfaces", "setting NCCL_SOCKET_IFNAME", "site node_kinds.lumi-g.nics"),
        message="gone: driver cxi_ss1, state up",
        users="hsn3 is gone: do not name it in NCCL_SOCKET_IFNAME.",
    ),
    "renamed interface": Break(
        {"/sys/class/net/hsn3": None, "/sys/class/net/hsn4": NODE["/sys/class/net/hsn3"]},
        "interface hsn3",
        ("setting NCCL_SOCKET_IFNAME",),
        also=("interface hsn4",),
    ),
    "moved adapter": Break(
        {f"{HSN0}/numa_node": b"0\n"}, "nic cxi0", ("site node_kinds.lumi-g.nics",), also=("interface hsn0",)
    ),
    "GPUs that changed places": Break(
        swapped_gpus(),
        "gpu-place GPU 2",
        ("site node_kinds.lumi-g.gpus", "mask lumi-g"),
        also=("gpu-place GPU 4",),
        message="cpus 16-23,80-87 -> ",
        users="GPUs are nearer to other cores than before: correct CPU masks",
    ),
    "GPUs that no driver has": Break(
        {f"/sys/bus/pci/drivers/amdgpu/0000:{bus}:00.0": None for bus in ("c9", "d6")},
        "gpu-count GPUs",
        ("mask lumi-g", "site node_kinds.lumi-g.gpus"),
    ),
    "no SMT": Break(
        {"/sys/devices/system/cpu/online": b"0-63\n", "/sys/devices/system/cpu/smt/control": b"off\n", "/proc/cmdline": b"nosmt\n", f"{HSN0}/local_cpulist": b"0-63\n"},
        "cpus CPUs",
        ("site node_kinds.lumi-g.l3", "mask lumi-g"),
        also=("kernel-parameter nosmt", "kernel-setting smt"),
        both={"/sys/devices/system/cpu/smt/control": b"on\n"},
    ),
    "one NUMA domain": Break(one_domain(), "cpus CPUs", ("site node_kinds.lumi-g.l3",)),
}  # fmt: skip
BREAKS: Mapping[str, Break] = {**LIBRARIES, **RELEASES, **FILES, **HARDWARE}


def report_of(row: Break) -> ChangeReport:
    return make_report(node_with(row.both), node_with(row.both, row.files), LUMI)


@pytest.mark.parametrize("name", BREAKS)
def test_a_planted_change_is_reported_once(name: str) -> None:
    row = BREAKS[name]
    report = report_of(row)
    changes = {f"{one.kind} {one.subject}": one for one in report.changes}
    assert sorted(changes) == sorted((row.change, *row.also))
    planted = changes[row.change]
    assert {*row.touched} <= {f"{touched.what} {touched.name}" for touched in planted.touches}
    assert "Nothing changed" not in report.users[0] or planted.severity is Severity.INFO
    assert planted.advice or planted.severity is Severity.INFO
    assert row.message in planted.message
    assert row.users in " ".join(report.users)


@pytest.mark.parametrize(
    ("name", "back"),
    [("json-c mismatch", "library-new"), ("vanished interface", "interface"), ("vanished image", "image")],
)
def test_what_comes_back_is_reported_too(name: str, back: str) -> None:
    changes = compare(node_with(BREAKS[name].files), node_with())
    assert f"{back} {BREAKS[name].change.partition(' ')[2]}" in [f"{one.kind} {one.subject}" for one in changes]


def test_every_kind_of_change_that_is_no_text_has_a_planted_break() -> None:
    seen = {change.partition(" ")[0] for row in BREAKS.values() for change in (row.change, *row.also)} | {
        kind for kind, _ in JANUARY
    }
    assert seen >= {kind.name for kind in KINDS if kind.read is None} - {"unreadable", "library-rights"}


PACKAGE = b"Package: %s\nStatus: install ok installed\nVersion: %s\n\n"
APPTAINER, TREE = PACKAGE % (b"apptainer", b"1.3.4"), PACKAGE % (b"tree", b"2.1.0")
OPTIONS = b"CONFIG_PCI_P2PDMA=y\nCONFIG_64BIT=y\nCONFIG_DMABUF_MOVE_NOTIFY=y\n"
HARMLESS: Mapping[str, Plant] = {
    "another node of the same kind": {"/proc/sys/kernel/hostname": b"nid005002\n"},
    "an interface without a device": {"/sys/class/net/veth1/operstate": b"up\n"},
    # packages and files beside
    "a library that is called alike": {"/usr/lib64/libcxiutils.so.1": elf("libcxiutils.so.1"), "/usr/lib64/libfabric-x.so.1": elf("libfabric-x.so.1")},
    "a compatible library of another SONAME": {"/usr/lib64/libjson-c.so.3": elf("libjson-c.so.3", ["libc.so.6"])},
    "links for the linker": {"/usr/lib64/libcxi.so": Link("libcxi.so.1"), "/usr/lib64/libcxi.a": b"!<arch>\n"},
    "a script for the debugger": {f"{CXI_FILE}-gdb.py": b"import gdb\n"},
    "a note beside products": {"/opt/cray/README": b"x", "/opt/cray/libfabric/README": b"x"},
    "packages in another order": {"/var/lib/dpkg/status": TREE + APPTAINER},
    # how the same is written
    "a comment in os-release": {"/etc/os-release": b"# new\n\nPRETTY_NAME='SLES 15 SP6'\nNAME=\"SLES\"\n"},
    "a comment in the kernel's configuration": {CONFIG: b"# built anew\n# CONFIG_X is not set\n" + OPTIONS},
    "configuration of another kernel": {"/boot/config-6.9.9": b"CONFIG_64BIT=y\n"},
    "a comment for the loader": {"/etc/ld.so.conf": b"# comment\ninclude /etc/ld.so.conf.d/*.conf\n", "/etc/ld.so.conf.d/z.conf": b"# none\n/opt/none/lib\n"},
    # the same behind other links
    "a library by an absolute link": {CXI: Link(CXI_FILE)},
    "a link to a library elsewhere": {"/usr/lib/libcxi.so.1": Link("../lib64/libcxi.so.1")},
    "a file system by a relative link": {"/scratch": Link("pfs")},
    "ROCm by the link of a package": {"/opt/rocm": Link("/etc/alternatives/rocm"), "/etc/alternatives/rocm": Link("/opt/rocm-6.3.4")},
    "an image moved out, with a link in its place": {IMAGE: Link("/pfs/archive/x.sif"), "/pfs/archive/x.sif": sif_head(1)},
    "the release by an absolute link": {"/appl/local/lumisite/current": Link(DEPLOYED)},
}  # fmt: skip


def test_what_no_container_depends_on_is_silent() -> None:
    packages: Plant = {"/var/lib/dpkg/status": APPTAINER + TREE}
    report = make_report(node_with(packages), node_with(packages, together(HARMLESS)), LUMI)
    assert report.changes == ()
    assert "Nothing changed" in report.users[0]


def test_what_only_a_disk_has_is_silent(tmp_path: Path) -> None:
    """Other times and inodes, a hard link, and the empty folders that removed packages leave behind."""
    before, after = (write_tree(tmp_path / side, lumi_node()) for side in ("before", "after"))
    for path in sorted((after / "usr/lib64").glob("*.so.*"), reverse=True):
        content = path.readlink() if path.is_symlink() else path.read_bytes()
        path.unlink()
        path.symlink_to(content) if isinstance(content, Path) else path.write_bytes(content)
    (after / "usr/lib64/libjson-c.so.5.1.0").hardlink_to(after / JSON[1:])
    for name in ("opt/rocm-6.0.3", "opt/cray/libfabric/1.15.2.0", "opt/cray/pe/mpich/8.1.29"):
        (after / name).mkdir(parents=True)
    for path in after.rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)
    assert compare(*(capture(DiskTree(str(top)), LUMI).facts for top in (before, after))) == ()
