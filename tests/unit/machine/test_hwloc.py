from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lumisite.machine.hwloc import parse_hwloc
from lumisite.machine.topology import Gpu, Topology, TopologyError
from tests.support.lumi_g import LUMI_G

#: Nothing there was captured on a machine: hwloc 2 made the cores, caches and domains from its synthetic topologies
#: (`pack:1 group:4 [numa] l3:2 core:8 pu:2(indexes=2*64:64*1)`, `pack:2 [numa] core:8 pu:1`), GPUs were put in where it
#: shows them on such nodes, and hwloc read and wrote the files again. Of the low-noise one it left cores out.
NODES = Path(__file__).parents[2] / "data" / "nodes"
HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n'


def node(name: str) -> Topology:
    return parse_hwloc((NODES / name).read_bytes(), name)


def small(inside: str, *, before: str = HEAD, machine: str = 'cpuset="0x3"', version: str = 'version="2.0"') -> str:
    """Give the XML of a machine with `inside` in it."""
    return f'{before}<topology {version}><object type="Machine" {machine}>{inside}</object></topology>'


def parse(text: str) -> Topology:
    return parse_hwloc(text.encode(), "node.xml")


PUS = '<object type="PU" os_index="0"/><object type="PU" os_index="1"/>'


def test_a_file_gives_the_whole_node() -> None:
    found = node("lumi-g.xml")
    assert found.cores == LUMI_G.cores
    assert found.gpus == LUMI_G.gpus
    assert found.reserved == frozenset()  # a file does not know them


def test_gpus_below_a_numa_domain_or_the_machine_have_no_nearer_place() -> None:
    assert node("lumi-g-numa.xml").gpus == tuple(replace(gpu, l3=None) for gpu in LUMI_G.gpus)
    assert node("lumi-g-unplaced.xml").gpus == tuple(replace(gpu, l3=None, numa=None) for gpu in LUMI_G.gpus)


def test_a_node_in_low_noise_mode_lacks_the_reserved_cores() -> None:
    found = node("lumi-g-low-noise.xml")
    assert found.pu_os == LUMI_G.pu_os - LUMI_G.reserved
    assert [core.l3 for core in found.cores] == [l3 for l3 in range(8) for _ in range(7)]


def test_gpus_are_numbered_in_the_order_of_their_pci_addresses() -> None:
    assert node("two-sockets-nvidia.xml").gpus == (
        Gpu(0, "0000:17:00.0", 0, None),
        Gpu(1, "0000:31:00.0", 0, None),
        Gpu(2, "0000:b1:00.0", 1, None),
        Gpu(3, "0000:ca:00.0", 1, None),
    )


def test_the_smallest_numa_domain_is_a_cores_own_and_memory_alone_is_none() -> None:
    domains = "".join(
        f'<object type="NUMANode" os_index="{number}" cpuset="{cpuset}"/>'
        for number, cpuset in ((0, "0x3"), (1, "0x1"), (2, "0x2"), (3, "0x0"), (4, "0x2"))
    )
    assert [core.numa for core in parse(small(domains + PUS)).cores] == [1, 2]


def test_pus_without_cores_are_cores() -> None:
    assert [core.pu_os for core in parse(small(PUS)).cores] == [(0,), (1,)]


def test_pus_that_are_not_allowed_are_reserved() -> None:
    assert parse(small(PUS, machine='cpuset="0x3" allowed_cpuset="0x2"')).reserved == {0}
    assert parse(small(PUS, machine='cpuset="0x3" allowed_cpuset="0xf...f"')).reserved == frozenset()


def pci(attributes: str) -> str:
    return small(PUS + f'\n<object type="PCIDev" {attributes}/>')


@pytest.mark.parametrize(
    ("text", "element", "attribute", "value"),
    [
        ("<html/>", "html", "version", ""),
        ('<topology version="3.0"/>', "topology", "version", "3.0"),
        (HEAD + '<topology version="2.0"/>', "PU", None, None),
        (small('<object type="PU"/>'), "PU", "os_index", ""),
        (small(PUS, machine='allowed_cpuset="0x1,zz"'), "Machine", "allowed_cpuset", "0x1,zz"),
        (small(PUS + '<object type="NUMANode" os_index="0"/>'), "NUMANode", "cpuset", ""),
        (pci('pci_type="0380 [1002:7408] x" pci_busid="c1"'), "PCIDev", "pci_busid", "c1"),
        (pci('pci_type="AMD" pci_busid="0000:c1:00.0"'), "PCIDev", "pci_type", "AMD"),
    ],
)
def test_an_attribute_that_hwloc_does_not_write_is_named(
    text: str, element: str, attribute: str | None, value: str | None
) -> None:
    with pytest.raises(TopologyError) as caught:
        parse(text)
    finding = caught.value.finding
    assert finding.advice == "write the file again with hwloc 2: lstopo FILE.xml"
    if attribute is None:
        assert finding.message == f"no {element}"
    elif value:
        assert finding.message == f"{element} has {attribute} {value}, which hwloc 2 does not write"
    else:
        assert finding.message == f"{element} has no {attribute}"


def test_a_bitmap_is_words_of_32_bits_the_highest_first() -> None:
    for bitmap, allowed in (("0x00000001,,0x00000003", {0, 1, 64}), ("0xf...f,0xffffff00", set(range(65)))):
        pus = "".join(f'<object type="PU" os_index="{number}"/>' for number in range(65))
        found = parse(small(pus, machine=f'allowed_cpuset="{bitmap}"'))
        assert found.pu_os - found.reserved == allowed


@pytest.mark.parametrize("text", ["", "hello", small(PUS)[:-20]])
def test_what_is_not_xml_is_refused(text: str) -> None:
    with pytest.raises(TopologyError, match=r"^node.xml: not XML: "):
        parse(text)
