"""No change hides another one that is not really inside of it: mounts, links, folders of modules, an updated system."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from lumisite.facts.compare import compare
from lumisite.facts.facts import Facts
from lumisite.facts.report import make_report
from lumisite.findings.finding import Severity
from tests.support.captured import LUMI, Plant, node_with
from tests.support.dict_trees import Link
from tests.support.elves import elf
from tests.support.nodes import NEW_KERNEL, lumi_node

POINTS = {
    "/dev/shm": "tmpfs",
    "/tmp": "tmpfs",
    "/var/tmp": "xfs",
    **{str(system.path): "lustre" for system in LUMI.file_systems if str(system.path) != "/scratch"},
    "/appl": "lustre",
    "/appl/local": "nfs",
    "/pfs": "lustre",
}
LUSTRE = {"flash": "/flash", "pfs": "/pfs"}
MOUNTS = "/proc/self/mountinfo"
BASE: Plant = {
    **{f"{point}/.here": b"" for point in POINTS},
    "/dev/kfd": b"",
    "/sys/module/kdreg2/srcversion": b"AAAA\n",
    "/sys/module/cxi_ss1/version": b"1.0.3\n",
}
#: Three faults below `/` that no lost mount explains, the third in one of two file systems.
OTHERS: Plant = {"/usr/lib64/libcxi.so.1": None, "/usr/lib64/libcxi.so.1.6.0": None, "/dev/kfd": None}


def table(lost: str = "", read_only: str = "") -> dict[str, bytes]:
    lines = [
        f"{number} 1 0:{number} / {point} {'ro' if point == read_only else 'rw'} - {kind} server rw\n"
        for number, (point, kind) in enumerate([("/", "overlay"), *POINTS.items()], 20)
        if point != lost
    ]
    return {MOUNTS: "".join(lines).encode()}


def node(*plants: Plant) -> Facts:
    return node_with(BASE, *plants)


def found(before: Facts, after: Facts) -> set[tuple[str, str]]:
    return {(change.kind, change.subject) for change in compare(before, after)}


# Mounts and folders


@pytest.mark.parametrize("point", ["/dev/shm", "/flash", "/appl", "/appl/local", "/pfs"])
def test_a_file_system_that_is_not_mounted_hides_nothing_below_the_root(point: str) -> None:
    read_only = LUSTRE["pfs" if point == "/flash" else "flash"]
    healthy, broken = node(table()), node(table(read_only=read_only), OTHERS)
    planted = found(healthy, broken)
    assert planted >= {("library-missing", "libcxi.so.1"), ("device", "/dev/kfd"), ("mounts", read_only)}
    unmounted = node(table(point, read_only), OTHERS)
    assert found(healthy, unmounted) == planted | {("mounts", point)}
    assert found(unmounted, healthy) == found(broken, healthy) | {("mounts", point)}


def test_an_option_more_of_a_mount_hides_nothing_below_it() -> None:
    more = {MOUNTS: table()[MOUNTS].replace(b" /tmp rw -", b" /tmp rw,noexec -")}
    lines: Plant = {"/etc/ld.so.conf": b"/tmp/lib\n", "/tmp/lib/x": b""}
    lost: Plant = {"/etc/ld.so.conf": b"", "/etc/ld.so.conf.d/x.conf": b"/tmp/lib\n"}
    assert found(node(table(), lines), node(more, lines, lost)) == {("mounts", "/tmp"), ("loader", "/tmp/lib")}


def test_a_folder_that_users_may_not_read_hides_only_what_is_read_there() -> None:
    after = node({"/etc/os-release": b"PRETTY_NAME=x\n", "/flash/.here": None})
    elsewhere, there = (replace(after, unreadable={path: "chmod"}) for path in ("/users/one", "/flash"))
    system = ("os", "operating system")
    assert found(node(), elsewhere) == {("unreadable", "/users/one"), system, ("path", "/flash")}
    assert found(node(), there) == {("unreadable", "/flash"), system}


def test_a_folder_of_modules_that_is_gone_or_closed_does_not_hide_another_one() -> None:
    tops, srv = ("/appl/modules", "/srv/modules"), ("module-path", "/srv/modules")
    folders: Plant = {f"{top}/x/1.lua": b"" for top in tops}
    login: Plant = {"/etc/profile.d/site.sh": f"export MODULEPATH={':'.join(tops)}\n".encode()}
    healthy, after = node(table(), folders, login), node(table("/appl"), login)
    assert found(healthy, after) == {("mounts", "/appl"), srv}
    assert found(healthy, node(table("/appl"), login, {"/srv/modules/x/1.lua": b""})) == {("mounts", "/appl")}
    closed = replace(node(table(), login), unreadable={"/appl": "chmod"})
    assert found(healthy, closed) == {("unreadable", "/appl"), srv}


# Links that are broken: one finding, whatever was below them and wherever they led

CRAY = {path: content for path, content in lumi_node().items() if path.startswith("/opt/cray/")}
NO_CRAY: Plant = dict.fromkeys(CRAY)
MODULE = {"/opt/cray/pe/lmod/modulefiles/core/x/1.lua": b""}
#: The same node with all of it elsewhere, and a link.
LINKED: Plant = {
    **NO_CRAY,
    **{path.replace("/opt/cray/", "/vendor/hpe/24.11/"): content for path, content in CRAY.items()},
    "/opt/cray": Link("/vendor/hpe/24.11"),
}
NO_PE: Plant = {path: None for path in CRAY if path.startswith("/opt/cray/pe/")}
BROKEN: Mapping[str, tuple[Plant, Plant, str, str]] = {
    "a link in the place of a folder": (MODULE, {**NO_CRAY, "/opt/cray": Link("/opt/hpe/cray")}, "/opt/cray", "/opt/hpe/cray"),
    "a link of which the folder went": (LINKED, {**NO_CRAY, "/opt/cray": Link("/vendor/hpe/24.11")}, "/opt/cray", "/vendor/hpe/24.11"),
    "a link in a folder": ({}, {**NO_PE, "/opt/cray/pe": Link("../hpe/pe")}, "/opt/cray/pe", "/opt/hpe"),
    "a link to itself": ({}, {**NO_CRAY, "/opt/cray": Link("/opt/cray")}, "/opt/cray", "/opt/cray"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_link_is_one_finding(name: str) -> None:
    before, after = (node(plant) for plant in BROKEN[name][:2])
    (change,) = make_report(before, after, LUMI).changes
    assert (change.kind, change.subject, change.after) == ("dangling", *BROKEN[name][2:])
    assert change.severity is Severity.FAULT
    assert ("module", "singularity-CPEbits") in {(touch.what, touch.name) for touch in change.touches}
    (mended,) = compare(after, before)
    assert (mended.kind, mended.subject, mended.before) == ("dangling", *BROKEN[name][2:])
    updated = node(BROKEN[name][1], {"/etc/os-release": b"PRETTY_NAME=x\n"})
    assert [one.kind for one in compare(before, updated)] == ["dangling", "os"]


# An update of the operating system is one finding, and what is wrong beside it another one

KERNEL = "6.4.0-150700.53.3-default"
CONFIG = lumi_node()[f"/boot/config-{NEW_KERNEL}"]
NEW_KERNEL_FILES: Plant = {
    "/proc/sys/kernel/osrelease": f"{KERNEL}\n".encode(),
    "/sys/module/kdreg2/srcversion": b"BBBB\n",
    "/sys/module/amdgpu/srcversion": b"BBBB\n",
    f"/boot/config-{KERNEL}": CONFIG,
}
UPDATE: Plant = {
    **NEW_KERNEL_FILES,
    "/etc/os-release": b'PRETTY_NAME="SLES 15 SP7"\n',
    f"/boot/config-{NEW_KERNEL}": None,
    "/lib64/libc.so.6": elf("libc.so.6") + b"\0GNU C Library (GNU libc) stable release version 2.40.\n\0",
    "/usr/lib64/libjson-c.so.5": Link("libjson-c.so.5.3.0"),
    "/usr/lib64/libjson-c.so.5.3.0": elf("libjson-c.so.5", ["libc.so.6"]) + b"rebuilt",
    "/usr/lib64/libjansson.so.4": elf("libjansson.so.4", ["libc.so.6"]) + b"rebuilt",
}
UPDATED = {("os", "operating system"), ("kernel", "kernel"), ("glibc", "glibc")}


def test_an_update_is_one_finding_with_what_came_with_it() -> None:
    assert found(node(), node(UPDATE)) == UPDATED
    assert found(node(), node(NEW_KERNEL_FILES)) == {("kernel", "kernel")}


@pytest.mark.parametrize(
    ("plant", "change"),
    [
        ({"/sys/module/cxi_ss1/version": b"1.1.0\n"}, ("kernel-module", "cxi_ss1")),
        ({"/sys/module/kdreg2/srcversion": None}, ("kernel-module", "kdreg2")),
        ({"/sys/module/amdgpu/version": b"6.12.1\n"}, ("driver", "amdgpu")),
        ({f"/boot/config-{KERNEL}": None}, ("kernel-config", "kernel configuration")),
        ({"/usr/lib64/libjson-c.so.5": None, "/usr/lib64/libjson-c.so.5.3.0": None}, ("library-missing", "libjson-c.so.5")),
        ({"/usr/lib64/libcxi.so.1.6.0": None}, ("library-missing", "libcxi.so.1")),
        ({"/usr/lib64/libcxi.so.1.6.0": elf("libcxi.so.1")}, ("library", "libcxi.so.1")),
    ],
)  # fmt: skip
def test_what_is_wrong_beside_an_update_is_reported_too(plant: Plant, change: tuple[str, str]) -> None:
    assert found(node(), node(UPDATE, plant)) == {*UPDATED, change}
