"""Faults of one node of four are told of that node, by their cause and first, and no innocent node is named."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack

import pytest

from lumisite.validate.lines import Gate
from lumisite.validate.run.folder import SAMPLES, lines_of
from lumisite.validate.verdict.gates import judge_gates
from tests.twin import faults
from tests.twin.cluster import SITE_TREE, Cluster, ClusterPlan
from tests.twin.fixtures import require_twin
from tests.twin.login_node import LUMISITE, asked_for, ready_cluster
from tests.twin.test_faults_of_a_run import FRAMEWORK, set_by_site, write_framework

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.lmod]

BAD = "nid000003"
PROLOG = f"{SITE_TREE}/releases/*/spank/task_prolog"
#: Each run looks at all of its image; what containers import is not looked at here.
IMAGE = "/appl/images/small.sif"
LIBRARY = "/opt/cray/libfabric/1.22.0/lib64/libfabric.so.1"

END_SLURMD = "p=$(cat /run/slurmd.pid); kill $p; while kill -0 $p 2>/dev/null; do sleep 0.1; done"


def on_the_node(command: str, undo: str) -> Callable[[Cluster], AbstractContextManager[None]]:
    return lambda cluster: faults.as_root(cluster, BAD, command, undo)


def gone(path: str) -> Callable[[Cluster], AbstractContextManager[None]]:
    return lambda cluster: faults.path_gone(cluster, BAD, path)


def cover(path: str) -> str:
    """Name what lies over a path, one for each."""
    return f"/run/cover-{path.rpartition('/')[2]}"


def replaced(path: str, edit: str) -> Callable[[Cluster], AbstractContextManager[None]]:
    """Have what a command makes of it (from stdin) in the place of a file, with the file's own mode."""
    real, over = f"path=$(readlink -f {path}); ", cover(path)
    make = f"{edit} <$path >{over}; chmod --reference=$path {over}; mount --bind {over} $path"
    return on_the_node(real + make, f"{real}umount $path; rm {over}")


def covered(path: str, mode: str) -> Callable[[Cluster], AbstractContextManager[None]]:
    """Have an empty file of this mode in the place of a file that all nodes share."""
    over = cover(path)
    begin = f"for file in {path}; do touch {over}; chmod {mode} {over}; mount --bind {over} $file; done"
    return on_the_node(begin, f"for file in {path}; do umount $file; done; rm {over}")


