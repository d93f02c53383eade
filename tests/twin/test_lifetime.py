"""A cluster that goes leaves nothing, however it goes, and what it did not start is not touched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from lumisite.errors import ToolError
from tests.twin import cluster as clusters
from tests.twin.__main__ import main
from tests.twin.cluster import RUN_DIRECTORY, Cluster, ClusterPlan, down, running, sweep, up
from tests.twin.fence import ProcessId, fell, is_alive, process_id
from tests.twin.fixtures import require_twin

pytestmark = [pytest.mark.measures, pytest.mark.root, pytest.mark.slurm]

CHECKOUT = Path(__file__).parents[2]
PLAN = ClusterPlan(images=("small",))
SPACES = ("pid", "mnt", "net", "uts", "ipc")


@pytest.fixture(autouse=True)
def needed() -> None:
    require_twin()


def name_spaces(pid: int | str) -> set[str]:
    found = set()
    for space in SPACES:
        try:
            found.add(str(Path(f"/proc/{pid}/ns/{space}").readlink()))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            # Ended, or the machine's own first process, which even root may not look at everywhere.
            continue
    return found


def processes_in(spaces: set[str]) -> list[str]:
    pids = [path.name for path in Path("/proc").iterdir() if path.name.isdigit()]
    # One that has ended and waits for the machine's first process to bury it is no longer there.
    return [_shown(pid) for pid in pids if name_spaces(pid) & spaces and process_id(int(pid)) is not None]


def _shown(pid: str) -> str:
    try:
        return f"{pid} {Path(f'/proc/{pid}/cmdline').read_bytes()!r}"
    except (FileNotFoundError, ProcessLookupError):
        return pid


@dataclass(frozen=True)
class Machine:
    """What a cluster could leave on the machine itself."""

    mounts: tuple[str, ...]
    interfaces: tuple[str, ...]
    named_net_spaces: tuple[str, ...]


def machine() -> Machine:
    named = Path("/run/netns")
    return Machine(
        tuple(sorted(Path("/proc/self/mountinfo").read_text().splitlines())),
        tuple(sorted(path.name for path in Path("/sys/class/net").iterdir())),
        tuple(sorted(path.name for path in named.iterdir())) if named.is_dir() else (),
    )


@contextmanager
def spaces_of(cluster: Cluster) -> Iterator[set[str]]:
    """Give the name spaces that exist because of a cluster: those of the first processes below its fence.

    They are held open meanwhile, because the kernel gives the number of one that has gone to the next.
    """
    assert cluster.holder.first is not None
    folders = [cluster.node_folder(node) / "first.json" for node in (clusters.LOGIN, *cluster.nodes)]
    firsts = [json.loads(folder.read_text())["pid"] for folder in folders]
    with ExitStack() as held:
        for pid in (cluster.holder.first.pid, *firsts):
            for space in SPACES:
                held.enter_context(Path(f"/proc/{pid}/ns/{space}").open())
        pids = (cluster.holder.first.pid, *firsts)
        yield set[str]().union(*(name_spaces(pid) for pid in pids)) - name_spaces("self")


def assert_gone(cluster: Cluster, spaces: set[str]) -> None:
    assert processes_in(spaces) == []
    assert not is_alive(cluster.holder.maker)
    assert process_id(cluster.holder.maker.pid) is None
    assert not cluster.directory.exists()
    assert not list(RUN_DIRECTORY.glob(f".{cluster.id}*"))


def test_twenty_times_up_and_down_leave_nothing() -> None:
    before = machine()
    for _ in range(20):
        cluster = up(PLAN, tied=True)
        with spaces_of(cluster) as spaces:
            # The check can fail: the cluster's slurmd and munged are seen while it runs.
            assert len(spaces) == len(SPACES) * 4 - 1
            assert len(processes_in(spaces)) > 8
            assert machine() == before
            down(cluster)
            assert_gone(cluster, spaces)
    assert machine() == before
    children = [path for path in Path("/proc").glob("[0-9]*/stat") if _is_our_zombie(path)]
    assert children == []


def _is_our_zombie(stat: Path) -> bool:
    try:
        state, parent = stat.read_text().rpartition(")")[2].split()[:2]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state == "Z" and int(parent) == os.getpid()


def test_down_ends_running_jobs_too() -> None:
    cluster = up(PLAN, tied=True)
    cluster.run("sbatch --wrap 'srun sleep 1000'").check()
    cluster.run("setsid sleep 1000 >/dev/null 2>&1 &", node=cluster.nodes[0]).check()
    with spaces_of(cluster) as spaces:
        down(cluster)
        assert_gone(cluster, spaces)


UP_AND_WAIT = """
import sys
from tests.twin.cluster import ClusterPlan, up
cluster = up(ClusterPlan(images=("small",)), tied=sys.argv[1] == "tied")
print(cluster.id, flush=True)
sys.stdin.read()
"""


def start_elsewhere(how: str) -> tuple[subprocess.Popen[str], Cluster]:
    starter = subprocess.Popen(
        [sys.executable, "-c", UP_AND_WAIT, how],
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert starter.stdout is not None
    identity = starter.stdout.readline().strip()
    return starter, next(cluster for cluster in clusters.clusters() if cluster.id == identity)


def kill(starter: subprocess.Popen[str]) -> None:
    starter.kill()
    with starter:
        pass


def test_a_tied_cluster_ends_with_a_program_that_is_killed() -> None:
    starter, cluster = start_elsewhere("tied")
    assert cluster.holder.first is not None
    with spaces_of(cluster) as spaces:
        kill(starter)
        # The kernel ends both; this waits for it.
        fell(cluster.holder.first)
        fell(cluster.holder.maker)
        assert processes_in(spaces) == []
        sweep()
        assert_gone(cluster, spaces)


def test_a_cluster_by_hand_outlives_its_program_and_is_found_again() -> None:
    starter, cluster = start_elsewhere("free")
    with spaces_of(cluster) as spaces:
        kill(starter)
        assert cluster.run("srun -N2 hostname").code == 0
        sweep()
        assert clusters.is_running(cluster)
        assert main(["down", "--id", cluster.id]) == 0
        assert_gone(cluster, spaces)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("after", ["state.json", "nodes/uan01/first.json", "nodes/nid000001/first.json"])
def test_an_interrupted_start_leaves_nothing(sent: signal.Signals, after: str) -> None:
    before = machine()
    starter = subprocess.Popen(
        [sys.executable, "-m", "tests.twin", "up"],
        cwd=CHECKOUT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # Where the tests themselves run in the background of a shell, Ctrl-C is ignored, and that is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    identity = ""
    while not (identity and (RUN_DIRECTORY / identity / after).exists()) and starter.poll() is None:
        identity = next((cluster.id for cluster in clusters.clusters() if _started_by(starter.pid, cluster)), "")
    assert identity
    starter.send_signal(sent)
    _, said = starter.communicate()
    assert starter.returncode in (130, -sent), said
    left = [cluster for cluster in clusters.clusters() if cluster.id == identity]
    if sent is signal.SIGINT:
        assert left == []
    for cluster in left:
        down(cluster)
    assert identity not in " ".join(path.name for path in RUN_DIRECTORY.iterdir())
    assert not _mentions(identity)
    assert machine() == before


def _started_by(pid: int, cluster: Cluster) -> bool:
    """Say whether a process started a cluster; others may start theirs at the same time."""
    try:
        stat = Path(f"/proc/{cluster.holder.maker.pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return int(stat.rpartition(")")[2].split()[1]) == pid


def _mentions(identity: str) -> list[str]:
    """Give the processes whose command line names a cluster, as its fence's and its nodes' do."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if f"\0{identity}\0".encode() in text and int(path.parent.name) != os.getpid():
            found.append(text.decode())
    return found


