"""What goes wrong on a machine, on demand: each fault lasts for the length of a `with` block and is then undone.

Which are planted, and what must be said of them, are the tables of test_faults_of_one_node.py and
test_faults_of_a_run.py. A site TaskProlog of its own is no fault but a part of a cluster's plan (`task_prolog`).
"""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from lumisite.errors import ToolError
from tests.twin import fence, network
from tests.twin.cluster import EXCHANGE, LOGIN, Cluster, restart_node, usual_rates, wait_idle
from tests.twin.node import first_process
from tests.twin.process import run_or_refuse

HIDDEN = "/run/twin-hidden"
"""Where a node keeps what a fault took away, until it is given back."""


@contextmanager
def interface_down(cluster: Cluster, node: str, interface: str) -> Iterator[None]:
    """Take one interface of a node down."""
    _as_root(cluster, node, f"ip link set {interface} down")
    try:
        yield
    finally:
        _as_root(cluster, node, f"ip link set {interface} up")


@contextmanager
def as_root(cluster: Cluster, node: str, command: str, undo: str) -> Iterator[None]:
    """Do anything else to a node that a command of the shell can do, and undo it with another one."""
    _as_root(cluster, node, command)
    try:
        yield
    finally:
        _as_root(cluster, node, undo)


@contextmanager
def interface_throttled(cluster: Cluster, node: str, interface: str, rate: str) -> Iterator[None]:
    """Limit what a node sends over an interface; `rate` in the words of tc-tbf(8), such as 10mbit."""
    _as_root(cluster, node, shlex.join(network.throttle_command(interface, rate)))
    try:
        yield
    finally:
        _as_root(cluster, node, _usual(cluster, node, interface))


@contextmanager
def every_link_throttled(cluster: Cluster, rate: str) -> Iterator[None]:
    """Limit what every node sends over each high-speed interface."""
    slow = "; ".join(shlex.join(network.throttle_command(interface, rate)) for interface in network.HIGH_SPEED)
    for node in cluster.nodes:
        _as_root(cluster, node, slow)
    try:
        yield
    finally:
        for node in cluster.nodes:
            _as_root(cluster, node, "; ".join(_usual(cluster, node, interface) for interface in network.HIGH_SPEED))


@contextmanager
def node_killed(cluster: Cluster, node: str) -> Iterator[None]:
    """End a node at once, as if its power had failed; start it again, empty, afterwards."""
    fence.fell(first_process(cluster.node_folder(node)))
    try:
        yield
    finally:
        restart_node(cluster, node)
        # After a power failure the controller waits for an operator, who has no reason to wait here.
        _as_root(cluster, LOGIN, f"scontrol update nodename={node} state=resume || true")
        wait_idle(cluster)


@contextmanager
def node_drained(cluster: Cluster, node: str, reason: str = "maintenance") -> Iterator[None]:
    """Let Slurm start nothing new on a node."""
    _as_root(cluster, LOGIN, f"scontrol update nodename={node} state=drain reason={shlex.quote(reason)}")
    try:
        yield
    finally:
        _as_root(cluster, LOGIN, f"scontrol update nodename={node} state=resume")


@contextmanager
def path_gone(cluster: Cluster, node: str, path: str) -> Iterator[None]:
    """Let a file, a folder or a whole mounted file system be absent on one node."""
    _as_root(cluster, node, _hide(path))
    try:
        yield
    finally:
        _as_root(cluster, node, _give_back(path))


@contextmanager
def dangling_link(cluster: Cluster, node: str, path: str) -> Iterator[None]:
    """Let a link to nowhere stand for a file or folder on one node."""
    _as_root(cluster, node, f"{_hide(path)}; ln -s {shlex.quote(path)}.does-not-exist {shlex.quote(path)}")
    try:
        yield
    finally:
        _as_root(cluster, node, f"rm {shlex.quote(path)}; {_give_back(path)}")


@contextmanager
def tmp_full(cluster: Cluster, node: str) -> Iterator[None]:
    """Let /tmp of a node have no room for a single byte."""
    # dd ends when the file system is full, which is what is wanted of it.
    _as_root(cluster, node, "dd if=/dev/zero of=/tmp/.full bs=1M 2>/dev/null; test -s /tmp/.full")
    try:
        yield
    finally:
        _as_root(cluster, node, "rm /tmp/.full")


@contextmanager
def tmp_read_only(cluster: Cluster, node: str) -> Iterator[None]:
    """Let /tmp of a node be read-only."""
    _as_root(cluster, node, "mount -o remount,ro /tmp")
    try:
        yield
    finally:
        _as_root(cluster, node, "mount -o remount,rw /tmp")


@contextmanager
def library_tree_replaced(cluster: Cluster, node: str, tree: Path) -> Iterator[None]:
    """Put another version of the host's libraries in the place of the one a node has.

    Every folder that `tree` has two levels down, such as opt/cray and usr/lib64, replaces the node's own
    whole.
    """
    copy = cluster.exchange / f"tree-{node}"
    shutil.copytree(tree, copy, symlinks=True)
    loader = "usr/lib64/ld-linux-x86-64.so.2"
    if (copy / "usr/lib64").is_dir() and not (copy / loader).is_symlink():
        # Without the loader's name nothing on the node would start.
        (copy / loader).symlink_to(cluster.run(f"readlink /{loader}", node=node).check().stdout.strip())
    folders = sorted(f"/{path.relative_to(copy)}" for path in copy.glob("*/*") if path.is_dir())
    mounts = [f"mkdir -p {path} && mount --bind {EXCHANGE}/{copy.name}{path} {path}" for path in folders]
    _as_root(cluster, node, " && ".join([*mounts, "ldconfig"]))
    try:
        yield
    finally:
        _as_root(cluster, node, "; ".join([*(f"umount --lazy {path}" for path in folders), "ldconfig"]))
        shutil.rmtree(copy)


