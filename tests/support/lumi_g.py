"""A LUMI-G node: its topology, its published CPU masks, and the kernel's files that follow from the topology."""

from __future__ import annotations

from collections.abc import Iterable

from lumisite.machine.topology import topology_of
from lumisite.site.cpu_list import format_cpu_list
from lumisite.site.load import load_site

_SITE = load_site("lumi").site
BUS_IDS = _SITE.platforms["2026-01"].gpu_bus_ids["lumi-g"]
LUMI_G = topology_of("node kind lumi-g", _SITE.node_kinds["lumi-g"], BUS_IDS)

# The masks that LUMI publishes for a whole LUMI-G node: user guide, "Distribution and binding", and for two threads of
# each core the affinity check of LUMI's ReFrame tests.
PUBLISHED = [
    "0xfe000000000000",
    "0xfe00000000000000",
    "0xfe0000",
    "0xfe000000",
    "0xfe",
    "0xfe00",
    "0xfe00000000",
    "0xfe0000000000",
]
PUBLISHED_BOTH_THREADS = [f"{int(mask, 16) << 64 | int(mask, 16):#x}" for mask in PUBLISHED]

CPU = "/sys/devices/system/cpu"


def lumi_g_files() -> dict[str, bytes]:
    """The kernel writes each set of CPUs twice, as a list and as words of a mask; hwloc reads the words."""
    files = dict.fromkeys((f"{CPU}/online", f"{CPU}/possible", f"{CPU}/present"), b"0-127\n")
    files |= {"/sys/devices/system/node/online": b"0-3\n", "/proc/cpuinfo": b"processor\t: 0\n", "/proc/mounts": b""}
    l3 = [[pu for core in LUMI_G.cores if core.l3 == number for pu in core.pu_os] for number in range(8)]
    for core in LUMI_G.cores:
        caches = {2: core.pu_os, 3: l3[core.l3 or 0]}
        for pu in core.pu_os:
            topology = f"{CPU}/cpu{pu}/topology"
            files |= {f"{topology}/core_id": _line(core.core_logical), f"{topology}/physical_package_id": b"0\n"}
            for name in ("core_cpus", "thread_siblings"):
                files |= {f"{topology}/{name}_list": _list(core.pu_os), f"{topology}/{name}": _words(core.pu_os)}
            for index, (level, cpus) in enumerate(caches.items()):
                cache = f"{CPU}/cpu{pu}/cache/index{index}"
                files |= {f"{cache}/level": _line(level), f"{cache}/type": b"Unified\n"}
                files |= {f"{cache}/shared_cpu_list": _list(cpus), f"{cache}/shared_cpu_map": _words(cpus)}
    for numa in range(4):
        domain = f"/sys/devices/system/node/node{numa}"
        cpus = [pu for core in LUMI_G.cores if core.numa == numa for pu in core.pu_os]
        files |= {f"{domain}/cpulist": _list(cpus), f"{domain}/cpumap": _words(cpus)}
        files[f"{domain}/meminfo"] = _line(f"Node {numa} MemTotal:       131072000 kB")
    for gpu in LUMI_G.gpus:
        files |= _pci(gpu.pci_bus, "0x038000", "0x1002", _list(l3[gpu.l3 or 0]), gpu.numa)
    files |= _pci("0000:02:00.0", "0x030000", "0x1a03", b"0-127\n", -1)
    files["/proc/self/status"] = b"Name:\tpython3\nCpus_allowed:\tffffffff\nCpus_allowed_list:\t0-127\n"
    return files


def _pci(bus: str, pci_class: str, vendor: str, near: bytes, numa: int | None) -> dict[str, bytes]:
    values = {"class": _line(pci_class), "vendor": _line(vendor), "local_cpulist": near, "numa_node": _line(numa)}
    return {f"/sys/bus/pci/devices/{bus}/{name}": value for name, value in values.items()}


def _line(value: object) -> bytes:
    return f"{value}\n".encode()


def _list(cpus: Iterable[int]) -> bytes:
    return _line(format_cpu_list(cpus))


def _words(cpus: Iterable[int]) -> bytes:
    value = sum(1 << cpu for cpu in cpus)
    return _line(",".join(f"{value >> shift & 0xFFFFFFFF:08x}" for shift in (96, 64, 32, 0)))
