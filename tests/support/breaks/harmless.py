"""Pairs of nodes that differ in what no container depends on: a row is what the second has beside the first."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.breaks.hardware import HSN0
from tests.support.breaks.libraries import CXI, CXI_FILE, JSON
from tests.support.breaks.row import Plant
from tests.support.breaks.software import DEPLOYED, IMAGE
from tests.support.dict_trees import Link
from tests.support.elves import elf
from tests.support.nodes import NEW_KERNEL, sif_head

_CONFIG = f"/boot/config-{NEW_KERNEL}"
_OPTIONS = b"CONFIG_PCI_P2PDMA=y\nCONFIG_64BIT=y\nCONFIG_DMABUF_MOVE_NOTIFY=y\n"
_GPU = "/sys/bus/pci/devices/0000:c1:00.0"
_PACKAGE = b"Package: %s\nStatus: install ok installed\nVersion: %s\n\n"
_APPTAINER, _TREE = _PACKAGE % (b"apptainer", b"1.3.4"), _PACKAGE % (b"tree", b"2.1.0")
_CPUINFO = b"processor : 0\nflags : fpu sse sse2 avx2\ncpu MHz : %s\n\n"


@dataclass(frozen=True)
class Quiet:
    """`files` are planted in the node after, `both` before and after."""

    files: Plant
    both: Plant = field(default_factory=dict)


#: A row more is a test more.
HARMLESS: Mapping[str, Quiet] = {
    # what a running system counts
    "uptime": Quiet({"/proc/uptime": b"99.0 98.0\n"}, {"/proc/uptime": b"5.0 4.0\n"}),
    "other processes": Quiet({"/proc/4711/stat": b"4711 (x) S\n", "/proc/self/status": b"Name: x\n"}, {"/proc/42/stat": b"42 (y) S\n"}),
    "counters of an interface": Quiet({f"{HSN0}/net/hsn0/statistics/rx_bytes": b"99\n"}, {f"{HSN0}/net/hsn0/statistics/rx_bytes": b"1\n"}),
    "frequency in cpuinfo": Quiet({"/proc/cpuinfo": _CPUINFO % b"3500.0"}, {"/proc/cpuinfo": _CPUINFO % b"2450.0"}),
    "files of users": Quiet({"/tmp/x/y": b"", "/users/one/.bashrc": b"x", "/pfs/project/data": b"x"}, {"/tmp/z": b"", "/users/one/x": b""}),
    "a job's files in the spool": Quiet({"/var/spool/slurmd/job1/x": b""}, {"/var/spool/slurmd/cred": b""}),
    "another node of the same kind": Quiet({"/proc/sys/kernel/hostname": b"nid005002\n"}),
    # devices that no container asks for
    "an interface without a device": Quiet({"/sys/class/net/veth1/operstate": b"up\n", "/sys/class/net/docker0/operstate": b"down\n"}),
    # packages and files beside
    "an unrelated library": Quiet({"/usr/lib64/libzebra.so.1": elf("libzebra.so.1", ["libc.so.6"])}),
    "a library that is called alike": Quiet({"/usr/lib64/libcxiutils.so.1": elf("libcxiutils.so.1"), "/usr/lib64/libfabric-x.so.1": elf("libfabric-x.so.1")}),
    "a compatible library of another SONAME": Quiet({"/usr/lib64/libjson-c.so.3": elf("libjson-c.so.3", ["libc.so.6"])}),
    "links for the linker": Quiet({"/usr/lib64/libcxi.so": Link("libcxi.so.1"), "/usr/lib64/libjson-c.so": Link("libjson-c.so.5"), "/usr/lib64/libcxi.a": b"!<arch>\n"}),
    "a script for the debugger": Quiet({f"{CXI_FILE}-gdb.py": b"import gdb\n"}),
    "a note beside products": Quiet({"/opt/cray/README": b"x", "/opt/cray/libfabric/README": b"x", "/opt/README": b"x"}),
    "packages in another order": Quiet({"/var/lib/dpkg/status": _TREE + _APPTAINER}, {"/var/lib/dpkg/status": _APPTAINER + _TREE}),
    "another release that is deployed nowhere": Quiet({DEPLOYED.replace("2026-01-", "2026-02-") + "/modules/x/1.lua": b"x"}),
    # how the same is written
    "a comment in os-release": Quiet({"/etc/os-release": b'# new\n\nID=sles\nVERSION_ID="15"\nPRETTY_NAME=\'SLES 15 SP6\'\nNAME="SLES"\n'}),
    "a comment in the kernel's configuration": Quiet({_CONFIG: b"# built anew\n# CONFIG_X is not set\n" + _OPTIONS}),
    "configuration of another kernel": Quiet({"/boot/config-6.9.9": b"CONFIG_64BIT=y\n"}),
    "a comment for the loader": Quiet({"/etc/ld.so.conf": b"# comment\ninclude /etc/ld.so.conf.d/*.conf\n", "/etc/ld.so.conf.d/z.conf": b"# none\n/opt/none/lib\n"}),
    "a folder for the loader": Quiet({"/etc/ld.so.conf": b"/opt/zebra/lib\n", "/opt/zebra/lib/libzebra.so.1": elf("libzebra.so.1")}),
    # the same behind other links
    "a library by an absolute link": Quiet({CXI: Link(CXI_FILE)}),
    "a link to a library elsewhere": Quiet({"/usr/lib/libcxi.so.1": Link("../lib64/libcxi.so.1")}),
    "a file system by a relative link": Quiet({"/scratch": Link("pfs")}),
    "ROCm by the link of a package": Quiet({"/opt/rocm": Link("/etc/alternatives/rocm"), "/etc/alternatives/rocm": Link("/opt/rocm-6.3.4")}),
    "an image moved out, with a link in its place": Quiet({IMAGE: Link("/pfs/archive/x.sif"), "/pfs/archive/x.sif": sif_head(1)}),
    "the release by an absolute link": Quiet({"/appl/local/lumisite/current": Link(DEPLOYED)}),
}  # fmt: skip


def _touch(top: Path) -> None:
    for path in top.rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)


def _rewrite(top: Path) -> None:
    """Make each file of the node's libraries anew, in the other order: other inodes, other order in the directory."""
    places = [path for path in sorted((top / "usr/lib64").iterdir(), reverse=True) if path.is_file()]
    contents = {path: path.readlink() if path.is_symlink() else path.read_bytes() for path in places}
    for path in places:
        path.unlink()
    for path, content in contents.items():
        path.symlink_to(content) if isinstance(content, Path) else path.write_bytes(content)


def _empty_folders(top: Path) -> None:
    for name in ("opt/rocm-6.0.3", "opt/cray/libfabric/1.15.2.0", "opt/cray/pe/mpich/8.1.29", "usr/lib64/zebra"):
        (top / name).mkdir(parents=True)


def _hard_link(top: Path) -> None:
    (top / "usr/lib64/libjson-c.so.5.1.0").hardlink_to(top / JSON.lstrip("/"))


#: The same for what only a disk has: what is done to a copy of the node.
ON_DISK: Mapping[str, Callable[[Path], None]] = {
    "times": _touch,
    "order of inodes": _rewrite,
    "empty folders of removed packages": _empty_folders,
    "a hard link": _hard_link,
}
