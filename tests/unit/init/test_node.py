"""What one node tells: its fabric and its file systems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from lumisite.facts.capture_system import capture_system
from lumisite.facts.facts import format_facts, parse_facts
from lumisite.init.answer import NodeAnswer
from lumisite.init.folders import folders_of
from lumisite.init.node import FoundFabric, Node, fabric_of
from tests.support.dict_trees import DictTree, Files, Link
from tests.unit.init.answers import mounts, network, routes, small, stacked, told


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
        {"bond0": ("ens1", "ens2"), "mac0": ("bond0",)},
        {"bond0": ("ens1", "bond0.7"), "bond0.7": ("bond0",)},  # no machine has it
    ],
)
def test_an_adapter_of_what_a_fast_interface_lies_on_is_its_own(stack: Mapping[str, tuple[str, ...]]) -> None:
    fast = [*stack][-1]
    for device, found in (("ens1", ("RoCE", ("mlx5_bond_0",))), ("eth0", ("tcp", ()))):
        files = stacked(stack, fast, "mlx5_bond_0")
        files["/sys/class/infiniband/mlx5_bond_0/device"] = files[f"/sys/class/net/{device}/device"]
        for one in both(files):
            fabric = fabric_of(one, "10.1.0.1")
            assert (fabric.interfaces, fabric.management, fabric.shared) == ((fast,), ("eth0",), ())
            assert (fabric.carrier, fabric.adapters) == found


def both(files: Files) -> tuple[Node, Node]:
    """The node as it answers, and as a facts file has it, which was captured without a word of the site."""
    facts = capture_system(DictTree({"/sys/devices/system/cpu/online": b"0\n", **files}), "x", (), [])
    return small(net=files), Node(parse_facts(format_facts(facts).encode(), "facts"), NodeAnswer("facts"))


@pytest.mark.parametrize("above", ["bond0.7", "br0", "mac0"])
@pytest.mark.parametrize("address", ["10.1.0.1", "10.2.0.1", None])
def test_what_lies_on_a_fast_interface_is_not_fast_by_that(above: str, address: str | None) -> None:
    files = stacked({"bond0": ("ens1", "ens2"), above: ("bond0",)}, above, "mlx5_bond_0")
    files["/proc/net/route"] = routes(eth0="10.1.0", bond0="10.3.0", **{above: "10.2.0"})
    for one in both(files):
        fabric = fabric_of(one, address)
        assert (fabric.interfaces, fabric.management, fabric.shared) == (("bond0",), ("eth0",), (above,))
        assert (fabric.carrier, fabric.adapters) == ("RoCE", ("mlx5_bond_0",))
    # What lies on the interface for management is for management.
    files = stacked({above: ("eth0",)}, "ens1")
    files["/proc/net/route"] = routes(eth0="10.1.0", ens1="10.3.0", **{above: "10.2.0"})
    for one in both(files):
        fabric = fabric_of(one, address)
        assert (fabric.interfaces, set(fabric.management), fabric.shared) == (("ens1",), {"eth0", above}, ())


def test_of_two_vlans_on_one_bond_that_of_slurm_manages() -> None:
    files = stacked({"bond0": ("ens1", "ens2"), "bond0.7": ("bond0",), "bond0.8": ("bond0",)}, "bond0.8", "mlx5_0")
    files["/proc/net/route"] = routes(**{"bond0.7": "10.3.0", "bond0.8": "10.2.0"})
    for one in both(files):
        fabric = fabric_of(one, "10.3.0.1")
        assert (fabric.interfaces, fabric.shared) == (("bond0.8",), ("bond0.7",))
        fabric = fabric_of(one, None)  # nobody knows
        assert (fabric.interfaces, fabric.shared) == (("bond0.7", "bond0.8"), ("bond0.7", "bond0.8"))


def test_interfaces_come_as_people_count() -> None:
    names = {f"hsn{number}": (200000, f"10.{number}.0") for number in (10, 2, 1, 9)}
    for one in both(network(eth0=(1000, "10.20.0"), **names)):
        assert fabric_of(one, None).interfaces == ("hsn1", "hsn2", "hsn9", "hsn10")
    without = {name: (speed, "" if name == "hsn1" else address) for name, (speed, address) in names.items()}
    for one in both(network(eth0=(1000, "10.20.0"), **without)):
        assert fabric_of(one, None).interfaces[0] == "hsn2"


def test_a_facts_file_of_before_has_its_interfaces() -> None:
    """It does not know which of them have an address."""
    old = Node(small(net=network(eth0=(1000, "10.1.0"), ib0=(100000, "10.2.0"))).facts, NodeAnswer("facts"))
    interfaces = {name: replace(one, lower=None, networks=None) for name, one in old.facts.interfaces.items()}
    fabric = fabric_of(replace(old, facts=replace(old.facts, interfaces=interfaces)), "10.1.0.1")
    assert (fabric.interfaces, fabric.management) == (("ib0",), ("eth0",))


MORE = {
    "weird": ("weirdfs", "type"),
    "var_nfs": ("nfs4", "system"),
    "a b": ("nfs4", "name"),
    "home": ("autofs", "automount"),
    "home_ann": ("nfs4", None),
    "scratch_fast": ("xfs", "inside"),
    "scratch_deep": ("nfs4", None),
    "usr_lib": ("xfs", None),
    "cvmfs": ("squashfs", None),
}


def test_a_mount_that_is_not_known_by_name_does_not_vanish() -> None:
    table = mounts({}, scratch="lustre", **{name: kind for name, (kind, _) in MORE.items()})
    node = small(m=table)
    found = {one.path: (one.kind, one.doubt) for one in folders_of(node, small())}
    expected = {f"/{name.replace('_', '/')}": ("", doubt) for name, (_, doubt) in MORE.items() if doubt}
    assert found == {"/scratch": ("shared", None), **expected}
    silent = {**table, "/output/stat": table["/output/stat"].replace(b" directory /weird", b" directory /else")}  # type: ignore[union-attr]
    assert {one.path: one.doubt for one in folders_of(small(m=silent), small())}["/weird"] == "silent"


def test_what_is_read_only_or_not_for_all_users_is_a_question() -> None:
    table = mounts({}, local="xfs", fast="tmpfs", apps="nfs4", data="lustre")
    lines, rights = table["/proc/self/mountinfo"], table["/output/rights"]
    assert isinstance(lines, bytes)
    assert isinstance(rights, bytes)
    table["/proc/self/mountinfo"] = b"\n".join(
        line.replace(b" rw", b" ro") if b" /local " in line or b" /apps " in line else line
        for line in lines.split(b"\n")
    )
    table["/output/rights"] = rights.replace(b"drwxrwxrwt /fast", b"drwxrwx--T /fast")
    found = {one.path: (one.kind, one.doubt, one.writable) for one in folders_of(small(m=table), small())}
    assert found == {
        "/local": ("", "read-only", False),
        "/fast": ("", "shut", False),
        "/apps": ("shared", None, False),  # software is often so
        "/data": ("shared", None, False),
    }


def test_of_two_mounts_at_one_point_the_last_counts() -> None:
    table = mounts({}, data="autofs")
    line = table["/proc/self/mountinfo"]
    assert isinstance(line, bytes)
    table["/proc/self/mountinfo"] = line + line.replace(b"autofs", b"nfs4")
    assert [(one.path, one.kind, one.type) for one in folders_of(small(m=table), small())] == [
        ("/data", "shared", "nfs4")
    ]


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
    assert fabric_of(small(), None) == FoundFabric("tcp", (), (), ())