#: Two interfaces get each other's names, and the same undoes it.
SWAP = "; ".join(
    f"ip link set {words}"
    for words in ("hsn2 down", "hsn3 down", "hsn2 name away", "hsn3 name hsn2", "away name hsn3", "hsn2 up", "hsn3 up")
)
#: A fault, and the codes and subjects that must be found on the node; others may follow.
ON_ONE_NODE: dict[str, tuple[Callable[[Cluster], AbstractContextManager[None]], str]] = {
    "down": (on_the_node("ip link set hsn0 down", "ip link set hsn0 up"), "node-interface hsn0"),
    "gone": (
        on_the_node("ip link set hsn0 down; ip link set hsn0 name away", "ip link set away name hsn0 up"),
        "node-interface hsn0",
    ),
    "without-address": (
        on_the_node(
            "ip -4 -o address show dev hsn1 | sed 's/.*inet //; s/ .*//' >/run/address; ip -4 address flush dev hsn1",
            "ip address add $(cat /run/address) dev hsn1",
        ),
        "node-interface hsn1",
    ),
    "mtu": (
        on_the_node(
            "for i in 0 1 2 3; do ip link set hsn$i mtu 1300; done",
            "for i in 0 1 2 3; do ip link set hsn$i mtu 1500; done",
        ),
        "node-interface hsn0, hsn1, hsn2, hsn3",
    ),
    "names-swapped": (on_the_node(SWAP, SWAP), "node-interface hsn2, node-interface hsn3"),
    # While the step runs: what the kernel has counted before is no fault of today.
    "flaps": (
        on_the_node(
            "touch /run/flaps; (while [ -e /run/flaps ]; do ip link set hsn3 down; ip link set hsn3 up; sleep 0.25; done)"
            " </dev/null >/dev/null 2>&1 &",
            "rm /run/flaps; sleep 1",
        ),
        "node-interface hsn3",
    ),
    # Of a node with another fault, links tell nothing. Two that fail alike are one finding.
    "through-management": (
        on_the_node("ip route add 10.77.1.0/25 dev eth0", "ip route del 10.77.1.0/25 dev eth0"),
        "node-link hsn0, hsn1",
    ),
    # What it sends over an interface never begins.
    "syn-dropped": (
        on_the_node("iptables -A OUTPUT -o hsn1 -p tcp --syn -j DROP", "iptables -F OUTPUT"),
        "node-link hsn0, hsn1",
    ),
    "full-packets-lost": (
        on_the_node("iptables -A INPUT -i hsn2 -p tcp -m length --length 1300: -j DROP", "iptables -F INPUT"),
        "node-link hsn2",
    ),
    "some-packets-lost": (
        on_the_node(
            "iptables -A INPUT -i hsn3 -p tcp -m statistic --mode random --probability 0.02 -j DROP",
            "iptables -F INPUT",
        ),
        "node-link hsn3",
    ),
    "mount-gone": (gone("/projappl"), "node-path /projappl"),
    "hung": (lambda cluster: faults.mount_hung(cluster, BAD, "/flash"), "node-path /flash"),
    "not-mounted": (
        on_the_node("mkdir -p /run/h; mount --move /flash /run/h", "mount --move /run/h /flash"),
        "node-mount /flash",
    ),
    "other-file-system": (on_the_node("mount --bind /project /flash", "umount /flash"), "node-mount /flash"),
    "read-only": (
        on_the_node("mount -o remount,bind,ro /flash", "mount -o remount,bind,rw /flash"),
        "node-mount /flash",
    ),
    "shut": (
        on_the_node("mkdir -m 700 /run/s; mount --bind /run/s /projappl", "umount /projappl; rmdir /run/s"),
        "node-path /projappl",
    ),
    "dangling": (lambda cluster: faults.dangling_link(cluster, BAD, "/project"), "node-path /project"),
    "run-away": (gone("/scratch"), "node-lost"),
    "software-away": (gone("/appl"), "node-path /appl"),
    "library-gone": (gone(LIBRARY), "node-file /opt/cray/libfabric/1.22.0/lib64"),
    "library-empty": (covered("/usr/lib64/libcxi.so.1", "644"), "node-path /usr/lib64/libcxi.so.1"),
    "library-shut-in": (
        on_the_node(
            "mkdir -m 700 -p /run/s/lib64; chmod 700 /run/s; mount --bind /run/s /opt/cray/libfabric/1.22.0",
            "umount /opt/cray/libfabric/1.22.0; rm -r /run/s",
        ),
        "node-path /opt/cray/libfabric/1.22.0",
    ),
    "library-of-another-release": (
        replaced(LIBRARY, "sed 's/GLIBC_2.38/GLIBC_2.99/g'"),
        "node-file /opt/cray/libfabric/1.22.0/lib64",
    ),
    "prolog-unreadable": (covered(PROLOG, "600"), f"node-path {SITE_TREE}/current/spank/task_prolog"),
    "prolog-other": (
        replaced(f"{SITE_TREE}/current/spank/task_prolog", "sed s/hsn0/eth0/g"),
        f"node-file {SITE_TREE}/current/spank/task_prolog",
    ),
    # The file and the link to it.
    "wrapper-other": (
        replaced(f"{SITE_TREE}/current/spank/bin/apptainer", "sed '$s/$/ #/'"),
        f"node-file {SITE_TREE}/current",
    ),
    "image-cut": (replaced(IMAGE, "head -c 5M"), f"node-file {IMAGE}"),
    "image-middle": (
        replaced(IMAGE, "python3 -c 'import sys; b = bytearray(sys.stdin.buffer.read()); b[len(b) // 3] ^= 1; "
        "sys.stdout.buffer.write(b)'"), f"node-file {IMAGE}",
    ),
    "host-runtime": (replaced("/usr/bin/singularity", "head -c 0"), "node-path /usr/bin/singularity"),
    "gpu-gone": (on_the_node("mv /dev/dri/renderD131 /run", "mv /run/renderD131 /dev/dri"), "node-file /dev/dri"),
    "gpu-unreadable": (
        on_the_node("chmod 222 /dev/dri/renderD132", "chmod 666 /dev/dri/renderD132"),
        "node-file /dev/dri",
    ),
    "clock-ahead": (lambda cluster: faults.clock_ahead(cluster, BAD), "node-differs clock"),
    "limits": (
        on_the_node(f"{END_SLURMD}; ulimit -l 64; ulimit -n 1200; slurmd", f"{END_SLURMD}; slurmd"),
        "node-differs locked memory",
    ),
    "throttled": (lambda cluster: faults.cpu_limited(cluster, BAD, 50), "node-differs CPU quota"),
    "one-cpu": (lambda cluster: faults.one_cpu(cluster, BAD), "node-differs CPUs that the step may run on"),
    "tmp-without-programs": (
        on_the_node("mount -o remount,noexec /tmp", "mount -o remount,exec /tmp"),
        "node-differs mount options of /tmp",
    ),
    "tmp-without-inodes": (
        on_the_node(
            "mount -o remount,nr_inodes=$(($(df --output=iused /tmp | tail -n 1))) /tmp", "mount -o remount,nr_inodes=0 /tmp"
        ),
        "node-full /tmp",
    ),
    "tmp-read-only": (lambda cluster: faults.tmp_read_only(cluster, BAD), "node-full /tmp"),
    "tmp-full": (lambda cluster: faults.tmp_full(cluster, BAD), "node-full /tmp"),
    "shared-memory": (
        on_the_node("mount -o remount,size=4m /dev/shm", "mount -o remount,size=50% /dev/shm"),
        "node-full /dev/shm",
    ),
    # What only `check --host` sees, as all of these are there and alike, or lie where nothing else looks.
    "runtime-without-binds": (
        replaced("/etc/apptainer/apptainer.conf", "sed 's/^user bind control = yes/user bind control = no/'"),
        "node-check /etc/apptainer/apptainer.conf",
    ),
    "wrapper-is-the-runtime": (
        on_the_node(
            f"mount --bind /usr/bin/singularity {SITE_TREE}/current/spank/bin/singularity",
            f"umount {SITE_TREE}/current/spank/bin/singularity",
        ),
        f"node-file {SITE_TREE}/current",
    ),
}  # fmt: skip


