"""Devices, options of drivers and the frequency of CPUs: what is planted is one finding, what means the same is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from lumisite.facts.capture import capture
from lumisite.facts.compare import compare
from lumisite.facts.facts import Facts
from lumisite.findings.finding import Severity
from lumisite.machine.host import DiskTree
from tests.support.breaks import LUMI
from tests.support.breaks.row import Plant
from tests.support.dict_trees import DictTree, write_tree
from tests.support.nodes import AFTER, lumi_node

CPU, OPTIONS = "/sys/devices/system/cpu", "/sys/module/amdgpu/parameters"
BASE: Plant = {
    **{f"/dev/cxi{number}": b"" for number in range(4)},
    **{f"/dev/dri/renderD{128 + number}": b"" for number in range(8)},
    "/dev/kfd": b"",
    "/dev/xpmem": b"",
    "/sys/module/xpmem/refcnt": b"0\n",
    f"{OPTIONS}/noretry": b"-1\n",
    f"{OPTIONS}/mes": b"N\n",
    "/sys/module/cxi_ss1/parameters/disable_default_svc": b"1\n",
    **{f"{CPU}/cpu{number}/cpufreq/scaling_governor": b"performance\n" for number in range(128)},
    f"{CPU}/cpufreq/boost": b"1\n",
    f"{CPU}/smt/control": b"on\n",
    "/proc/cmdline": b"iommu=pt\n",
}


def files_of(plant: Plant) -> dict[str, object]:
    return dict(lumi_node(AFTER, {**BASE, **plant}))


def facts_of(plant: Plant) -> Facts:
    return capture(DictTree(lumi_node(AFTER, {**BASE, **plant})), LUMI).facts


def found(plant: Plant) -> list[tuple[str, str, object, object]]:
    return [(one.kind, one.subject, one.before, one.after) for one in compare(facts_of({}), facts_of(plant))]


@pytest.mark.parametrize(
    ("plant", "change"),
    [
        ({"/dev/kfd": None}, ("device", "/dev/kfd", "1 file", None)),
        ({"/dev/cxi3": None}, ("device", "/dev/cxi", "4 files", "3 files")),
        ({"/dev/xpmem": None, "/sys/module/xpmem/refcnt": None}, ("device", "xpmem", "2 files", None)),
        ({f"{OPTIONS}/noretry": b"1\n"}, ("module-parameter", "amdgpu.noretry", "-1", "1")),
        ({f"{CPU}/cpu{number}/cpufreq/scaling_governor": b"powersave\n" for number in range(128)}, ("kernel-setting", "scaling_governor", "performance", "powersave")),
        ({f"{CPU}/cpu9/cpufreq/scaling_governor": b"powersave\n"}, ("kernel-setting", "scaling_governor", "performance", "performance (127), powersave (1)")),
        ({f"{CPU}/cpufreq/boost": b"0\n"}, ("kernel-setting", "boost", "1", "0")),
    ],
)  # fmt: skip
def test_a_planted_change_is_named(plant: Plant, change: tuple[object, ...]) -> None:
    assert change in found(plant)
    assert {code for code, *_ in found(plant)} == {change[0]}


@pytest.mark.parametrize(
    "plant",
    [
        {f"{OPTIONS}/new_in_this_build": b"4\n"},
        {f"{CPU}/cpu0/cpufreq/scaling_cur_freq": b"1500000\n"},
        {f"{CPU}/smt/active": b"1\n"},
    ],
)  # fmt: skip
def test_what_means_the_same_is_silent(plant: Plant) -> None:
    assert found(plant) == []


@pytest.mark.parametrize("path", ["/dev/kfd", "/dev/cxi3"])
def test_a_lost_device_is_a_fault(path: str) -> None:
    (change,) = compare(facts_of({}), facts_of({path: None}))
    assert change.severity is Severity.FAULT


def test_rights_of_devices_are_compared_where_the_tree_has_them(tmp_path: Path) -> None:
    tops = [write_tree(tmp_path / side, lumi_node(AFTER, BASE)) for side in ("before", "after")]
    for top in tops:
        for path in BASE:
            if path.startswith("/dev/"):
                (top / path[1:]).chmod(0o666)
    (tops[1] / "dev/dri/renderD130").chmod(0o660)
    (change,) = compare(*(capture(DiskTree(str(top)), LUMI).facts for top in tops))
    assert (change.kind, change.subject, change.before, change.after) == (
        "device",
        "/dev/dri/render",
        None,
        "mode 0660",
    )