def test_a_start_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "RUN_DIRECTORY", tmp_path)
    before = machine()
    with pytest.raises(ToolError, match="nonsense"):
        up(ClusterPlan(images=("small",), management_rate="nonsense"))
    assert list(tmp_path.iterdir()) == []
    assert machine() == before


def test_a_process_with_a_recycled_number_is_not_touched() -> None:
    with subprocess.Popen(["sleep", "1000"]) as bystander:
        now = process_id(bystander.pid)
        assert now is not None
        fell(ProcessId(now.pid, now.started - 1))
        assert bystander.poll() is None
        bystander.kill()


def test_a_process_whose_number_is_a_threads_by_now_counts_as_gone() -> None:
    over = threading.Event()
    bystander = threading.Thread(target=over.wait, daemon=True)
    bystander.start()
    assert bystander.native_id is not None
    fell(ProcessId(bystander.native_id, 1))
    assert bystander.is_alive()
    over.set()


def test_down_leaves_other_programs_clusters_alone(twin: Cluster) -> None:
    with running(ClusterPlan(nodes=1, images=("small",))) as other:
        assert main(["down", "--id", other.id]) == 0
    assert clusters.is_running(twin)
    sweep()
    assert clusters.is_running(twin)


def test_down_leaves_what_another_checkout_started(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = ClusterPlan(nodes=1, images=("small",))
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(clusters, "CHECKOUT", Path("/another/checkout"))
        other = up(plan)
    try:
        ours = up(plan)
        assert main(["down"]) == 0
        assert not clusters.is_running(ours)
        assert clusters.is_running(other)
        assert main(["run", "true"]) == 2, "it is not taken for ours either"
    finally:
        assert main(["down", "--id", other.id]) == 0
    assert not clusters.is_running(other)
