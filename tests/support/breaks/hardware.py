"""Planted changes of what the kernel says of a node: interfaces, network adapters, GPUs, CPUs, drivers."""

from __future__ import annotations

from tests.support.breaks.row import Break, Plant
from tests.support.dict_trees import Link
from tests.support.nodes import lumi_node

HSN0 = "/sys/devices/pci0000:00/0000:00:01.1/0000:c2:00.0"
SWAP = ("c9", "d1")
_GPU = ("class", "vendor", "local_cpulist", "numa_node")


def _gpu(bus: str) -> str:
    return f"/sys/bus/pci/devices/0000:{bus}:00.0"


def _swapped_buses() -> Plant:
    """Two GPUs have changed places: each bus now answers with the other's neighbours."""
    files = lumi_node()
    one, other = (_gpu(bus) for bus in SWAP)
    changes: dict[str, bytes | Link | None] = {}
    for name in ("numa_node", "local_cpulist"):
        changes |= {f"{one}/{name}": files[f"{other}/{name}"], f"{other}/{name}": files[f"{one}/{name}"]}
    return changes


def _another_bus() -> Plant:
    moved = {path: content for path, content in lumi_node().items() if path.startswith(_gpu("ce"))}
    moved["/sys/bus/pci/drivers/amdgpu/0000:ce:00.0"] = Link(_gpu("cc"))
    gone: dict[str, bytes | Link | None] = dict.fromkeys(moved)
    return gone | {path.replace(":ce:", ":cc:"): content for path, content in moved.items()}


def _one_domain() -> Plant:
    """What NPS1 makes of NPS4: each device is in the one domain, and near all CPUs."""
    node = "/sys/devices/system/node/node"
    changes: dict[str, bytes | Link | None] = {
        path: None for path in lumi_node() if path.startswith((f"{node}1/", f"{node}2/", f"{node}3/"))
    }
    changes |= {path: b"0\n" for path in lumi_node() if path.endswith("/numa_node")}
    changes |= {path: b"0-127\n" for path in lumi_node() if path.endswith("/local_cpulist")}
    return {**changes, f"{node}0/cpulist": b"0-127\n"}


HARDWARE = {
    # interfaces
    "vanished interface": Break(
        {"/sys/class/net/hsn3": None},
        ("interface", "hsn3"),
        [("site", "fabric.interfaces"), ("setting", "NCCL_SOCKET_IFNAME"), ("site", "node_kinds.lumi-g.nics")],
    ),
    "slower interface": Break(
        {f"{HSN0}/net/hsn0/speed": b"100000\n"},
        ("interface", "hsn0"),
        [("site", "fabric.interfaces")],
    ),
    "interface that is down": Break(
        {f"{HSN0}/net/hsn0/operstate": b"down\n"},
        ("interface", "hsn0"),
        [("site", "fabric.interfaces"), ("setting", "NCCL_SOCKET_IFNAME")],
    ),
    "interface with another driver": Break(
        {f"{HSN0}/driver": Link("/sys/bus/pci/drivers/cxi_ss2"), "/sys/bus/pci/drivers/cxi_ss2/bind": b""},
        ("interface", "hsn0"),
        [("site", "node_kinds.lumi-g.nics")],
        also=(("kernel-module", "cxi_ss2"),),
    ),
    "interface that came": Break(
        {"/sys/class/net/nmn0/operstate": b"up\n"},
        ("interface", "nmn0"),
        [("site", "fabric.management")],
    ),
    "renamed interface": Break(
        {"/sys/class/net/hsn3": None, "/sys/class/net/hsn4": lumi_node()["/sys/class/net/hsn3"]},
        ("interface", "hsn3"),
        [("setting", "NCCL_SOCKET_IFNAME"), ("site", "fabric.interfaces")],
        also=(("interface", "hsn4"),),
    ),
    # network adapters
    "moved adapter": Break(
        {f"{HSN0}/numa_node": b"0\n"},
        ("nic", "cxi0"),
        [("site", "node_kinds.lumi-g.nics")],
        also=(("interface", "hsn0"),),
    ),
    "vanished adapter": Break(
        {"/sys/class/cxi/cxi2/device": None},
        ("nic", "cxi2"),
        [("site", "node_kinds.lumi-g.nics")],
    ),
    # GPUs
    "swapped bus ids": Break(
        _swapped_buses(),
        ("gpu-place", "GPU 2"),
        [("site", "node_kinds.lumi-g.gpus"), ("mask", "lumi-g")],
        also=(("gpu-place", "GPU 4"),),
    ),
    "another bus id": Break(
        _another_bus(),
        ("gpu-bus", "GPU bus ids"),
        [("site", "platforms.2026-01.gpu_bus_ids.lumi-g"), ("mask", "lumi-g")],
    ),
    "a GPU less": Break(
        {f"{_gpu('de')}/{name}": None for name in _GPU},
        ("gpu-count", "GPUs"),
        [("mask", "lumi-g"), ("site", "node_kinds.lumi-g.gpus")],
    ),
    "GPUs that no driver has": Break(
        {f"/sys/bus/pci/drivers/amdgpu/0000:{bus}:00.0": None for bus in ("c9", "d6")},
        ("gpu-count", "GPUs"),
        [("mask", "lumi-g"), ("site", "node_kinds.lumi-g.gpus")],
    ),
    # CPUs
    "CPUs": Break(
        {f"/sys/devices/system/cpu/cpu{cpu}/cache/index1/level": b"2\n" for cpu in range(128)},
        ("cpus", "CPUs"),
        [("site", "node_kinds.lumi-g.l3"), ("mask", "lumi-g")],
    ),
    "no SMT": Break(
        {"/sys/devices/system/cpu/online": b"0-63\n", "/sys/devices/system/cpu/smt/control": b"off\n", "/proc/cmdline": b"nosmt\n", f"{HSN0}/local_cpulist": b"0-63\n"},
        ("cpus", "CPUs"),
        [("site", "node_kinds.lumi-g.l3"), ("mask", "lumi-g")],
        also=(("kernel-parameter", "nosmt"), ("kernel-setting", "smt"),),
        both={"/sys/devices/system/cpu/smt/control": b"on\n"},
    ),
    "one NUMA domain": Break(
        _one_domain(),
        ("cpus", "CPUs"),
        [("site", "node_kinds.lumi-g.l3")],
    ),
    # drivers
    "driver": Break(
        {"/sys/module/amdgpu/version": b"6.12.1\n"},
        ("driver", "amdgpu"),
        [("site", "platforms.2026-01.stacks.rocm.runs")],
    ),
    "driver that is not loaded": Break(
        {"/sys/module/amdgpu/version": None, "/sys/module/amdgpu/srcversion": None},
        ("driver", "amdgpu"),
        [("site", "platforms.2026-01.stacks.rocm.driver")],
    ),
}  # fmt: skip
