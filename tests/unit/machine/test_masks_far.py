"""Masks of nodes where some cores are near no GPU."""

from __future__ import annotations

from lumisite.machine.masks import MaskRequest, cpu_masks, shared_cores
from lumisite.machine.topology import Core, Gpu, Topology
from tests.unit.machine.test_masks import lists


def domains(*sizes: int, l3: bool = False, per_package: int = 99) -> tuple[Core, ...]:
    """Give cores numbered through NUMA domains of these sizes, so many domains to a package."""
    numas = [numa for numa, size in enumerate(sizes) for _ in range(size)]
    return tuple(Core(n, (n,), numa if l3 else None, numa, numa // per_package) for n, numa in enumerate(numas))


def on(*numas: int) -> tuple[Gpu, ...]:
    return tuple(Gpu(index, "", numa, None) for index, numa in enumerate(numas))


def test_cores_near_no_gpu_go_to_the_tasks_of_their_package() -> None:
    """Eight domains in two packages, four of them with two GPUs each, as `nvidia-smi topo -m` shows of A100 nodes.

    The domains without a GPU (0, 2, 4 and 6) are dealt out inside of each package, as `hwloc-distrib` would.
    """
    dgx = Topology("a100", domains(*[16] * 8, per_package=4), on(7, 7, 5, 5, 3, 3, 1, 1))
    answers = cpu_masks(dgx, MaskRequest(8))
    assert lists(answers)[4:] == ["0-7,48-55", "8-15,56-63", "16-23,32-39", "24-31,40-47"]
    assert sorted(pu for answer in answers for pu in answer.pu_os) == list(range(128))
    packages = [{pu // 64 for pu in answer.pu_os} for answer in answers]
    assert packages == [{1}] * 4 + [{0}] * 4


def test_cores_on_the_l3_of_a_gpu_are_nearer_than_those_of_its_package() -> None:
    """One package with two L3s over two domains each: GPUs 0 and 1 are on the third domain, 2 and 3 on the first."""
    domain_of = [core // 8 for core in range(32)]
    cores = tuple(Core(core, (core,), domain // 2, domain, 0) for core, domain in enumerate(domain_of))
    answers = cpu_masks(Topology("node", cores, on(2, 2, 0, 0)), MaskRequest(4))
    assert lists(answers) == ["16-19,24-27", "20-23,28-31", "0-3,8-11", "4-7,12-15"]
    assert [one.message for one in answers[0].findings] == [
        "4 of the 8 cores of NUMA domain 2",
        "4 cores of NUMA domain 3 near no GPU",
    ]


def test_cores_near_no_gpu_are_shared_where_each_gpu_has_its_own() -> None:
    shared = shared_cores(Topology("node", domains(2, 2, 2), on(0, 1)), 1)
    assert shared == {0: (((0, 1), (0,)), ((4, 5), (0, 1))), 1: (((2, 3), (1,)), ((4, 5), (0, 1)))}
    assert shared_cores(Topology("node", domains(2, 2), on(0, 1)), 1) == {}
