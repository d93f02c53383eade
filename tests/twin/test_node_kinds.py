"""A partition with nodes of one kind, and nodes that have other GPUs, under real Slurm."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from lumisite.site.load import EMBEDDED
from tests.twin.cluster import EXCHANGE, Cluster, ClusterPlan, running
from tests.twin.fixtures import require_twin
from tests.twin.helper_site import GENERATIONS, PROLOG, deploy_site
from tests.twin.login_node import LUMISITE, install_lumisite
from tests.twin.process import Result

pytestmark = [pytest.mark.root, pytest.mark.slurm]

#: A kind with its GPUs next to its CPUs the other way round.
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
    "\nsettings:\n": """
settings:
  - {name: ROCR_VISIBLE_DEVICES, computed: one-gpu, why: on request, source: here}
  - {name: BY_KIND, value: crossed, when: {kind: [crossed]}, why: to see it, source: here}
""",
}
#: What each node's driver has, in the order of the nodes.
SEEN: tuple[tuple[str, ...], ...] = ((), ("41", "46"), ("41",))

SHOW = (
    "sh -c 'while read -r name value; do [ $name != Cpus_allowed: ] || mask=$value; done </proc/self/status"
    "; echo task $SLURMD_NODENAME $SLURM_LOCALID ${mask##*0} $ROCR_VISIBLE_DEVICES ${BY_KIND-none}'"
)
STEP = (
    f"LUMISITE_VERBOSE=1 LUMISITE_GPUS=one SLURM_TASK_PROLOG={PROLOG} srun -p small-g -N3 --ntasks-per-node=2 "
    f"--gpus-per-node=2 --cpu-bind=none {SHOW}"
)
WHY = "this node is not a crossed node as others of partition small-g (lumisite check --host shows what differs)"


def have_gpus(cluster: Cluster, node: str, buses: tuple[str, ...]) -> None:
    """Let a driver have GPUs of a node, as far as the kernel's files tell."""
    devices = " ".join(f"amdgpu/0000:{bus}:00.0" for bus in buses)
    make = f"mkdir -p /run/drivers && cd /run/drivers && mkdir -p amdgpu {devices} && : >amdgpu/bind"
    cluster.run(f"{make} && mount --bind /run/drivers /sys/bus/pci/drivers", node=node, user="root").check()


@pytest.fixture(scope="module", params=GENERATIONS)
def mixed(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    require_twin()
    with running(ClusterPlan(request.param, nodes=3, images=(), cpus=2)) as cluster:
        deploy_site(cluster, CHANGES)
        for node, buses in zip(cluster.nodes, SEEN, strict=True):
            have_gpus(cluster, node, buses)
        yield cluster


@pytest.fixture(scope="module")
def step(mixed: Cluster) -> Result:
    return mixed.run(STEP).check()


def tasks(step: Result, node: str) -> list[tuple[str, ...]]:
    """The mask, the GPU and the setting of each task of a node, by its number there."""
    rows = re.findall(rf"^task {node} (\d) (\S+) (\S+) (\S+)$", step.stdout, re.MULTILINE)
    return [tuple(row[1:]) for row in sorted(rows)]


def every_cpu(cluster: Cluster, node: str) -> str:
    return cluster.run("grep Cpus_allowed: /proc/self/status", node=node).check().stdout.split()[1].lstrip("0,")


def test_each_task_has_the_mask_of_its_nodes_kind(mixed: Cluster, step: Result) -> None:
    assert tasks(step, mixed.nodes[1]) == [("2", "0", "crossed"), ("1", "1", "crossed")]


def test_on_a_node_with_other_gpus_tasks_run_as_slurm_binds_them_and_say_why(mixed: Cluster, step: Result) -> None:
    for number in (0, 2):
        name = mixed.nodes[number]
        assert tasks(step, name) == [(every_cpu(mixed, name), "0,1", "none")] * 2
        assert step.stdout.count(f"lumisite: {name} rank {2 * number}: no CPU binding: {WHY}\n") == 1


def test_without_being_asked_it_says_nothing(mixed: Cluster) -> None:
    done = mixed.run(STEP.replace("LUMISITE_VERBOSE=1 ", "")).check()
    assert "lumisite" not in done.stdout
    assert len(done.stdout.splitlines()) == 6


def test_check_host_names_the_nodes_with_other_gpus(mixed: Cluster) -> None:
    install_lumisite(mixed)
    text = (EMBEDDED / "twin.yaml").read_text()
    for old, new in CHANGES.items():
        text = text.replace(old, new, 1)
    (mixed.exchange / "twin.yaml").write_text(text)
    check = f"env {LUMISITE} check {EXCHANGE}/twin.yaml --host --json"
    found = [mixed.run(f"srun -p small-g -w {node} -n1 {check}").stdout for node in mixed.nodes]
    assert ["host-gpus" in one for one in found] == [True, False, True]
    assert "1 of 2 GPUs of kind crossed can be used" in found[2]
