"""What one node tells: its fabric and its file systems."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from lumisite.init.node import Fabric, Node, fabric_of, folders_of
from tests.support.dict_trees import Link
from tests.unit.init.answers import mounts, network, small, told


@pytest.mark.parametrize(
    ("interfaces", "address", "fabric"),
    [
        ({"eth0": (1000, "10.1.0"), "ib0": (100000, "10.2.0")}, "10.1.0.1", (("ib0",), ("eth0",))),
        (
            {"eth0": (10000, "10.1.0"), "hsn0": (10000, "10.2.0"), "hsn1": (10000, "10.3.0")},
            "10.1.0.1",
            (("hsn0", "hsn1"), ("eth0",)),
        ),
        ({"hsn0": (200000, "10.1.0"), "hsn1": (200000, "10.2.0")}, "10.1.0.1", (("hsn0", "hsn1"), ())),
        ({"eno1": (25000, "10.1.0")}, "10.1.0.1", (("eno1",), ())),
        (
            {"eno1": (25000, "10.1.0"), "ib0": (100000, "")},
            None,
            (("eno1",), ()),
        ),  # ib0 has no address: nothing can use it
        ({}, None, ((), ())),
    ],
)
def test_fast_interfaces_are_told_from_management(
    interfaces: Mapping[str, tuple[int, str]], address: str | None, fabric: tuple[tuple[str, ...], tuple[str, ...]]
) -> None:
    found = fabric_of(small(net=network(**interfaces)), address)
    assert (found.interfaces, found.management) == fabric


@pytest.mark.parametrize(
    ("link_layer", "state", "driver", "fabric"),
    [
        ("InfiniBand", "4: ACTIVE", "mlx5_core", ("IB", ("mlx5_0",))),
        ("Ethernet", "4: ACTIVE", "mlx5_core", ("RoCE", ("mlx5_0",))),
        ("InfiniBand", "1: DOWN", "mlx5_core", ("tcp", ())),
        ("Unspecified", "4: ACTIVE", "efa", ("EFA", ("mlx5_0",))),
    ],
)
def test_what_carries_data(link_layer: str, state: str, driver: str, fabric: tuple[str, tuple[str, ...]]) -> None:
    here, device = "/sys/class/infiniband/mlx5_0", "/sys/devices/pci0000:00/0000:00:00.0"
    files: dict[str, bytes | Link] = {
        f"{here}/device": Link(device),
        f"{device}/driver": Link(f"/{driver}"),
    }
    files |= {
        f"{here}/ports/1/link_layer": link_layer.encode(),
        f"{here}/ports/1/state": state.encode(),
        f"/{driver}/x": b"",
    }
    asked = small(net=network(eth0=(100000, "10.1.0")), adapter=files)
    for one in (asked, Node(asked.facts, told({}))):  # of a facts file the same is known
        found = fabric_of(one, "10.1.0.1")
        assert (found.carrier, found.adapters) == fabric


def test_an_adapter_of_another_interface_is_no_fast_one() -> None:
    here, device = "/sys/class/infiniband/mlx5_0", "/sys/devices/pci0000:00/0000:01:00.0"
    files: dict[str, bytes | Link] = {f"{here}/device": Link(device), f"{device}/numa_node": b"0\n"}
    files |= {f"{here}/ports/1/link_layer": b"Ethernet\n", f"{here}/ports/1/state": b"4: ACTIVE\n"}
    for fast, adapters in (("eth0", ()), ("eth1", ("mlx5_0",))):
        speeds = {name: (100000 if name == fast else 1000, f"10.{at}.0") for at, name in enumerate(("eth0", "eth1"))}
        assert fabric_of(small(net=network(**speeds), adapter=files), None).adapters == adapters


@pytest.mark.parametrize(
    "stack",
    [
        {"bond0": ("ens1", "ens2")},
        {"bond0": ("ens1", "ens2"), "bond0.7": ("bond0",)},
        {"team0": ("ens1",), "br0": ("team0", "veth1")},
        {"bond0": ("ens1", "bond0.7"), "bond0.7": ("bond0",)},  # no machine has it
    ],
)
def test_an_adapter_of_what_a_fast_interface_lies_on_is_its_own(stack: Mapping[str, tuple[str, ...]]) -> None:
    fast = [*stack][-1]
    files = network(eth0=(1000, "10.1.0"), ens1=(100000, ""), ens2=(100000, ""), **{fast: (200000, "10.2.0")})
    del files[f"/sys/class/net/{fast}/device"]
    for name, parts in stack.items():
        files[f"/sys/class/net/{name}/operstate"] = b"up\n"
        files |= {f"/sys/class/net/{name}/lower_{part}": Link(f"/sys/class/net/{part}") for part in parts}
    here = "/sys/class/infiniband/mlx5_bond_0"
    files |= {f"{here}/ports/1/link_layer": b"Ethernet\n", f"{here}/ports/1/state": b"4: ACTIVE\n"}
    for device, found in (("ens1", ("RoCE", ("mlx5_bond_0",))), ("eth0", ("tcp", ()))):
        adapter = {f"{here}/device": files[f"/sys/class/net/{device}/device"]}
        fabric = fabric_of(small(net={**files, **adapter}), "10.1.0.1")
        assert (fabric.interfaces, fabric.management) == ((fast,), ("eth0",))
        assert (fabric.carrier, fabric.adapters) == found


def test_shared_is_what_is_the_same_on_two_nodes() -> None:
    same, other = {"/shared": "5 2026-01-02 00:00:00.5 +0000"}, {"/shared": "5 2026-01-02 00:00:00.6 +0000"}
    table = {
        "shared": "ext4",
        "scratch": "lustre",
        "tmp": "tmpfs",
        "var_lib": "xfs",
        "scratch_deep": "nfs4",
        "x": "overlay",
    }
    one, login = small(m=mounts(same, **table)), small(m=mounts(same, shared="ext4"))
    kinds = {folder.path: folder.kind for folder in folders_of(one, login)}
    assert kinds == {"/scratch": "shared", "/tmp": "node-local", "/shared": "shared"}
    assert {one.path: one.kind for one in folders_of(one, small(m=mounts(other, shared="ext4")))}[
        "/shared"
    ] == "node-local"


def test_interfaces_of_the_wrong_kind_are_no_fabric() -> None:
    assert fabric_of(small(), None) == Fabric("tcp", (), (), ())
