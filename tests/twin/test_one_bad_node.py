"""A fault of one node of four is told as that node, by its cause and first, and no innocent node is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from lumisite.validate.lines import Gate
from lumisite.validate.run.folder import SAMPLES, lines_of
from tests.twin import faults
from tests.twin.cluster import SITE_TREE, Cluster, ClusterPlan, running
from tests.twin.fixtures import require_twin
from tests.twin.helper_site import deploy_site
from tests.twin.login_node import LUMISITE, install_lumisite
from tests.twin.test_planted_faults import set_by_user

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.lmod]

BAD = "nid000003"
PROLOG = f"{SITE_TREE}/releases/*/spank/task_prolog"
IMAGE = "/appl/images/torch.sif"
LIBRARY = "/opt/cray/libfabric/1.22.0/lib64/libfabric.so.1"


def on_the_node(command: str, undo: str) -> Callable[[Cluster], AbstractContextManager[None]]:
    return lambda cluster: faults.as_root(cluster, BAD, command, undo)


def gone(path: str) -> Callable[[Cluster], AbstractContextManager[None]]:
    return lambda cluster: faults.path_gone(cluster, BAD, path)


def replaced(path: str, edit: str) -> Callable[[Cluster], AbstractContextManager[None]]:
    """Have what a command makes of it (from stdin) in the place of a file, with the file's own mode."""
    real = f"path=$(readlink -f {path}); "
    make = f"{edit} <$path >/run/cover; chmod --reference=$path /run/cover; mount --bind /run/cover $path"
    return on_the_node(real + make, f"{real}umount $path; rm /run/cover")


def covered(path: str, mode: str) -> Callable[[Cluster], AbstractContextManager[None]]:
    """Have an empty file of this mode in the place of a file that all nodes share."""
    cover = f"for file in {path}; do touch /run/cover; chmod {mode} /run/cover; mount --bind /run/cover $file; done"
    return on_the_node(cover, f"for file in {path}; do umount $file; done; rm /run/cover")


#: A fault, and what must be said of the node; `;` and other faults may follow.
ON_ONE_NODE: dict[str, tuple[Callable[[Cluster], AbstractContextManager[None]], str]] = {
    "down": (on_the_node("ip link set hsn0 down", "ip link set hsn0 up"), "hsn0 is down"),
    "two-down": (
        on_the_node("ip link set hsn0 down; ip link set hsn2 down", "ip link set hsn0 up; ip link set hsn2 up"),
        "hsn0 is down; hsn2 is down",
    ),
    "gone": (
        on_the_node("ip link set hsn0 down; ip link set hsn0 name away", "ip link set away name hsn0 up"),
        "hsn0 is not there",
    ),
    "without-address": (
        on_the_node(
            "ip -4 -o address show dev hsn1 | sed 's/.*inet //; s/ .*//' >/run/address; ip -4 address flush dev hsn1",
            "ip address add $(cat /run/address) dev hsn1",
        ),
        "hsn1 has no address",
    ),
    "mtu": (on_the_node("ip link set hsn1 mtu 1300", "ip link set hsn1 mtu 1500"), "hsn1 has MTU 1300, not 1500"),
    "mount-gone": (gone("/flash"), "/flash is not there"),
    "hung": (lambda cluster: faults.mount_hung(cluster, BAD, "/flash"), "/flash does not answer"),
    "not-mounted": (
        on_the_node("mkdir -p /run/h; mount --move /flash /run/h", "mount --move /run/h /flash"),
        "/flash is not mounted: it is a folder on / (overlay)",
    ),
    "other-file-system": (
        on_the_node("mount --bind /project /flash", "umount /flash"),
        "/flash is another file system: ",
    ),
    "shut": (
        on_the_node("mkdir -m 700 /run/s; mount --bind /run/s /flash", "umount /flash; rmdir /run/s"),
        "/flash may not be entered by users",
    ),
    "dangling": (lambda cluster: faults.dangling_link(cluster, BAD, "/project"), "/project is a link to /project.does-"),
    "run-away": (gone("/scratch"), "/scratch is not there; it cannot write /scratch/run-away/jobs/"),
    "software-away": (gone("/appl"), "/appl is not there"),
    "library-gone": (gone(LIBRARY), "libfabric.so.1 in /opt/cray/libfabric/1.22.0/lib64 is not there"),
    "library-empty": (covered("/usr/lib64/libcxi.so.1", "644"), "/usr/lib64/libcxi.so.1 is empty"),
    "prolog-unreadable": (covered(PROLOG, "600"), f"{SITE_TREE}/current/spank/task_prolog may not be run by users"),
    "throttled": (
        lambda cluster: faults.cpu_limited(cluster, BAD, 50),
        "the CPU time that cgroups allow is 50 % of one CPU, not unlimited",
    ),
    "clock-ahead": (lambda cluster: faults.clock_ahead(cluster, BAD), "the clock is 1"),
    "read-only": (
        on_the_node("mount -o remount,bind,ro /flash", "mount -o remount,bind,rw /flash"),
        "/flash is mounted read-only",
    ),
    "image-cut": (replaced(IMAGE, "head -c 5M"), f"{IMAGE} is another file than on the other nodes"),
    "runtime-empty": (replaced("/usr/bin/singularity", "head -c 0"), "/usr/bin/singularity is empty"),
    "prolog-other": (
        replaced(f"{SITE_TREE}/current/spank/task_prolog", "sed s/hsn0/eth0/g"),
        f"{SITE_TREE}/current/spank/task_prolog is another file than on the other nodes",
    ),
    "gpu-gone": (
        on_the_node("mv /dev/dri/renderD131 /run", "mv /run/renderD131 /dev/dri"),
        "renderD131 in /dev/dri is not there",
    ),
    "tmp-shut": (on_the_node("chmod 755 /tmp", "chmod 1777 /tmp"), "/tmp cannot be written: Permission denied"),
    "tmp-read-only": (lambda cluster: faults.tmp_read_only(cluster, BAD), "/tmp cannot be written: Read-only file system"),
    "tmp-full": (lambda cluster: faults.tmp_full(cluster, BAD), "/tmp cannot be written: No space left on device"),
}  # fmt: skip


