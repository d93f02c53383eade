"""From nothing to a job on two nodes: `init`, `render`, `deploy`, `module load`, `srun` of a container.

Of what `init` wrote nothing is edited but the title and whom to ask. What the ranks send is counted on the interfaces.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from lumisite.init.answer import collector, parse_answer
from lumisite.machine.tree import names_of, resolve
from tests.twin.cache import cached
from tests.twin.cluster import EXCHANGE, SITE_TREE, Cluster, ClusterPlan, running
from tests.twin.environment_modules import EnvironmentModules
from tests.twin.fence import SCRIPTS
from tests.twin.fixtures import require_twin
from tests.twin.helper_site import GENERATIONS
from tests.twin.login_node import LUMISITE, install_lumisite
from tests.twin.process import run_tool
from tests.twin.roots import DEFAULT_GENERATION, node_root
from tests.twin.test_ddp import GRADIENTS_MB
from tests.twin.training import SRUN, read_training

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer]

ANSWERS = (
    "sed -i -e 's/^title: .*/title: Skerry/' "
    "-e 's/^support: .*/support: {name: Skerry operations, contact: ops@skerry.example}/' twin.yaml"
)
SEEN = 'ls -d /scratch /project /projappl /flash /appl; echo "$GLOO_SOCKET_IFNAME $NCCL_SOCKET_IFNAME"'
IMAGES = "/appl/images"
APPTAINER = "/opt/apptainer"


@pytest.fixture(scope="module")
def machine() -> Iterator[Cluster]:
    """A machine that nobody has described, with Lmod and four fast interfaces."""
    require_twin()
    with running(ClusterPlan(platform=None)) as cluster:
        install_lumisite(cluster)
        yield cluster


@pytest.fixture(scope="module")
def other() -> Iterator[Cluster]:
    """Another one, with Environment Modules, Apptainer of its own under /opt, one fast interface and no GPUs."""
    require_twin()
    modules = "module use " + SITE_TREE + "/current/modules-tcl"
    profile = f". /usr/share/modules/init/sh\n{modules}\nPATH=$PATH:{APPTAINER}/bin\n"
    plan = ClusterPlan(
        platform=None,
        gpus=0,
        over=(_moved_apptainer(), Path(EnvironmentModules("5.5").layers.partition(":")[0])),
        etc=(("profile.d/lmod.sh", profile),),
    )
    with running(plan) as cluster:
        install_lumisite(cluster)
        for node in ("uan01", *cluster.nodes):
            for name in ("hsn1", "hsn2", "hsn3"):
                cluster.run(["ip", "link", "delete", name], node=node, user="root").check()
        yield cluster


def _moved_apptainer() -> Path:
    """Give a layer that has Apptainer in a folder of its own, which its programs find by where they are, and no other."""

    def build(partial: Path) -> None:
        ours = partial / "root" / APPTAINER.removeprefix("/")
        (ours / "bin").mkdir(parents=True)
        shutil.copy2(node_root() / "usr/bin/apptainer", ours / "bin/apptainer")
        for name, real in (("etc", "/etc"), ("lib", "/usr/lib"), ("libexec", "/usr/libexec"), ("var", "/var")):
            (ours / name).symlink_to(real)
        for name in ("apptainer", "singularity"):
            place = partial / "root/usr/bin" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            os.mknod(place, stat.S_IFCHR, os.makedev(0, 0))  # how overlayfs says that a file is gone

    return cached("apptainer-moved", {"version": 3}, build) / "root"


def describe_and_deploy(cluster: Cluster, questions: int) -> str:
    """Do what an admin does, and give the description."""
    said = cluster.run(f"cd /scratch && {LUMISITE} init").check().stderr
    assert f"{questions} questions to answer" in said
    cluster.run(f"cd /scratch && {ANSWERS} && {LUMISITE} check twin.yaml").check()
    render = f"{LUMISITE} render --site twin.yaml --out out && {LUMISITE} deploy out {SITE_TREE} --apply"
    cluster.run(f"cd /scratch && {render}", user="root").check()
    return cluster.run("cat /scratch/twin.yaml").check().stdout


def see_and_train(cluster: Cluster, load: str, interfaces: str) -> None:
    """Start a container on both nodes: it sees the shared file systems, and gloo takes the fast interface."""
    shutil.copy(SCRIPTS / "ddp.py", cluster.exchange)
    seen = cluster.run(f"{load} && {SRUN} apptainer -q exec {IMAGES}/small.sif sh -c '{SEEN}'").check().stdout
    expected = ["/appl", "/flash", "/projappl", "/project", "/scratch", f"hsn0 {interfaces}"]
    assert sorted(seen.splitlines()) == sorted(expected * 2)
    # Debian's PyTorch is built without libuv.
    run = f"USE_LIBUV=0 {SRUN} apptainer -q exec --bind {EXCHANGE} {IMAGES}/torch.sif python3 {EXCHANGE}/ddp.py 10"
    sent = read_training(cluster.run(f"{load} && {run}").check().stdout).sent_mb
    assert sent["hsn0"] > GRADIENTS_MB > sent["eth0"] * 10


def test_from_nothing_to_a_job(machine: Cluster) -> None:
    text = describe_and_deploy(machine, questions=3)
    assert "# QUESTION: nid000001: Slurm has " in text  # GPUs, which /sys there does not show
    assert "[gpus-differ]" in text
    assert "  interfaces: [hsn0, hsn1, hsn2, hsn3]\n" in text
    assert "  management: [eth0]\n" in text
    load = f"module use {SITE_TREE}/current/modules; module load apptainer-AI-bindings"
    see_and_train(machine, load, "hsn0,hsn1,hsn2,hsn3")


def test_the_same_with_environment_modules_and_one_interface(other: Cluster) -> None:
    text = describe_and_deploy(other, questions=2)
    assert f"    executable: {APPTAINER}/bin/apptainer\n" in text
    assert "  interfaces: [hsn0]\n" in text
    assert "  management: [eth0]\n" in text
    assert "stacks: {}\n" in text
    see_and_train(other, "module load apptainer-AI-bindings", "hsn0")


@pytest.mark.parametrize("generation", [one for one in GENERATIONS if one != DEFAULT_GENERATION])
def test_each_slurm_is_read(generation: str) -> None:
    require_twin()
    with running(ClusterPlan(generation=generation, images=())) as cluster:
        install_lumisite(cluster)
        cluster.run(f"cd /scratch && {LUMISITE} init && {LUMISITE} check twin.yaml").check()
        text = cluster.run("cat /scratch/twin.yaml").stdout
    assert "  standard-g: {node_kind: gpu, whole_nodes: yes, " in text
    assert "  small-g: {node_kind: gpu, whole_nodes: no, " in text


def test_a_node_that_answers_nothing_is_told_and_described_from_slurm(machine: Cluster) -> None:
    text = "scontrol update nodename=nid000001,nid000002 state=drain reason=test"
    machine.run(text, user="root").check()
    try:
        done = machine.run(f"cd /scratch && {LUMISITE} init --out drained.yaml").check()
        assert "[node-kind-silent]" in done.stderr
        machine.run(f"cd /scratch && {LUMISITE} check drained.yaml").check()
    finally:
        machine.run("scontrol update nodename=nid000001,nid000002 state=resume", user="root").check()


def test_a_file_that_is_there_stays(machine: Cluster) -> None:
    done = machine.run(f"cd /scratch && echo mine >mine.yaml && {LUMISITE} init --out mine.yaml; cat mine.yaml")
    assert "[description-exists]" in done.stderr
    assert done.stdout == "mine\n"


def test_a_node_tells_what_its_interfaces_lie_on() -> None:
    """On a bridge, as the kernel has it: a bond needs a module, and is linked by the same lines of the kernel."""
    made = "mount -t sysfs sysfs /sys; ip link add br0 type bridge; ip link add v0 type veth; ip link set v0 master br0"
    done = run_tool(["unshare", "--net", "--mount", "sh", "-c", f'{made}; exec sh -c "$1"', "sh", collector()])
    told = parse_answer(done.check().stdout, "node")
    assert "lower_v0" in names_of(told, "/sys/class/net/br0")
    assert resolve(told, "/sys/class/net/br0/lower_v0") == resolve(told, "/sys/class/net/v0")