#: The faults of each run, which hide nothing of each other, and what is run beside the probe `node`: what modules and the
#: container lack behind them must follow.
ENVIRONMENT = "--probe environment"
RUNS: dict[tuple[str, ...], str] = {
    (
        *("gone", "without-address", "read-only", "gpu-gone", "one-cpu", "clock-ahead", "tmp-without-programs"),
        *("tmp-full", "image-cut", "wrapper-other", "runtime-without-binds"),
    ): "",
    (
        *("names-swapped", "other-file-system", "shut", "gpu-unreadable", "limits", "throttled", "tmp-without-inodes"),
        *("shared-memory", "library-of-another-release", "library-empty", "image-middle", "wrapper-is-the-runtime"),
        "host-runtime",
    ): "",
    ("through-management", "syn-dropped", "full-packets-lost", "some-packets-lost"): "",
    ("hung", "mount-gone", "dangling", "library-gone", "mtu", "prolog-unreadable"): ENVIRONMENT,
    ("flaps", "not-mounted", "library-shut-in", "tmp-read-only", "prolog-other"): ENVIRONMENT,
    ("run-away",): ENVIRONMENT,
    ("software-away",): ENVIRONMENT,
    # The ranks of collectives do not meet where one has no interface: the next command goes on without it.
    ("down",): "--probe collectives --image /appl/images/torch.sif",
}


