"""Masks of nodes where some cores are near no GPU, and of nodes of other vendors."""

from __future__ import annotations

import pytest

from lumisite.machine.masks import Request, cpu_masks, mask_tables
from lumisite.machine.topology import Core, Gpu, Topology
from tests.unit.machine.test_masks import lists


def domains(*sizes: int, l3: bool = False, per_package: int = 99) -> tuple[Core, ...]:
    """Give cores numbered through NUMA domains of these sizes, so many domains to a package."""
    numas = [numa for numa, size in enumerate(sizes) for _ in range(size)]
    return tuple(Core(n, (n,), numa if l3 else None, numa, numa // per_package) for n, numa in enumerate(numas))


def on(*numas: int) -> tuple[Gpu, ...]:
    return tuple(Gpu(index, "", numa, None) for index, numa in enumerate(numas))


def test_cores_near_no_gpu_are_dealt_out_evenly() -> None:
    """As `hwloc-distrib` would inside each domain: four runs of the near one, and four of the other.

    Leonardo Booster: 32 cores in two domains, all four GPUs on the first (CINECA, "Booster Section").
    """
    leonardo = Topology("booster", domains(16, 16), on(0, 0, 0, 0))
    answers = cpu_masks(leonardo, Request(4))
    assert lists(answers) == ["0-3,16-19", "4-7,20-23", "8-11,24-27", "12-15,28-31"]
    assert answers[1].reason == "GPU 1: 4 of the 16 cores of NUMA domain 0, 4 cores near no GPU"
    assert lists(cpu_masks(leonardo, Request(2))) == ["0-7,16-23", "8-15,24-31"]
    far_only = cpu_masks(leonardo, Request(1, cpus=frozenset(range(16, 24)), gpus=(2,)))
    assert lists(far_only) == ["16-23"]
    assert "hold no core of NUMA domain 0" in far_only[0].reason
    assert [len(answer.pu_os) for answer in mask_tables(leonardo)[4, 1]] == [8] * 4


def test_cores_near_no_gpu_go_to_the_tasks_of_their_package() -> None:
    """Eight domains in two packages, four of them with two GPUs each, as `nvidia-smi topo -m` shows of A100 nodes.

    The domains without a GPU (0, 2, 4 and 6) are dealt out inside of each package, as `hwloc-distrib` would.
    """
    dgx = Topology("a100", domains(*[16] * 8, per_package=4), on(3, 3, 1, 1, 7, 7, 5, 5))
    answers = cpu_masks(dgx, Request(8))
    assert lists(answers)[:4] == ["0-7,48-55", "8-15,56-63", "16-23,32-39", "24-31,40-47"]
    assert sorted(pu for answer in answers for pu in answer.pu_os) == list(range(128))
    packages = [{pu // 64 for pu in answer.pu_os} for answer in answers]
    assert packages == [{0}] * 4 + [{1}] * 4


@pytest.mark.parametrize(
    ("node", "tasks", "right"),
    [
        # Alps: four GH200, each GPU with the 72 cores of its own domain (CSCS documentation).
        (Topology("gh200", domains(*[72] * 4), on(0, 1, 2, 3)), 4, ["0-71", "72-143", "144-215", "216-287"]),
        # Viper: two MI300A, 24 cores each (job scripts for Viper-GPU).
        (Topology("mi300a", domains(24, 24), on(0, 1)), 2, ["0-23", "24-47"]),
        # DGX H100: two domains of 52 cores, four GPUs on each (kubernetes.recipes, "DGX H100 nvidia-smi topo -m").
        (
            Topology("dgx", domains(52, 52, per_package=1), on(0, 0, 0, 0, 1, 1, 1, 1)),
            8,
            ["0-12", "13-25", "26-38", "39-51", "52-64", "65-77", "78-90", "91-103"],
        ),
    ],
)
def test_nodes_of_other_vendors_have_every_core_in_use(node: Topology, tasks: int, right: list[str]) -> None:
    assert lists(cpu_masks(node, Request(tasks))) == right
