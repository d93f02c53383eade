from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from lumisite.machine.host import PCI_DRIVERS, DiskTree, gpus_of_node
from lumisite.machine.hwloc import parse_hwloc
from lumisite.machine.live import read_allowed, read_topology
from lumisite.machine.topology import Core, Gpu, Topology, TopologyError
from lumisite.machine.tree import Tree
from lumisite.site.cpu_list import format_cpu_list
from tests.support.dict_trees import DictTree
from tests.support.tools import tool
from tests.unit.machine.test_topology import LUMI_G

CPU = "sys/devices/system/cpu"


def lumi_g_files() -> dict[str, str]:
    """Give the kernel's files of a LUMI-G node, by path; what they hold follows from LUMI-G's topology.

    The kernel writes each set of CPUs twice, as a list and as words of a mask; hwloc reads the words.
    """
    files = dict.fromkeys((f"{CPU}/online", f"{CPU}/possible", f"{CPU}/present"), "0-127\n")
    files |= {"sys/devices/system/node/online": "0-3\n", "proc/cpuinfo": "processor\t: 0\n", "proc/mounts": ""}
    for core in LUMI_G.cores:
        in_l3 = [pu for other in LUMI_G.cores if other.l3 == core.l3 for pu in other.pu_os]
        for pu in core.pu_os:
            files |= cpu_files(f"{CPU}/cpu{pu}", core, in_l3)
    for numa in range(4):
        here = f"sys/devices/system/node/node{numa}"
        cpus = [pu for core in LUMI_G.cores if core.numa == numa for pu in core.pu_os]
        files |= {f"{here}/cpulist": listed(cpus), f"{here}/cpumap": words(cpus)}
        files[f"{here}/meminfo"] = f"Node {numa} MemTotal:       131072000 kB\n"
    for gpu in LUMI_G.gpus:
        near = (pu for core in LUMI_G.cores if core.l3 == gpu.l3 for pu in core.pu_os)
        files |= pci(gpu.pci_bus, "0x038000", "0x1002", listed(near), gpu.numa)
    files |= pci("0000:02:00.0", "0x030000", "0x1a03", "0-127\n", -1)
    files["proc/self/status"] = "Name:\tpython3\nCpus_allowed:\tffffffff\nCpus_allowed_list:\t0-127\n"
    return files


def cpu_files(here: str, core: Core, in_l3: Sequence[int]) -> dict[str, str]:
    files = {f"{here}/topology/core_id": f"{core.core_logical}\n", f"{here}/topology/physical_package_id": "0\n"}
    for name in ("core_cpus", "thread_siblings"):
        files |= {f"{here}/topology/{name}_list": listed(core.pu_os), f"{here}/topology/{name}": words(core.pu_os)}
    for index, (level, cpus) in enumerate(((2, core.pu_os), (3, in_l3))):
        cache = f"{here}/cache/index{index}"
        files |= {f"{cache}/level": f"{level}\n", f"{cache}/type": "Unified\n"}
        files |= {f"{cache}/shared_cpu_list": listed(cpus), f"{cache}/shared_cpu_map": words(cpus)}
    return files


def test_a_gpu_that_no_driver_has_is_none_to_use() -> None:
    """It stays on the bus. Of a copy without the kernel's drivers, all on the bus count."""
    files = {f"/{path}": text.encode() for path, text in lumi_g_files().items()}
    assert {gpu.driver for gpu in gpus_of_node(DictTree(files))} == {None}
    bound = {f"{PCI_DRIVERS}/amdgpu/{gpu.pci_bus}": b"" for gpu in LUMI_G.gpus[1:]}
    seen = gpus_of_node(DictTree({**files, **bound, f"{PCI_DRIVERS}/vfio-pci/{LUMI_G.gpus[0].pci_bus}": b""}))
    assert len(seen) == len(LUMI_G.gpus)
    assert [gpu.bus for gpu in seen if not gpu.usable] == [LUMI_G.gpus[0].pci_bus]
    assert {gpu.driver for gpu in seen if gpu.usable} == {"amdgpu"}


def test_packages_are_told_apart_where_there_are_several() -> None:
    """By the live node and by hwloc alike."""
    files = lumi_g_files()
    for path in (path for path in files if re.search(r"/cpu(3[2-9]|[45][0-9]|6[0-3])/topology/physical", path)):
        files[path] = "1\n"
    cores = read_topology(tree(files)).cores
    assert [core.package for core in cores] == [0] * 32 + [1] * 32
    groups = "".join(
        f'<object type="Package" os_index="{n}"><object type="PU" os_index="{n}"/></object>' for n in (0, 1)
    )
    (first, second) = parse_hwloc(
        f'<topology version="2.0"><object type="Machine">{groups}</object></topology>'.encode(), "x"
    ).cores
    assert (first.package, second.package) == (0, 1)


