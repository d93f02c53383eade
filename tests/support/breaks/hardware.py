"""Planted changes of what the kernel says of a node: interfaces, network adapters, GPUs, CPUs, drivers."""

from __future__ import annotations

from tests.support.breaks.row import NOTHING, Break, Plant
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
    gone: dict[str, bytes | Link | None] = dict.fromkeys(moved)
    return gone | {path.replace(":ce:", ":cc:"): content for path, content in moved.items()}


HARDWARE = {
    # interfaces
    "vanished interface": Break(
        {"/sys/class/net/hsn3": None},
        "interface hsn3 is gone",
        [
            ("site", "fabric.interfaces", "names hsn3, which is gone"),
            ("setting", "NCCL_SOCKET_IFNAME", "its value names hsn3"),
            ("site", "node_kinds.lumi-g.nics", "places hsn3"),
        ],
        "The network interface hsn3 is gone",
    ),
    "slower interface": Break(
        {f"{HSN0}/net/hsn0/speed": b"100000\n"},
        "interface hsn0: speed_mbit 200000 -> 100000",
        [("site", "fabric.interfaces", "is not what it was")],
        "interface hsn0: speed_mbit 200000 -> 100000.",
    ),
    "interface that is down": Break(
        {f"{HSN0}/net/hsn0/operstate": b"down\n"},
        "interface hsn0: state up -> down",
        [("site", "fabric.interfaces", "is not what it was"), ("setting", "NCCL_SOCKET_IFNAME", "its value names hsn0")],
        "interface hsn0: state up -> down.",
    ),
    "interface with another driver": Break(
        {f"{HSN0}/driver": Link("/sys/bus/pci/drivers/cxi_ss2"), "/sys/bus/pci/drivers/cxi_ss2/bind": b""},
        "interface hsn0: driver cxi_ss1 -> cxi_ss2",
        [("site", "node_kinds.lumi-g.nics", "places hsn0")],
        "interface hsn0: driver cxi_ss1 -> cxi_ss2.",
    ),
    "interface that came": Break(
        {"/sys/class/net/nmn0/operstate": b"up\n"},
        "interface nmn0 is new",
        [("site", "fabric.management", "names nmn0, which is there now")],
        "interface nmn0 is new.",
    ),
    "renamed interface": Break(
        {"/sys/class/net/hsn3": None, "/sys/class/net/hsn4": lumi_node()["/sys/class/net/hsn3"]},
        "interface hsn3 is called hsn4 now",
        [
            ("setting", "NCCL_SOCKET_IFNAME", "its value names hsn3"),
            ("site", "fabric.interfaces", "names hsn3, which is called hsn4 now"),
        ],
        "The network interface hsn3 is called hsn4 now: do not name it",
    ),
    "interface that another card has the place of": Break(
        {"/sys/class/net/hsn3": None, "/sys/class/net/new0/device": Link(HSN0)},
        "interface hsn3 is gone",
        [("site", "fabric.interfaces", "names hsn3, which is gone")],
        "The network interface hsn3 is gone",
        also=("interface new0 is new",),
    ),
    # network adapters
    "moved adapter": Break(
        {f"{HSN0}/numa_node": b"0\n"},
        "network adapter cxi0: numa 3 -> 0",
        [("site", "node_kinds.lumi-g.nics", "cxi0")],
        "network adapter cxi0: numa 3 -> 0.",
        also=("interface hsn0: numa 3 -> 0",),
    ),
    "vanished adapter": Break(
        {"/sys/class/cxi/cxi2/device": None},
        "network adapter cxi2 is gone",
        [("site", "node_kinds.lumi-g.nics", "cxi2 is gone")],
        "network adapter cxi2 is gone.",
    ),
    "adapter near other CPUs": Break(
        {f"{HSN0}/local_cpulist": b"0-63\n"},
        "network adapter cxi0: cpus 0-127 -> 0-63",
        [("site", "node_kinds.lumi-g.nics", "cxi0")],
        "network adapter cxi0: cpus 0-127 -> 0-63.",
    ),
    # GPUs
    "swapped bus ids": Break(
        _swapped_buses(),
        "GPU 2: NUMA domain 1, CPUs 16-23,80-87 -> NUMA domain 0, CPUs 0-7,64-71",
        [("site", "node_kinds.lumi-g.gpus", "GPU 2"), ("mask", "lumi-g", "the place of its GPU")],
        "GPUs are nearer to other cores than before",
        also=("GPU 4: NUMA domain 0, CPUs 0-7,64-71 -> NUMA domain 1, CPUs 16-23,80-87",),
    ),
    "another bus id": Break(
        _another_bus(),
        "GPU bus ids: GPU 3 0000:ce:00.0 -> 0000:cc:00.0",
        [("site", "platforms.2026-01.gpu_bus_ids.lumi-g", "0000:ce:00.0"), ("mask", "lumi-g", "recognised by its bus ids")],
        "The PCI bus ids of GPUs: GPU 3 0000:ce:00.0 -> 0000:cc:00.0.",
    ),
    "a GPU less": Break(
        {f"{_gpu('de')}/{name}": None for name in _GPU},
        "GPUs: 8 -> 7",
        [("mask", "lumi-g", ""), ("site", "node_kinds.lumi-g.gpus", "GPUs: 8 -> 7")],
        "GPUs: 8 -> 7.",
    ),
    "no GPU": Break(
        {f"{_gpu(bus)}/{name}": None for bus in ("c1", "c6", "c9", "ce", "d1", "d6", "d9", "de") for name in _GPU},
        "GPUs: 8 -> 0",
        [("mask", "lumi-g", ""), ("site", "node_kinds.lumi-g.gpus", "GPUs: 8 -> 0")],
        "GPUs: 8 -> 0.",
    ),
    # CPUs
    "CPUs": Break(
        {f"/sys/devices/system/cpu/cpu{cpu}/cache/index1/level": b"2\n" for cpu in range(128)},
        "CPUs by L3@NUMA",
        [("site", "node_kinds.lumi-g.l3", ""), ("mask", "lumi-g", "")],
        "CPUs are grouped in another way: CPU masks that are written into scripts may be wrong.",
    ),
    "CPUs that are offline": Break(
        {"/sys/devices/system/cpu/online": b"0-63\n"},
        "CPUs by L3@NUMA",
        [("site", "node_kinds.lumi-g.l3", ""), ("mask", "lumi-g", "")],
        "CPUs are grouped in another way: CPU masks that are written into scripts may be wrong.",
    ),
    # drivers
    "driver": Break(
        {"/sys/module/amdgpu/version": b"6.12.1\n"},
        "GPU driver: amdgpu 6.10.5 -> amdgpu 6.12.1",
        [("site", "platforms.2026-01.stacks.rocm.runs", "in no file of the node")],
        "GPU driver: amdgpu 6.10.5 -> amdgpu 6.12.1.",
    ),
    "driver built anew": Break(
        {"/sys/module/amdgpu/srcversion": b"CD34\n"},
        "amdgpu 6.10.5; built anew",
        [("site", "platforms.2026-01.stacks.rocm.runs", "")],
        "GPU driver: amdgpu 6.10.5 -> amdgpu 6.10.5; built anew.",
    ),
    "another driver of the same vendor": Break(
        {"/sys/module/i915/srcversion": None, "/sys/module/xe/srcversion": b"EF56\n"},
        "GPU driver: i915 -> xe",
        [],
        NOTHING,
        both={"/sys/module/i915/srcversion": b"CD34\n"},
    ),
    "driver that is not loaded": Break(
        {"/sys/module/amdgpu/version": None, "/sys/module/amdgpu/srcversion": None},
        "GPU driver: amdgpu 6.10.5 -> none",
        [("site", "platforms.2026-01.stacks.rocm.driver", "says")],
        "GPU driver: amdgpu 6.10.5 -> none.",
    ),
    "sources of another driver": Break(
        {"/usr/src/amdgpu-6.12.1-1/x": b""},
        "GPU driver: amdgpu 6.10.5 -> amdgpu 6.10.5 (amdgpu-6.12.1-1)",
        [("site", "platforms.2026-01.stacks.rocm.runs", "")],
        "GPU driver: amdgpu 6.10.5 -> amdgpu 6.10.5 (amdgpu-6.12.1-1).",
    ),
}  # fmt: skip
