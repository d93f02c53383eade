"""Every fault is real while it lasts, and gone afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.twin import faults
from tests.twin.cluster import EXCHANGE, Cluster, ClusterPlan, running
from tests.twin.network import Host

pytestmark = [pytest.mark.root, pytest.mark.slurm]

# Sends eight million bytes to another node and prints the seconds until the last has been received there.
TRANSFER = """
import os, socket, sys, time
role, address = sys.argv[1], (sys.argv[2], 7000)
if role == "receive":
    with socket.create_server(address) as server:
        if os.fork():
            sys.exit()  # it listens: the sender may start
        for descriptor in (0, 1, 2):
            os.close(descriptor)
        connection, _ = server.accept()
        with connection:
            while connection.recv(1 << 20):
                pass
            connection.sendall(b"done")
else:
    with socket.create_connection(address, timeout=30) as connection:
        began = time.monotonic()
        connection.sendall(bytes(8_000_000))
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(4) == b"done"
        print(time.monotonic() - began)
"""


def transfer_s(twin: Cluster, interface: str) -> float:
    """Time a transfer from the second node to the first over one interface: the best of three, as a busy CPU adds."""
    (twin.exchange / "transfer.py").write_text(TRANSFER)
    first, second = twin.nodes
    address = Host(first, 2).address(interface)
    script = f"python3 {EXCHANGE}/transfer.py"
    once = []
    for _ in range(3):
        twin.run(f"{script} receive {address}", node=first).check()
        once.append(float(twin.run(f"{script} send {address}", node=second).check().stdout))
    return min(once)


@pytest.mark.measures
def test_the_management_interface_is_slow_from_the_start(twin: Cluster) -> None:
    assert transfer_s(twin, "eth0") > 3 * transfer_s(twin, "hsn0")


@pytest.mark.measures
def test_an_interface_is_throttled(twin: Cluster) -> None:
    with faults.interface_throttled(twin, twin.nodes[1], "hsn1", "40mbit"):
        slow = transfer_s(twin, "hsn1")
        assert transfer_s(twin, "hsn2") < slow / 3
    assert slow > 1.5  # eight million bytes at that rate take 1.6 s
    assert transfer_s(twin, "hsn1") < slow / 3


def test_an_interface_is_down(twin: Cluster) -> None:
    first, second = twin.nodes
    state = ["cat", "/sys/class/net/hsn0/operstate"]
    reach = ["getent", "hosts", f"{first}-hsn0"]
    address = twin.run(reach).stdout.split()[0]
    route = f"ip route get {address}"
    with faults.interface_down(twin, second, "hsn0"):
        assert twin.run(state, node=second).stdout.strip() == "down"
        assert twin.run(state, node=first).stdout.strip() == "up"
        assert twin.run(route, node=second).code != 0
        assert twin.run("srun -N2 true").code == 0
    assert "dev hsn0" in twin.run(route, node=second).check().stdout


def test_a_killed_node_takes_its_job_along_and_comes_back(twin: Cluster) -> None:
    victim = twin.nodes[1]
    job = twin.run(f"sbatch --parsable -w {victim} --no-requeue --wrap 'sleep 1000'").check().stdout.strip()
    state = f"squeue --noheader --states=all --job {job} --format=%T"
    faults.wait_until(lambda: twin.run(state).stdout.strip() == "RUNNING", "the job runs")
    with faults.node_killed(twin, victim):
        faults.wait_until(lambda: twin.run(state).stdout.strip() == "NODE_FAIL", "the job has lost its node")
        assert "down" in twin.run(f"sinfo --noheader -n {victim} --format=%T").stdout
        assert twin.run(f"srun -w {twin.nodes[0]} hostname").stdout.strip() == twin.nodes[0]
    assert sorted(twin.run("srun -N2 hostname").check().stdout.split()) == list(twin.nodes)


def test_a_drained_node_gets_nothing_new(twin: Cluster) -> None:
    first, second = twin.nodes
    shown = f"sinfo --noheader -n {first} -p small-g --format='%T %E'"
    with faults.node_drained(twin, first, "two words"):
        assert twin.run(shown).stdout.strip() == "drained two words"
        assert twin.run(f"srun --immediate=2 -w {first} true").code != 0
        assert twin.run("srun hostname").stdout.strip() == second
    assert twin.run(f"srun -w {first} hostname").check().stdout.strip() == first


@pytest.mark.parametrize("path", ["/projappl", "/usr/bin/numactl", "/usr/share/lmod"])
def test_a_path_is_gone_on_one_node(twin: Cluster, path: str) -> None:
    first, second = twin.nodes
    before = twin.run(f"find {path} | sort", node=first).check().stdout
    with faults.path_gone(twin, first, path):
        assert twin.run(f"ls -d {path}", node=first).code != 0
        assert twin.run(f"ls -d {path}", node=second).code == 0
    assert twin.run(f"find {path} | sort", node=first).check().stdout == before


def test_a_link_dangles_on_one_node(twin: Cluster) -> None:
    first, second = twin.nodes
    with faults.dangling_link(twin, first, "/projappl"):
        assert twin.run("test -L /projappl && ! test -e /projappl", node=first).code == 0
        assert twin.run("test -d /projappl", node=second).code == 0
    assert twin.run("mountpoint -q /projappl", node=first).code == 0


@pytest.mark.apptainer
def test_a_container_does_not_start_without_the_source_of_its_bind(twin: Cluster) -> None:
    first, _ = twin.nodes
    container = f"srun -w {first} singularity exec --bind /projappl /appl/images/small.sif ls -d /projappl"
    assert twin.run(container).code == 0
    with faults.path_gone(twin, first, "/projappl"):
        assert twin.run(container).code != 0


def test_tmp_is_full(twin: Cluster) -> None:
    first, second = twin.nodes
    write = "echo x >/tmp/one && rm /tmp/one"
    with faults.tmp_full(twin, first):
        assert "No space left" in twin.run(write, node=first).stderr
        assert twin.run(write, node=second).code == 0
    assert twin.run(write, node=first).code == 0


def test_tmp_is_read_only(twin: Cluster) -> None:
    first, second = twin.nodes
    write = "touch /tmp/one && rm /tmp/one"
    with faults.tmp_read_only(twin, first):
        assert "Read-only file system" in twin.run(write, node=first).stderr
        assert twin.run(write, node=second).code == 0
    assert twin.run(write, node=first).code == 0


def test_a_library_tree_is_replaced_whole(twin: Cluster, tmp_path: Path) -> None:
    first, second = twin.nodes
    for name in ("opt/cray/new", "usr/lib64/libnew.so.1"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("new")
    with faults.library_tree_replaced(twin, first, tmp_path):
        assert twin.run("cat /opt/cray/new /usr/lib64/libnew.so.1", node=first).stdout == "newnew"
        assert twin.run("ls /opt/cray/new", node=second).code != 0
        assert twin.run(f"srun -w {first} hostname").check().stdout.strip() == first
    assert twin.run("ls /usr/lib64/libnew.so.1", node=first).code != 0


def test_sacct_refuses_and_jobs_go_on(twin: Cluster) -> None:
    usual = twin.run("sacct")
    assert "accounting storage is disabled" in usual.stdout + usual.stderr
    with faults.sacct_refuses(twin):
        refusal = twin.run("sacct")
        assert refusal.code != 0
        assert "Connection refused" in refusal.stderr
        assert twin.run("srun -N2 true").code == 0


@pytest.mark.measures
def test_the_cpu_of_one_node_is_slow(twin: Cluster) -> None:
    count = "import time; t = time.monotonic(); sum(range(2 * 10**7)); print(time.monotonic() - t)"
    (twin.exchange / "count.py").write_text(count)

    def seconds() -> dict[str, float]:
        run = f'srun -N2 sh -c "echo \\$SLURMD_NODENAME \\$(python3 {EXCHANGE}/count.py)"'
        rows = (line.split() for line in twin.run(run).check().stdout.splitlines())
        return {node: float(value) for node, value in rows}

    first, second = twin.nodes
    with faults.slow_cpu(twin, first, 0.1):
        slowed = seconds()
    assert slowed[first] > 2 * slowed[second]
    rounds = [seconds() for _ in range(3)]  # the best of each node: others may use the CPUs of both
    usual = {node: min(one[node] for one in rounds) for node in (first, second)}
    assert usual[first] < 2 * usual[second]


def test_a_site_has_a_task_prolog_of_its_own() -> None:
    plan = ClusterPlan(nodes=1, images=("small",), task_prolog="#!/bin/sh\necho export FROM_SITE=yes\n")
    with running(plan) as cluster:
        assert cluster.run("srun printenv FROM_SITE").check().stdout.strip() == "yes"
