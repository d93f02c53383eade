"""`check --host` names what a node has less of than its kind: GPUs, adapters, speed and MTU of its interfaces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest

from lumisite.findings.finding import Severity
from lumisite.machine.host import DiskTree
from lumisite.release.node_state import interface_faults, kind_faults
from lumisite.site.load import EMBEDDED
from lumisite.site.model import Site
from tests.support.breaks import LUMI
from tests.support.breaks.row import Plant
from tests.support.dict_trees import DictTree
from tests.support.nodes import AFTER, lumi_node
from tests.support.sites import load_text

BUSES = ("c2", "ca", "d5", "da")
GPU = "/sys/bus/pci/devices/0000:{}:00.0"
SPOOL: Plant = {"/var/spool/slurmd/x": b""}


def interface(number: int, file: str) -> str:
    return f"/sys/devices/pci0000:00/0000:00:01.1/0000:{BUSES[number]}:00.0/net/hsn{number}/{file}"


def set_on(file: str, *values: int) -> Plant:
    return {interface(number, file): f"{value}\n".encode() for number, value in enumerate(values)}


def without(*beginnings: str) -> Plant:
    return dict.fromkeys(path for path in lumi_node() if path.startswith(beginnings))


def described(keys: str) -> Site:
    """The site with more keys of its network."""
    text = (EMBEDDED / "lumi.yaml").read_text()
    assert "  carrier: cxi\n" in text
    return load_text(text.replace("  carrier: cxi\n", f"  carrier: cxi\n{keys}", 1)).site


def found(plant: Plant, site: Site = LUMI) -> list[tuple[str, str, Mapping[str, object]]]:
    host = cast("DiskTree", DictTree(lumi_node(AFTER, {**SPOOL, **plant})))  # of which only what both have is asked
    faults = [*interface_faults(site, host), *kind_faults(site, host)]
    assert all(fault.severity is Severity.NODE for fault in faults)
    return [(fault.code, fault.subject, fault.values) for fault in faults]


FULL = {"speed": (200000,) * 4, "mtu": (9000,) * 4}
FAULTS: Mapping[str, tuple[Plant, str, str, Mapping[str, object]]] = {
    "slow": (
        set_on("speed", 200000, 200000, 100000, 200000),
        "host-interface-slow",
        "hsn2",
        {"actual": 100000, "expected": 200000},
    ),
    "MTU": (set_on("mtu", 9000, 1500, 9000, 9000), "host-interface-mtu", "hsn1", {"actual": 1500, "expected": 9000}),
    "an adapter": (
        without("/sys/class/cxi/cxi1/"),
        "host-adapters-missing",
        "adapters",
        {"actual": 3, "expected": 4, "present": ("cxi0", "cxi2", "cxi3")},
    ),
    "an interface with its adapter": (
        without("/sys/class/cxi/cxi3/", "/sys/class/net/hsn3"),
        "host-interface-missing",
        "hsn3",
        {},
    ),
    "a GPU": (without(GPU.format("c9")), "node-lost-gpus", "node kind", {"kind": "lumi-g"}),
    "three GPUs": (
        without(*map(GPU.format, ("c1", "d6", "de"))),
        "node-lost-gpus",
        "node kind",
        {"kind": "lumi-g"},
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_a_node_lacks_is_one_finding(name: str) -> None:
    plant, code, subject, values = FAULTS[name]
    ((found_code, found_subject, found_values),) = found(plant)
    assert (found_code, found_subject) == (code, subject)
    assert values.items() <= found_values.items()


HEALTHY: Mapping[str, Plant] = {
    "as described": {},
    "all alike": {**set_on("speed", *FULL["speed"]), **set_on("mtu", *FULL["mtu"])},
    "unknown speed": set_on("speed", -1, 0, 200000, 200000),
    "half and half": set_on("mtu", 9000, 9000, 1500, 1500),
    "more of it": set_on("speed", 200000, 200000, 200000, 400000),
    "no class of adapters": without("/sys/class/cxi/"),
    "no GPU at all": without(*(GPU.format(bus) for bus in ("c1", "c6", "c9", "ce", "d1", "d6", "d9", "de"))),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_node_is_silent(name: str) -> None:
    assert found(HEALTHY[name]) == []


def test_an_interface_that_is_down_is_not_slow_too() -> None:
    plant = {interface(0, "operstate"): b"down\n", interface(0, "speed"): b"10\n"}
    assert [code for code, *_ in found(plant)] == ["host-interface-down"]


def test_what_the_site_describes_is_expected_of_all_interfaces() -> None:
    plant = {**set_on("mtu", 1500, 1500, 1500, 1500), **set_on("speed", *FULL["speed"])}
    site = described("  speed_mbit: 200000\n  mtu: 9000\n")
    faults = found(plant, site)
    assert [(code, subject) for code, subject, _ in faults] == [
        ("host-interface-mtu", f"hsn{number}") for number in range(4)
    ]
    assert found({**plant, **set_on("mtu", *FULL["mtu"])}, site) == []


def test_adapters_are_known_by_their_names() -> None:
    site = described("  adapters: [cxi0, cxi1, cxi2, cxi3]\n")
    faults = found(without("/sys/class/cxi/cxi0/"), site)
    assert [(code, values["missing"]) for code, _, values in faults] == [("host-adapters-missing", ("cxi0",))]


def test_a_login_node_has_fewer_of_all() -> None:
    gone = without("/sys/class/cxi/cxi1/", "/sys/class/cxi/cxi2/", "/sys/class/cxi/cxi3/", GPU.format("c1"))
    assert found({**gone, "/var/spool/slurmd/x": None, **without("/sys/class/net/hsn")}) == []
