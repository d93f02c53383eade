"""Masks of nodes as they are built elsewhere, against what `hwloc-distrib` does, written down here, and against itself.

`hwloc-distrib N` cuts the cores that it is given into N runs of neighbours, all as long. So of a node, in two steps:

1. The cores of a NUMA domain with GPUs are cut into as many runs as it has GPUs, in the order of the GPUs.
2. A task has what its GPU has.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import pytest

from lumisite.machine.masks import MaskError, MaskRequest, TaskMask, cpu_masks, mask_tables
from lumisite.machine.topology import Core, Topology, recognise, topology_of
from lumisite.site.load import EMBEDDED
from lumisite.site.nodes import NodeKind
from tests.support.sites import load_text
from tests.support.tools import tool

UNIVERSITY = (EMBEDDED / "university.yaml").read_text()


@dataclass(frozen=True)
class Domain:
    """A NUMA domain of a machine, by the numbers that its documents print."""

    cores: range
    package: int
    l3: int
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True)
class Machine:
    """What documents say of a node; `described` is it in a site description, `synthetic` is it for hwloc."""

    described: str
    domains: tuple[Domain, ...]
    synthetic: str


def superchips(number: int, cores: int) -> tuple[Domain, ...]:
    """Processor and GPU in one: each domain is a package with one GPU."""
    return tuple(Domain(range(cores * at, cores * (at + 1)), at, at, (at,)) for at in range(number))


def described_superchips(number: int, cores: int) -> str:
    caches = [f"{{cores: {cores * at}-{cores * (at + 1) - 1}, numa: {at}, package: {at}}}" for at in range(number)]
    gpus = [f"{{l3: {at}, numa: {at}}}" for at in range(number)]
    return f"\n    l3: [{', '.join(caches)}]\n    gpus: [{', '.join(gpus)}]\n"


#: CINECA, "Booster Section": one Xeon 8358 with an L3 for all, two domains; four GPUs and adapters on the first.
ONE_CACHE = """
    l3: [{cores: 0-15, numa: 0, package: 0, cache: 0}, {cores: 16-31, numa: 1, package: 0, cache: 0}]
    gpus: [{numa: 0}, {numa: 0}, {numa: 0}, {numa: 0}]
"""
MACHINES = {
    # CSCS: four GH200 superchips with 72 cores each.
    "gh200": Machine(described_superchips(4, 72), superchips(4, 72), "pack:4 numa:1 core:72 pu:1"),
    # Job scripts for Viper-GPU: two MI300A with 24 cores each.
    "mi300a": Machine(described_superchips(2, 24), superchips(2, 24), "pack:2 numa:1 core:24 pu:1"),
    # `nvidia-smi topo -m` of a DGX H100: GPUs 0 to 3 on cores 0-51, the others on 52-103; an adapter for each GPU.
    "dgx-h100": Machine(
        """
    l3: [{cores: 0-51, numa: 0, package: 0}, {cores: 52-103, numa: 1, package: 1}]
    gpus: [{numa: 0}, {numa: 0}, {numa: 0}, {numa: 0}, {numa: 1}, {numa: 1}, {numa: 1}, {numa: 1}]
""",
        (Domain(range(52), 0, 0, (0, 1, 2, 3)), Domain(range(52, 104), 1, 1, (4, 5, 6, 7))),
        "pack:2 numa:1 core:52 pu:1",
    ),
}


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest) -> Machine:
    return MACHINES[request.param]


def expected(machine: Machine) -> dict[int, set[int]]:
    """The cores of each GPU, by the two steps."""
    found: dict[int, set[int]] = {}
    for domain in machine.domains:
        gpus = domain.gpus
        each = len(domain.cores) // len(gpus)
        for at, gpu in enumerate(gpus):
            found.setdefault(gpu, set()).update(domain.cores[at * each : (at + 1) * each])
    return found


def node(machine: Machine) -> Topology:
    return topology_of("node", node_kind(machine.described))


@cache
def node_kind(described: str) -> NodeKind:
    kind = f"node_kinds:\n  node:\n    memory_mib: 500000{described}    source: INVENTED\n"
    return load_text(UNIVERSITY.replace("node_kinds:\n", kind)).site.node_kinds["node"]


def cores_of(answers: Sequence[TaskMask]) -> dict[int, set[int]]:
    return {answer.gpus[0]: set(answer.pu_os) for answer in answers}


def test_one_task_for_each_gpu_has_the_cores_near_it(machine: Machine) -> None:
    right = expected(machine)
    answers = cpu_masks(node(machine), MaskRequest(len(right)))
    assert cores_of(answers) == right
    assert [answer.mask for answer in answers] == [f"{sum(1 << cpu for cpu in right[gpu]):#x}" for gpu in sorted(right)]
    assert cores_of(mask_tables(node(machine))[len(right), 1]) == right
    # Every core that is granted is in use.
    assert set().union(*right.values()) == {cpu for domain in machine.domains for cpu in domain.cores}


def test_half_the_tasks_have_two_gpus_and_the_cores_of_both(machine: Machine) -> None:
    right = expected(machine)
    for answer in cpu_masks(node(machine), MaskRequest(len(right) // 2)):
        assert set(answer.pu_os) == right[answer.gpus[0]] | right[answer.gpus[1]]


def bitmap(cores: range) -> str:
    """Cores as hwloc writes them: words of 32 bits, the highest first."""
    mask = sum(1 << cpu for cpu in cores)
    return ",".join(f"0x{mask >> 32 * word & 0xFFFFFFFF:08x}" for word in reversed(range(cores.stop // 32 + 1)))


def test_hwloc_distrib_cuts_each_domain_alike(machine: Machine) -> None:
    program = tool("hwloc-distrib")
    found: dict[int, set[int]] = {}
    for domain in machine.domains:
        gpus = domain.gpus
        words = ["--taskset", "--restrict", bitmap(domain.cores), str(len(gpus))]
        done = subprocess.run(
            [program, "-i", machine.synthetic, *words], check=True, capture_output=True, text=True, timeout=60
        )
        for gpu, line in zip(gpus, done.stdout.split(), strict=True):
            mask = int(line, 16)
            found.setdefault(gpu, set()).update(cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1)
    assert found == expected(machine)


def test_a_node_with_cores_near_no_gpu_has_no_masks() -> None:
    """They would idle: half of the node here."""
    topology = topology_of("node", node_kind(ONE_CACHE))
    with pytest.raises(MaskError, match="16 cores that tasks may use are near no GPU"):
        cpu_masks(topology, MaskRequest(4))
    assert list(mask_tables(topology)) == [(1, 1)]
    part = MaskRequest(2, cpus=frozenset(range(8)), gpus=(0, 1))
    assert [answer.cpus for answer in cpu_masks(topology, part)] == ["0-3", "4-7"]


def test_a_node_of_one_cache_and_two_domains_is_recognised() -> None:
    """As hwloc shows it: one L3 with all cores, and the GPUs on the first domain."""
    described = topology_of("node", node_kind(ONE_CACHE), ("1a", "5a", "8a", "da"))
    cores = tuple(Core(core, (core,), 0, core // 16) for core in range(32))
    seen = Topology("node", cores, tuple(replace(gpu, l3=None) for gpu in described.gpus))
    assert recognise(seen, [described]) is not None
    assert recognise(replace(seen, cores=tuple(replace(core, l3=core.numa) for core in cores)), [described]) is None
