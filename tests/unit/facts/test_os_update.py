"""An update of the operating system is one finding, and what is wrong beside it another one."""

from __future__ import annotations

import pytest

from lumisite.facts.compare import compare
from lumisite.facts.facts import Facts
from lumisite.facts.report import make_report
from tests.support.breaks import LUMI, facts_of
from tests.support.breaks.row import Plant
from tests.support.dict_trees import Link
from tests.support.elves import elf
from tests.support.nodes import AFTER, NEW_KERNEL, lumi_node

KERNEL = "6.4.0-150700.53.3-default"
CONFIG = lumi_node()[f"/boot/config-{NEW_KERNEL}"]
BASE: Plant = {
    "/sys/module/kdreg2/srcversion": b"AAAA\n",
    "/sys/module/cxi_ss1/version": b"1.0.3\n",
    "/sys/module/cxi_ss1/srcversion": b"AAAA\n",
}
NEW_KERNEL_FILES: Plant = {
    "/proc/sys/kernel/osrelease": f"{KERNEL}\n".encode(),
    "/sys/module/kdreg2/srcversion": b"BBBB\n",
    "/sys/module/cxi_ss1/srcversion": b"BBBB\n",
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


def node(plant: Plant) -> Facts:
    return facts_of(lumi_node(AFTER, {**BASE, **plant}))


def found(plant: Plant) -> list[tuple[str, str]]:
    return [(change.kind, change.subject) for change in compare(node({}), node(plant))]


def test_an_update_is_one_finding_with_what_came_with_it() -> None:
    changes = make_report(node({}), node(UPDATE), LUMI).changes
    assert [(change.kind, change.after) for change in changes] == [
        ("os", "SLES 15 SP7"),
        ("kernel", KERNEL),
        ("glibc", "2.40"),
    ]
    touched = {(touch.what, touch.name) for change in changes for touch in change.touches}
    assert {
        ("site", "platforms.2026-01.kernel"),
        ("setting", "NCCL_DMABUF_ENABLE"),
        ("plan", "lumi-rocm"),
    } <= touched


def test_a_kernel_alone_is_the_cause_of_what_is_built_again() -> None:
    assert found({**NEW_KERNEL_FILES, f"/boot/config-{NEW_KERNEL}": CONFIG}) == [("kernel", "kernel")]


@pytest.mark.parametrize(
    ("plant", "code", "subject"),
    [
        ({"/sys/module/cxi_ss1/version": b"1.1.0\n"}, "kernel-module", "cxi_ss1"),
        ({"/sys/module/kdreg2/srcversion": None}, "kernel-module", "kdreg2"),
        ({"/sys/module/amdgpu/version": b"6.12.1\n"}, "driver", "amdgpu"),
        ({f"/boot/config-{KERNEL}": None}, "kernel-config", "kernel configuration"),
        ({f"/boot/config-{KERNEL}": b"CONFIG_PCI_P2PDMA=y\n"}, "kernel-config", "kernel configuration"),
        (
            {"/usr/lib64/libjson-c.so.5": None, "/usr/lib64/libjson-c.so.5.3.0": None},
            "library-missing",
            "libjson-c.so.5",
        ),
        ({"/usr/lib64/libcxi.so.1.6.0": None}, "library-missing", "libcxi.so.1"),
    ],
)
def test_what_is_wrong_beside_an_update_is_reported_too(plant: Plant, code: str, subject: str) -> None:
    changes = found({**UPDATE, **plant})
    assert (code, subject) in changes
    assert ("os", "operating system") in changes
    assert len(changes) == 4


def test_the_library_of_the_network_is_none_of_the_distribution() -> None:
    cxi = lumi_node()["/usr/lib64/libcxi.so.1.6.0"]
    assert isinstance(cxi, bytes)
    assert ("library", "libcxi.so.1") in found({**UPDATE, "/usr/lib64/libcxi.so.1.6.0": cxi + b"rebuilt"})
