from __future__ import annotations

from dataclasses import replace

import pytest

from lumisite.machine.topology import (
    Core,
    Topology,
    place_of,
    recognise,
    topology_of,
)
from lumisite.site.load import load_site
from lumisite.site.nodes import CacheGroup, DescribedGpu, NodeKind
from lumisite.site.scalars import Line, read_cpu_list
from tests.support.lumi_g import BUS_IDS, LUMI_G

LUMI_KINDS = load_site("lumi").site.node_kinds


def kind(reserved: str | None = None, siblings: str | None = "4-7") -> NodeKind:
    """Give a node of four cores in one L3."""
    return NodeKind(
        memory_mib=1024,
        reserved=read_cpu_list(reserved) if reserved else None,
        l3=(CacheGroup(cores=read_cpu_list("0-3"), siblings=read_cpu_list(siblings) if siblings else None, numa=0),),
        gpus=(DescribedGpu(l3=0, numa=0), DescribedGpu(numa=0)),
        source=Line("made up"),
    )


def test_lumi_g_has_64_cores_and_56_that_tasks_may_use() -> None:
    assert len(LUMI_G.cores) == 64
    assert LUMI_G.pu_os == frozenset(range(128))
    assert sorted(LUMI_G.reserved) == [*range(0, 64, 8), *range(64, 128, 8)]
    assert [core.pu_os for core in LUMI_G.cores] == [(cpu, cpu + 64) for cpu in range(64)]
    assert [core.l3 for core in LUMI_G.cores] == [cpu // 8 for cpu in range(64)]
    assert [core.numa for core in LUMI_G.cores] == [cpu // 16 for cpu in range(64)]


def test_lumi_gs_gpus_stand_where_the_published_table_has_them() -> None:
    assert [(gpu.l3, gpu.numa, gpu.pci_bus) for gpu in LUMI_G.gpus] == [
        (6, 3, "0000:c1:00.0"),
        (7, 3, "0000:c6:00.0"),
        (2, 1, "0000:c9:00.0"),
        (3, 1, "0000:ce:00.0"),
        (0, 0, "0000:d1:00.0"),
        (1, 0, "0000:d6:00.0"),
        (4, 2, "0000:d9:00.0"),
        (5, 2, "0000:de:00.0"),
    ]


def test_a_core_is_reserved_when_one_of_its_threads_is() -> None:
    for named in ("1", "5", "1,5"):
        assert topology_of("k", kind(reserved=named)).reserved == {1, 5}
    assert topology_of("k", kind()).reserved == frozenset()
    assert topology_of("k", kind(reserved="1", siblings=None)).reserved == {1}


def test_an_l3_over_several_numa_domains_is_no_nearer_place() -> None:
    cores = tuple(Core(cpu, (cpu,), 0, cpu // 2) for cpu in range(4))
    assert place_of(cores, [0, 1]) == (0, None)
    assert place_of(cores, range(4)) == (None, 0)


def only_numa(node: Topology) -> Topology:
    """Give a node as a file shows it that knows no reserved cores, no L3 and only the GPUs' NUMA domains."""
    return Topology(
        name="node.xml",
        cores=tuple(replace(core, core_logical=index, l3=None) for index, core in enumerate(node.cores)),
        gpus=tuple(replace(gpu, index=7 - gpu.index, l3=None) for gpu in node.gpus),
    )


def test_a_node_is_recognised_by_its_cores_and_bus_ids() -> None:
    known = recognise(only_numa(LUMI_G), [LUMI_G])
    assert known is not None
    assert (known.cores, known.gpus, known.reserved) == (LUMI_G.cores, LUMI_G.gpus, LUMI_G.reserved)
    assert known.name == "node.xml (node kind lumi-g)"


def test_a_part_of_a_node_is_recognised_and_stays_a_part() -> None:
    seen = only_numa(LUMI_G)
    part = replace(
        seen, cores=tuple(replace(core, pu_os=core.pu_os[:1]) for core in seen.cores[:16]), gpus=seen.gpus[4:6]
    )
    known = recognise(replace(part, reserved=frozenset({1})), [LUMI_G])
    assert known is not None
    assert known.pu_os == frozenset(range(16))
    assert known.reserved & known.pu_os == {0, 1, 8}
    assert [gpu.index for gpu in known.gpus] == [4, 5]


def test_the_first_kind_that_fits_is_taken() -> None:
    old = topology_of("old", LUMI_KINDS["lumi-g"], [*BUS_IDS[:3], "cc", *BUS_IDS[4:7], "dc"])
    known = recognise(only_numa(LUMI_G), [old, LUMI_G])
    assert known is not None
    assert known.gpus == LUMI_G.gpus


def contradictions() -> dict[str, Topology]:
    seen = only_numa(LUMI_G)
    gpus, cores = seen.gpus, seen.cores
    with_l3 = tuple(replace(core, l3=mine.l3) for core, mine in zip(cores, LUMI_G.cores, strict=True))
    return {
        "a bus id that the kind has not": replace(seen, gpus=(replace(gpus[0], pci_bus="0000:01:00.0"), *gpus[1:])),
        "a bus id that is not known": replace(seen, gpus=(replace(gpus[0], pci_bus=""), *gpus[1:])),
        "no GPU": replace(seen, gpus=()),
        "siblings of two cores swapped": replace(
            seen,
            cores=(replace(cores[0], pu_os=(0, 65)), replace(cores[1], pu_os=(1, 64)), *cores[2:]),
        ),
        "larger NUMA domains, and GPUs that do not tell": replace(
            seen,
            cores=tuple(replace(core, numa=core.core_logical // 32) for core in cores),
            gpus=tuple(replace(gpu, numa=None) for gpu in gpus),
        ),
        "L3 groups of another size": replace(
            seen, cores=tuple(replace(core, l3=core.core_logical // 4) for core in cores)
        ),
        "a GPU on another NUMA domain": replace(seen, gpus=(replace(gpus[0], numa=0), *gpus[1:])),
        "a GPU on another L3": replace(seen, cores=with_l3, gpus=(replace(gpus[0], l3=7), *gpus[1:])),
    }


@pytest.mark.parametrize("what", contradictions())
def test_a_contradiction_means_another_node(what: str) -> None:
    assert recognise(contradictions()[what], [LUMI_G]) is None