#: What else may fail behind the fault, and must follow: ranks that do not meet, what modules and the container lack.
BEHIND = {
    "down": "--probe collectives",
    **dict.fromkeys(("mount-gone", "hung", "not-mounted", "dangling", "library-gone", "tmp-full"), "--probe binds"),
    **dict.fromkeys(
        ("run-away", "software-away", "prolog-unreadable", "prolog-other", "tmp-shut", "tmp-read-only"),
        "--probe modules",
    ),
}
#: What the user has to set for `binds`, so that containers import in no time what is not looked at here.
FRAMEWORK = "export SINGULARITYENV_PYTHONPATH=/scratch/framework"


@pytest.fixture(scope="module")
def four() -> Iterator[Cluster]:
    """Four nodes, of which one will be bad."""
    require_twin()
    with running(ClusterPlan(nodes=4, images=("torch",))) as cluster:
        deploy_site(cluster)
        install_lumisite(cluster)
        (cluster.shared / "scratch/framework").mkdir()
        (cluster.shared / "scratch/framework/torch.py").write_text("__version__ = '0'\n")
        yield cluster


@pytest.mark.parametrize("name", ON_ONE_NODE)
def test_a_fault_of_one_node_is_told_of_that_node(four: Cluster, name: str) -> None:
    fault, cause = ON_ONE_NODE[name]
    behind = BEHIND.get(name, "")
    with fault(four), set_by_user(four, *([FRAMEWORK] if "binds" in behind else [])):
        words = f"--nodes 4 --jobs 1 --limit 25 --probe node {behind}"
        done = four.run(f"{LUMISITE} validate --site twin --out /scratch/{name} {words}")
    assert done.code == 5, done.stdout + done.stderr
    gates = [line for line in lines_of(four.shared / f"scratch/{name}" / SAMPLES) if isinstance(line, Gate)]
    told = [gate for gate in gates if gate.gate == "node"]
    (bad,) = [gate for gate in told if gate.verdict == "fail"]
    assert bad.nodes == (BAD,)
    assert bad.cause.startswith(f"{BAD}: {cause}"), done.stdout + done.stderr
    assert f"drain {BAD}" in bad.advice
    assert [gate.nodes for gate in told if gate.verdict == "pass"] == [tuple(n for n in four.nodes if n != BAD)]
    # What else fails has the bad node among its own, so that it follows; and no other node is named for it alone.
    assert all(BAD in gate.nodes for gate in gates if gate.verdict != "pass"), done.stdout
    assert gates[0].gate == "node"