def listed(cpus: Iterable[int]) -> str:
    return f"{format_cpu_list(cpus)}\n"


def words(cpus: Iterable[int]) -> str:
    value = sum(1 << cpu for cpu in cpus)
    return ",".join(f"{value >> shift & 0xFFFFFFFF:08x}" for shift in (96, 64, 32, 0)) + "\n"


def pci(bus: str, pci_class: str, vendor: str, local: str, numa: int | None) -> dict[str, str]:
    here = f"sys/bus/pci/devices/{bus}"
    return {
        f"{here}/class": f"{pci_class}\n",
        f"{here}/vendor": f"{vendor}\n",
        f"{here}/local_cpulist": local,
        f"{here}/numa_node": f"{numa}\n",
    }


@dataclass(frozen=True)
class LiveNode:
    """All that is read of a node."""

    topology: Topology
    allowed: frozenset[int]


def read_live(tree: Tree) -> LiveNode:
    return LiveNode(read_topology(tree), read_allowed(tree))


def tree(files: Mapping[str, str]) -> Tree:
    return DictTree({f"/{path}": text.encode() for path, text in files.items()})


def read(**changed: str | None) -> LiveNode:
    """Read a LUMI-G node some files of which are others or (None) not there; `__` stands for `/`."""
    files = lumi_g_files()
    for name, text in changed.items():
        ends = [path for path in files if path.endswith(name.replace("__", "/"))]
        assert ends, name
        for path in ends:
            if text is None:
                del files[path]
            else:
                files[path] = text
    return read_live(tree(files))


def test_a_live_lumi_g_node_has_lumi_gs_topology() -> None:
    live = read()
    assert live.topology == Topology("this node", LUMI_G.cores, LUMI_G.gpus)
    assert live.allowed == frozenset(range(128))


def test_hwloc_sees_the_same_cores_in_the_tree_on_disk(tmp_path: Path) -> None:
    write(lumi_g_files(), tmp_path)
    assert read_live(DiskTree(str(tmp_path))) == read()
    command = [tool("lstopo-no-graphics", "lstopo"), "-i", str(tmp_path), "--if", "fsroot", "--of", "xml"]
    output = subprocess.run(command, check=True, capture_output=True).stdout
    assert parse_hwloc(output, "node.xml").cores == read().topology.cores


def write(files: Mapping[str, str], root: Path) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def test_threads_that_are_offline_are_not_there() -> None:
    live = read(cpu__online="0-63\n")
    assert [core.pu_os for core in live.topology.cores] == [(cpu,) for cpu in range(64)]
    assert live.topology.gpus == LUMI_G.gpus


def test_a_gpu_without_local_cpus_is_placed_by_its_numa_domain() -> None:
    assert read(local_cpulist=None).topology.gpus == tuple(
        Gpu(gpu.index, gpu.pci_bus, gpu.numa, None) for gpu in LUMI_G.gpus
    )
    assert read(local_cpulist="0-127\n").topology.gpus[0].numa == 3
    nowhere = read(local_cpulist="0-127\n", numa_node="-1\n").topology.gpus
    assert {(gpu.numa, gpu.l3) for gpu in nowhere} == {(None, None)}


def test_a_virtual_machine_without_caches_domains_and_gpus_is_read() -> None:
    live = read_live(tree({"sys/devices/system/cpu/online": "0-1\n", "proc/self/status": "Cpus_allowed_list: 0-1\n"}))
    assert [(core.pu_os, core.l3, core.numa) for core in live.topology.cores] == [
        ((0,), None, None),
        ((1,), None, None),
    ]
    assert live.topology.gpus == ()


@pytest.mark.parametrize(
    ("changed", "path", "code"),
    [
        ({"cpu__online": None}, "/sys/devices/system/cpu/online", "file-unreadable"),
        ({"cpu__online": "all\n"}, "/sys/devices/system/cpu/online", "value-wrong"),
        ({"cpu3__topology__thread_siblings_list": "5\n"}, "thread_siblings_list", "file-unreadable"),
        ({"0000:c1:00.0__local_cpulist": "?\n"}, "0000:c1:00.0/local_cpulist", "value-wrong"),
        ({"status": "Name: x\n"}, "/proc/self/status", "file-unreadable"),
    ],
)
def test_a_file_that_is_damaged_or_missing_is_named(changed: Mapping[str, str | None], path: str, code: str) -> None:
    with pytest.raises(TopologyError) as caught:
        read(**changed)
    assert caught.value.finding.subject.endswith(path)
    assert caught.value.finding.code == code
