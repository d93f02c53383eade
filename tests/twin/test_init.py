"""From nothing to a job on two nodes: `init`, `render`, `deploy`, `module load`, `srun` of a container.

What no file of a node tells is added. Of what `init` guessed one thing is corrected: all interfaces of the twin have one
speed, so that no file tells which of them is for management. What the ranks send is counted on the interfaces.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.twin.cluster import EXCHANGE, SITE_TREE, Cluster, ClusterPlan, running
from tests.twin.fence import SCRIPTS
from tests.twin.fixtures import require_twin
from tests.twin.login_node import LUMISITE, install_lumisite
from tests.twin.training import SRUN, read_training

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer]

#: What ten steps of training send (scripts/ddp.py).
GRADIENTS_MB = 80
#: What an admin adds: keys that `init` could not read, at the end of the file; FILL is what changes inside of it.
ADDED = """
name: skerry
title: Skerry
root: /appl/lumisite
support: {name: Skerry operations, contact: ops@skerry.example}
runtimes:
  apptainer: {executable: /usr/bin/apptainer, variant: Apptainer, prefix: APPTAINER, source: apptainer --version}
file_systems:
  - {path: /scratch, kind: shared, where: container-files, why: data of projects, source: findmnt}
  - {path: /project, kind: shared, where: container-files, why: data of projects, source: findmnt}
  - {path: /appl, kind: shared, where: container-files, why: software, source: findmnt}
partitions:
  standard-g: {node_kind: cpu, whole_nodes: yes, source: scontrol}
  small-g: {node_kind: cpu, whole_nodes: no, source: scontrol}
"""
FILL = "sed -i -E 's/# (since|os|memory_mib): /\\1: /; s/\\[eth0, (hsn.*)\\]/[\\1]/; s/management: .*/management: [eth0]/; s/value: (.?)eth0,hsn/value: \\1hsn/; s/value: eth0$/value: hsn0/' skerry.yaml"
SEEN = 'ls -d /scratch /project /appl; echo "$GLOO_SOCKET_IFNAME $NCCL_SOCKET_IFNAME"'
IMAGES = "/appl/images"


@pytest.fixture(scope="module")
def machine() -> Iterator[Cluster]:
    """A machine that nobody has described, with Lmod and four fast interfaces."""
    require_twin()
    with running(ClusterPlan(platform=None)) as cluster:
        install_lumisite(cluster)
        yield cluster


def test_from_nothing_to_a_job(machine: Cluster) -> None:
    (machine.exchange / "added.yaml").write_text(ADDED)
    facts = f"srun -p standard-g -w nid000001 -N 1 -n 1 sh -c '{LUMISITE} facts -o /scratch/node.json'"
    machine.run(f"{facts} && cd /scratch && {LUMISITE} init node.json -o skerry.yaml").check()
    unfinished = machine.run(f"cd /scratch && {LUMISITE} check skerry.yaml")
    assert unfinished.code == 2
    assert "node_kinds.cpu.memory_mib: is missing" in unfinished.stdout
    fill = f"cat {EXCHANGE}/added.yaml >>skerry.yaml && {FILL}"
    checked = machine.run(f"cd /scratch && {fill} && {LUMISITE} check skerry.yaml")
    assert checked.code == 0, checked.stdout
    render = f"{LUMISITE} render --site skerry.yaml --out out && {LUMISITE} deploy out {SITE_TREE} --apply"
    machine.run(f"cd /scratch && {render}", user="root").check()
    text = machine.run("cat /scratch/skerry.yaml").check().stdout
    assert "  interfaces: [hsn0, hsn1, hsn2, hsn3]\n" in text
    assert "  management: [eth0]\n" in text
    see_and_train(machine, f"module use {SITE_TREE}/current/modules; module load container-AI-bindings")


def see_and_train(cluster: Cluster, load: str) -> None:
    """Start a container on both nodes: it sees the shared file systems, and gloo takes the fast interface."""
    shutil.copy(SCRIPTS / "ddp.py", cluster.exchange)
    seen = cluster.run(f"{load} && {SRUN} apptainer -q exec {IMAGES}/small.sif sh -c '{SEEN}'").check().stdout
    expected = ["/appl", "/project", "/scratch", "hsn0 hsn0,hsn1,hsn2,hsn3"]
    assert sorted(seen.splitlines()) == sorted(expected * 2)
    # Debian's PyTorch is built without libuv.
    run = f"USE_LIBUV=0 {SRUN} apptainer -q exec --bind {EXCHANGE} {IMAGES}/torch.sif python3 {EXCHANGE}/ddp.py 10"
    sent = read_training(cluster.run(f"{load} && {run}").check().stdout).sent_mb
    assert sent["hsn0"] > GRADIENTS_MB > sent["eth0"] * 10


def test_this_node_is_described_without_facts_and_a_file_that_is_there_stays(machine: Cluster) -> None:
    text = machine.run(f"{LUMISITE} init").check().stdout
    assert "from the facts of uan01, " in text
    done = machine.run(f"cd /scratch && echo mine >mine.yaml && {LUMISITE} init -o mine.yaml; cat mine.yaml")
    assert "[file-exists]" in done.stderr
    assert done.stdout == "mine\n"
