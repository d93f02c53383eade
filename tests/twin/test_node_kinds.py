"""A node with another number of GPUs than its partition's kind, under real Slurm."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from lumisite.site.load import EMBEDDED
from tests.twin.cluster import EXCHANGE, Cluster, ClusterPlan, running
from tests.twin.fixtures import require_twin
from tests.twin.helper_site import PROLOG, deploy_site
from tests.twin.login_node import LUMISITE, install_lumisite
from tests.twin.process import Result

pytestmark = [pytest.mark.root, pytest.mark.slurm]

#: The GPUs of the kind are next to each other's CPUs.
KIND = """
  crossed:
    memory_mib: 2048
    l3: [{cores: '0', numa: 0}, {cores: '1', numa: 0}]
    gpus: [{l3: 1, numa: 0}, {l3: 0, numa: 0}]
    source: here"""
CHANGES = {
    "\nnode_kinds:": f"\nnode_kinds:{KIND}",
    "    since: 2026-01-21\n": "    since: 2026-01-21\n    gpu_bus_ids: {crossed: ['41', '46']}\n",
    "small-g: {node_kind: twin,": "small-g: {node_kind: crossed,",
}
#: What each node's driver has, in the order of the nodes.
SEEN: tuple[tuple[str, ...], ...] = (("41", "46"), ("41",))

SHOW = (
    "sh -c 'while read -r name value; do [ $name != Cpus_allowed: ] || mask=$value; done </proc/self/status"
    "; echo task $SLURMD_NODENAME $SLURM_LOCALID ${mask##*0}'"
)
STEP = (
    f"LUMISITE_VERBOSE=1 SLURM_TASK_PROLOG={PROLOG} srun -p small-g -N2 --ntasks-per-node=2 "
    f"--gpus-per-node=2 --cpu-bind=none {SHOW}"
)
WHY = "this node is not a crossed node as others of partition small-g (lumisite check --host shows what differs)"


def have_gpus(cluster: Cluster, node: str, buses: tuple[str, ...]) -> None:
    """Let a driver have GPUs of a node, as far as the kernel's files tell."""
    devices = " ".join(f"amdgpu/0000:{bus}:00.0" for bus in buses)
    make = f"mkdir -p /run/drivers && cd /run/drivers && mkdir -p amdgpu {devices} && : >amdgpu/bind"
    cluster.run(f"{make} && mount --bind /run/drivers /sys/bus/pci/drivers", node=node, user="root").check()


@pytest.fixture(scope="module")
def mixed() -> Iterator[Cluster]:
    require_twin()
    with running(ClusterPlan(nodes=2, images=(), cpus=2)) as cluster:
        deploy_site(cluster, CHANGES)
        for node, buses in zip(cluster.nodes, SEEN, strict=True):
            have_gpus(cluster, node, buses)
        yield cluster


@pytest.fixture(scope="module")
def step(mixed: Cluster) -> Result:
    return mixed.run(STEP).check()


def tasks(step: Result, node: str) -> list[str]:
    """The mask of each task of a node, by its number there."""
    return [row[1] for row in sorted(re.findall(rf"^task {node} (\d) (\S+)$", step.stdout, re.MULTILINE))]


def every_cpu(cluster: Cluster, node: str) -> str:
    return cluster.run("grep Cpus_allowed: /proc/self/status", node=node).check().stdout.split()[1].lstrip("0,")


def test_each_task_has_the_mask_of_its_nodes_kind(mixed: Cluster, step: Result) -> None:
    assert tasks(step, mixed.nodes[0]) == ["2", "1"]


def test_on_a_node_with_fewer_gpus_tasks_run_as_slurm_binds_them_and_say_why(mixed: Cluster, step: Result) -> None:
    other = mixed.nodes[1]
    assert tasks(step, other) == [every_cpu(mixed, other)] * 2
    assert step.stdout.count(f"lumisite: {other} rank 2: no CPU binding: {WHY}\n") == 1


def test_without_being_asked_it_says_nothing(mixed: Cluster) -> None:
    done = mixed.run(STEP.replace("LUMISITE_VERBOSE=1 ", "")).check()
    assert "lumisite" not in done.stdout
    assert len(done.stdout.splitlines()) == 4


def test_check_host_names_the_node_with_fewer_gpus(mixed: Cluster) -> None:
    install_lumisite(mixed)
    text = (EMBEDDED / "twin.yaml").read_text()
    for old, new in CHANGES.items():
        text = text.replace(old, new, 1)
    (mixed.exchange / "twin.yaml").write_text(text)
    check = f"env {LUMISITE} check {EXCHANGE}/twin.yaml --host --json"
    found = [mixed.run(f"srun -p small-g -w {node} -n1 {check}").stdout for node in mixed.nodes]
    assert ["host-gpus" in one for one in found] == [False, True]
    assert "1 of 2 GPUs of kind crossed can be used" in found[1]