@contextmanager
def sacct_refuses(cluster: Cluster, node: str = LOGIN) -> Iterator[None]:
    """Let sacct on a node look for an accounting database that does not answer; jobs run on as before."""
    conf, other = "/etc/slurm/slurm.conf", "/run/slurm-with-database.conf"
    lines = r"AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\n"
    _as_root(cluster, node, f"(cat {conf}; printf '{lines}') >{other} && mount --bind {other} {conf}")
    try:
        yield
    finally:
        _as_root(cluster, node, f"umount --lazy {conf}")


@contextmanager
def mount_hung(cluster: Cluster, node: str, path: str) -> Iterator[None]:
    """Let whoever looks at a file system of a node wait for ever."""
    script = cluster.exchange / "hung_mount.py"
    shutil.copy(fence.SCRIPTS / script.name, script)
    begin = f"setsid python3 {EXCHANGE}/{script.name} {path} </dev/null >/run/hung 2>&1 &"
    _as_root(cluster, node, f"{begin} until grep hung /run/hung; do sleep 0.1; done")
    try:
        yield
    finally:
        _as_root(cluster, node, f"kill -KILL $(pgrep -f '[h]ung_mount.py'); umount --lazy {path}")


def cpu_limited(cluster: Cluster, node: str, percent: int) -> AbstractContextManager[None]:
    """Let all that slurmd starts on a node have `percent` of one CPU (cgroup v1), in slices too short to hide between.

    A limit on the service of slurmd's, as of systemd's CPUQuota=, does the same.
    """
    period_us = 10_000
    limit = f"echo {period_us} >$g/cpu.cfs_period_us; echo {period_us * percent // 100} >$g/cpu.cfs_quota_us"
    return _in_group(cluster, node, "cpu", limit)


def one_cpu(cluster: Cluster, node: str) -> AbstractContextManager[None]:
    """Let all that slurmd starts on a node run on CPU 0 alone (cgroup v1), whatever Slurm believes."""
    return _in_group(cluster, node, "cpuset", "cat $g/../cpuset.mems >$g/cpuset.mems; echo 0 >$g/cpuset.cpus")


def _in_group(cluster: Cluster, node: str, controller: str, limit: str) -> AbstractContextManager[None]:
    """Move slurmd of a node into a group `$g` of a controller, for which a command sets a limit."""
    top, mark = f"/sys/fs/cgroup/{controller}", f"/run/in-group-{controller}"
    begin = f"set -e; g=$(mktemp -d {top}/twin.XXXXXX); chmod 755 $g; echo $g >{mark}; {limit}"
    # Steps may be at their end yet: they go where slurmd goes.
    free = f"for pid in $(cat /run/slurmd.pid $g/cgroup.procs); do echo $pid >{top}/cgroup.procs || :; done"
    undo = f"g=$(cat {mark}); until {free}; rmdir $g; do sleep 0.2; done 2>/dev/null"
    return as_root(cluster, node, f"{begin}; cat /run/slurmd.pid >$g/cgroup.procs", undo)


@contextmanager
def clock_ahead(cluster: Cluster, node: str) -> Iterator[None]:
    """Let the clock of a node be two minutes ahead, for every program that starts there and calls the C library."""
    library = cluster.exchange / "clock.so"
    run_or_refuse(["gcc", "-shared", "-fPIC", "-O2", "-o", str(library), str(fence.SCRIPTS / "clock.c")])
    _as_root(cluster, node, f"echo {EXCHANGE}/{library.name} >/etc/ld.so.preload")
    try:
        yield
    finally:
        _as_root(cluster, node, "rm /etc/ld.so.preload")


def wait_until(holds: Callable[[], bool], what: str, within_s: float = 300) -> None:
    """Wait for a state of the cluster that comes by itself. Raises `ToolError` if it does not."""
    deadline = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > deadline:
            raise ToolError(f"not within {within_s:g} s: {what}")
        time.sleep(0.1)


def _usual(cluster: Cluster, node: str, interface: str) -> str:
    """Give the command that lets an interface send as it does when nothing is wrong."""
    rate = usual_rates(cluster, node).get(interface)
    if rate is None:
        return f"tc qdisc del dev {interface} root"
    return shlex.join(network.throttle_command(interface, rate))


def _hide(path: str) -> str:
    """Give the shell command that takes a path away; a mount moves as it is, all else is renamed."""
    hidden, quoted = shlex.quote(f"{HIDDEN}{path}"), shlex.quote(path)
    move = f"mkdir -p {hidden} && mount --move {quoted} {hidden} && rmdir {quoted}"
    rename = f'mkdir -p "$(dirname {hidden})" && mv {quoted} {hidden}'
    return f"set -e; if mountpoint -q {quoted}; then {move}; else {rename}; fi"


def _give_back(path: str) -> str:
    hidden, quoted = shlex.quote(f"{HIDDEN}{path}"), shlex.quote(path)
    move = f"mkdir {quoted} && mount --move {hidden} {quoted}"
    return f"set -e; if mountpoint -q {hidden}; then {move}; else mv {hidden} {quoted}; fi"


def _as_root(cluster: Cluster, node: str, command: str) -> None:
    cluster.run(command, node=node, user="root").check()


@contextmanager
def daemon_away(cluster: Cluster, node: str, daemon: str, signal: str = "TERM") -> Iterator[None]:
    """Have slurmctld (of the login node) or a node's slurmd ended; what runs on goes on without it."""
    _as_root(cluster, node, f"kill -{signal} $(cat /run/{daemon}.pid)")
    try:
        yield
    finally:
        _as_root(cluster, node, daemon)
