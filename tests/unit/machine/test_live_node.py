from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from lumisite.machine.gpus import PCI_DRIVERS, gpus_of_node
from lumisite.machine.host import DiskTree
from lumisite.machine.hwloc import parse_hwloc
from lumisite.machine.live_node import read_allowed, read_topology
from lumisite.machine.topology import Topology, TopologyError
from tests.support.dict_trees import DictTree, write_tree
from tests.support.lumi_g import LUMI_G, lumi_g_files
from tests.support.tools import tool


def node(changed: Mapping[str, bytes | None]) -> DictTree:
    """A LUMI-G node some files of which, by how their paths end, are others or (None) not there."""
    files = lumi_g_files()
    for name, content in changed.items():
        ends = [path for path in files if path.endswith(name)]
        assert ends, name
        for path in ends:
            if content is None:
                del files[path]
            else:
                files[path] = content
    return DictTree(files)


def read(changed: Mapping[str, bytes | None]) -> Topology:
    return read_topology(node(changed))


def test_a_live_lumi_g_node_has_lumi_gs_topology() -> None:
    assert read({}) == Topology("this node", LUMI_G.cores, LUMI_G.gpus)
    assert read_allowed(node({})) == frozenset(range(128))


def test_hwloc_sees_the_same_cores_in_the_tree_on_disk(tmp_path: Path) -> None:
    write_tree(tmp_path, lumi_g_files())
    assert read_topology(DiskTree(str(tmp_path))) == read({})
    command = [tool("lstopo-no-graphics", "lstopo"), "-i", str(tmp_path), "--if", "fsroot", "--of", "xml"]
    output = subprocess.run(command, check=True, capture_output=True).stdout
    assert parse_hwloc(output, "node.xml").cores == read({}).cores


def test_a_gpu_that_no_driver_has_is_none_to_use() -> None:
    """It stays on the bus. Of a copy without the kernel's drivers, all on the bus count."""
    assert {gpu.driver for gpu in gpus_of_node(node({}))} == {None}
    bound = {f"{PCI_DRIVERS}/amdgpu/{gpu.pci_bus}": b"" for gpu in LUMI_G.gpus[1:]}
    passed_through = {f"{PCI_DRIVERS}/vfio-pci/{LUMI_G.gpus[0].pci_bus}": b""}
    gpus = gpus_of_node(DictTree({**lumi_g_files(), **bound, **passed_through}))
    assert [(gpu.bus, gpu.usable) for gpu in gpus] == [(gpu.pci_bus, gpu.index > 0) for gpu in LUMI_G.gpus]
    assert {gpu.driver for gpu in gpus if gpu.usable} == {"amdgpu"}


def test_packages_are_kept_apart_where_there_are_several() -> None:
    """By the live node and by hwloc alike."""
    second = [path for path in lumi_g_files() if re.search(r"/cpu(3[2-9]|[45][0-9]|6[0-3])/topology/physical", path)]
    assert [core.package for core in read(dict.fromkeys(second, b"1\n")).cores] == [0] * 32 + [1] * 32
    groups = "".join(
        f'<object type="Package" os_index="{n}"><object type="PU" os_index="{n}"/></object>' for n in (0, 1)
    )
    text = f'<topology version="2.0"><object type="Machine">{groups}</object></topology>'
    assert [core.package for core in parse_hwloc(text.encode(), "x").cores] == [0, 1]


def test_threads_that_are_offline_are_not_there() -> None:
    topology = read({"cpu/online": b"0-63\n"})
    assert [core.pu_os for core in topology.cores] == [(cpu,) for cpu in range(64)]
    assert topology.gpus == LUMI_G.gpus


def test_a_gpu_without_local_cpus_is_placed_by_its_numa_domain() -> None:
    assert read({"local_cpulist": None}).gpus == tuple(replace(gpu, l3=None) for gpu in LUMI_G.gpus)
    assert read({"local_cpulist": b"0-127\n"}).gpus[0].numa == 3
    nowhere = read({"local_cpulist": b"0-127\n", "numa_node": b"-1\n"}).gpus
    assert {(gpu.numa, gpu.l3) for gpu in nowhere} == {(None, None)}


def test_a_virtual_machine_without_caches_domains_and_gpus_is_read() -> None:
    topology = read_topology(DictTree({"/sys/devices/system/cpu/online": b"0-1\n"}))
    assert [(core.pu_os, core.l3, core.numa) for core in topology.cores] == [((0,), None, None), ((1,), None, None)]
    assert topology.gpus == ()


@pytest.mark.parametrize(
    ("changed", "path", "code"),
    [
        ({"cpu/online": None}, "/sys/devices/system/cpu/online", "file-unreadable"),
        ({"cpu/online": b"all\n"}, "/sys/devices/system/cpu/online", "value-wrong"),
        ({"cpu3/topology/thread_siblings_list": b"5\n"}, "thread_siblings_list", "file-unreadable"),
        ({"0000:c1:00.0/local_cpulist": b"?\n"}, "0000:c1:00.0/local_cpulist", "value-wrong"),
        ({"status": b"Name: x\n"}, "/proc/self/status", "file-unreadable"),
    ],
)
def test_a_file_that_is_damaged_or_missing_is_named(changed: Mapping[str, bytes | None], path: str, code: str) -> None:
    with pytest.raises(TopologyError) as caught:
        read_allowed(node(changed)) if "status" in changed else read(changed)
    assert caught.value.finding.subject.endswith(path)
    assert caught.value.finding.code == code