@pytest.fixture(scope="module")
def four() -> Iterator[Cluster]:
    """Four nodes, of which one will be bad."""
    require_twin()
    with ready_cluster(ClusterPlan(nodes=4)) as cluster:
        write_framework(cluster)
        yield cluster


def test_each_fault_is_planted_once() -> None:
    assert sorted(name for names in RUNS for name in names) == sorted(ON_ONE_NODE)


@pytest.mark.parametrize("names", RUNS, ids=" ".join)
def test_faults_of_one_node_are_told_of_that_node(four: Cluster, names: tuple[str, ...]) -> None:
    behind, run = RUNS[names], names[0]
    with ExitStack() as planted:
        for name in names:
            planted.enter_context(ON_ONE_NODE[name][0](four))
        planted.enter_context(
            set_by_site(four, f"export SINGULARITY_BIND={FRAMEWORK}" if behind == ENVIRONMENT else "")
        )
        words = f"--nodes 4 --jobs 1 --image {IMAGE} --probe node {behind}"
        done = four.run(f"{LUMISITE} validate --site twin --out /scratch/{run} {words}")
        assert done.code == 5, done.stdout + done.stderr
        if run == "down":
            again = four.run(f"{LUMISITE} {asked_for(done)}")
            assert again.code == 0, again.stdout + again.stderr
    gates = gates_of(four, run)
    told = [gate for gate in gates if gate.gate == "node"]
    bad = [gate for gate in told if gate.verdict == "fail"]
    assert {gate.nodes for gate in bad} == {(BAD,)}
    found = [f"{gate.code} {gate.values.get('subject', '')}".strip() for gate in bad]
    expected = [one for name in names for one in re.split(", (?=node-)", ON_ONE_NODE[name][1])]
    for one in expected:
        assert any(each.startswith(one) for each in found), (one, done.stdout + done.stderr)
    if len(names) == 1:
        assert found[0].startswith(expected[0])
    # Of what is told already, `check --host` says nothing more.
    assert ["node-check" for gate in bad if gate.code == "node-check"] == [
        "node-check" for one in expected if one.startswith("node-check")
    ]
    assert [gate.nodes for gate in told if gate.verdict == "pass"] == [tuple(n for n in four.nodes if n != BAD)]
    # What else fails has the bad node among its own, so that it follows; and no other node is named for it alone.
    assert all(BAD in gate.nodes for gate in gates if gate.verdict != "pass"), done.stdout
    assert gates[0].gate == "node"
    # One cause, one finding: all else follows, and the command that goes on does so on the three that are left.
    verdicts = judge_gates((), gates)
    assert {one.gate for one in verdicts if one.verdict != "pass" and not one.follows} == {"node"}
    if any(one.follows for one in verdicts):
        (more,) = [
            line.strip() for line in done.stderr.splitlines() if " --nodelist nid000001,nid000002,nid000004 " in line
        ]
        assert f"--out /scratch/{run}-next" in more


def gates_of(cluster: Cluster, run: str) -> list[Gate]:
    return [line for line in lines_of(cluster.shared / f"scratch/{run}" / SAMPLES) if isinstance(line, Gate)]


def test_the_node_that_runs_the_job_script_is_told_as_any_other(four: Cluster) -> None:
    first = four.nodes[0]
    with faults.mount_hung(four, first, "/users"):
        words = f"--out /scratch/first --nodes 4 --jobs 1 --image {IMAGE} --probe transport"
        done = four.run(f"cd /scratch; {LUMISITE} validate --site twin {words}")
    assert done.code == 5, done.stdout + done.stderr
    assert [(gate.gate, gate.code, gate.nodes) for gate in gates_of(four, "first") if gate.verdict == "fail"] == [
        ("node", "node-path", (first,))
    ]
