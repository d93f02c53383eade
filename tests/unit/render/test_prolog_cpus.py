"""The prolog's CPU masks: which mask, or none with the reason; and on this machine's own cores, that it takes effect.

The tables of whole nodes are compared in `test_rank.py`.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lumisite.machine.masks import MaskRequest, cpu_masks, mask_of
from lumisite.machine.topology import topology_of
from lumisite.site.cpu_list import parse_number_list
from lumisite.site.load import load_site
from tests.support.kernels import DRIVER, be_node, kernel_files
from tests.support.prologs import Ran, Script, lay_out, render_files, shell_command
from tests.support.sites import load_text, site_text

SITE = load_site("lumi").site
TOPOLOGY = topology_of("lumi-g", SITE.node_kinds["lumi-g"])


def grant(tmp_path: Path, cpus: str, *, version: int = 2) -> None:
    """Be the cgroup of a step that was granted `cpus`."""
    place = "/system.slice/slurmstepd.scope/job_7/step_0" if version == 2 else "/slurm/uid_1000/job_7/step_0"
    folder = tmp_path / ("cgroup" if version == 2 else "cgroup/cpuset") / place[1:]
    folder.mkdir(parents=True)
    (folder / ("cpuset.cpus.effective" if version == 2 else "cpuset.cpus")).write_text(f"{cpus}\n")
    # In version 2 the task stands deeper, where the controller is not switched on.
    (tmp_path / "cpuset").write_text(f"{place}/user/task_0\n" if version == 2 else f"{place}\n")


def tried(ran: Ran) -> str | None:
    """The list that went to taskset, which refuses those that this machine has no CPU for."""
    assert (ran.status, ran.stderr) == (0, "")
    for line in ran.prints:
        found = re.search(r"(?:CPUs|taskset refused) ([0-9][0-9,-]*)", line)
        if found:
            return found[1]
    assert reason(ran)
    return None


def reason(ran: Ran) -> str:
    return next(line.partition("no CPU binding: ")[2] for line in ran.prints if "no CPU binding: " in line)


def step(prolog: Script, tasks: int, task: int, **changes: str | None) -> Ran:
    given = {
        "SLURM_STEP_NUM_NODES": "1",
        "LUMISITE_VERBOSE": "1",
        "SLURM_TASK_PID": str(os.getpid() + 10**8),
        "SLURM_GTIDS": ",".join(map(str, range(tasks))),
        **dict.fromkeys(("SLURM_LOCALID", "SLURM_PROCID"), str(task)),
    }
    return prolog.step(**{**given, **changes})


def golden(tasks: int, threads: int) -> list[str | None]:
    return [answer.cpus for answer in cpu_masks(TOPOLOGY, MaskRequest(tasks, threads))]


# ---- a whole node


def test_eight_tasks_get_the_published_masks(prolog: Script) -> None:
    published = "0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,0xfe0000000000"  # facts of LUMI
    found = [tried(step(prolog, 8, task)) for task in range(8)]
    assert [mask_of(parse_number_list(cpus or "")) for cpus in found] == published.split(",")


@pytest.mark.parametrize("tasks", [1, 2, 4, 8, 16])
def test_both_threads_are_of_another_table(prolog: Script, tasks: int) -> None:
    assert [tried(step(prolog, tasks, task, SLURM_THREADS_PER_CORE="2")) for task in range(tasks)] == golden(tasks, 2)


@pytest.mark.parametrize(
    ("changes", "threads"),
    [
        ({"SLURM_HINT": "multithread"}, 2),
        ({"SLURM_CPUS_PER_TASK": "14"}, 2),
        ({"SLURM_CPUS_PER_TASK": "7"}, 1),
        ({"SLURM_HINT": "nomultithread", "SLURM_THREADS_PER_CORE": "2"}, 1),
        ({"SLURM_HINT": "nomultithread", "SLURM_CPUS_PER_TASK": "14"}, None),
        ({"SLURM_CPUS_PER_TASK": "16"}, None),
    ],
)
def test_both_threads_where_that_is_said_or_the_cores_are_too_few(
    prolog: Script, changes: dict[str, str], threads: int | None
) -> None:
    ran = step(prolog, 8, 0, **changes)
    assert tried(ran) == (golden(8, threads)[0] if threads else None)
    assert threads or reason(ran).startswith("it would have fewer CPUs than the ")


def test_the_count_of_tasks_is_that_of_this_node(prolog: Script) -> None:
    assert tried(step(prolog, 0, 0, SLURM_GTIDS="16,17,18,19", SLURM_STEP_TASKS_PER_NODE="8(x2),4")) == golden(4, 1)[0]


@pytest.mark.parametrize("cpus", ["0-127", "1-7,9-15,17-23,25-31,33-39,41-47,49-55,57-63"])
def test_a_cgroup_with_all_cpus_is_a_whole_node(prolog: Script, tmp_path: Path, cpus: str) -> None:
    grant(tmp_path, cpus)
    assert tried(step(prolog, 8, 4, SLURM_JOB_PARTITION="small-g", SLURM_CPUS_ON_NODE="2")) == "1-7"


# ---- what the user has bound


@pytest.mark.parametrize(
    "binding",
    ["quiet,map_cpu:0,1", "quiet,mask_cpu:FE,FF", "verbose,mask_cpu:ff", "quiet,rank", "mask_ldom:0x1", "rank_ldom"],
)
def test_the_users_binding_stays(prolog: Script, binding: str) -> None:
    ran = step(prolog, 8, 0, SLURM_CPU_BIND=binding)
    assert (reason(ran), ran.unsets) == ("the binding is yours", [])


def test_a_binding_that_the_cli_filter_has_marked_stays(prolog: Script) -> None:
    ran = step(prolog, 8, 0, LUMISITE_CPU_BIND="user")
    # A step inside this one has not been marked.
    assert (reason(ran), ran.unsets) == ("the binding is yours", ["LUMISITE_CPU_BIND"])
    assert reason(step(prolog, 8, 0, LUMISITE_CPU_BIND="off")) == "the binding is yours"


@pytest.mark.parametrize("binding", ["quiet,none", "quiet,mask_cpu:0x1,0x2", "quiet", "", None])
def test_slurms_own_binding_or_none_gives_way(prolog: Script, binding: str | None) -> None:
    """srun in the step would read SLURM_CPU_BIND, and list the masks without 0x, as those of a user."""
    ran = step(prolog, 8, 4, SLURM_CPU_BIND=binding)
    assert tried(ran) == "1-7"
    inherited = {"SLURM_CPU_BIND", "SLURM_CPU_BIND_LIST", "SLURM_CPU_BIND_TYPE", "SLURM_CPU_BIND_VERBOSE"}
    assert set(ran.unsets) == (inherited if "0x" in (binding or "") else set())


# ---- part of a node


@pytest.mark.parametrize("version", [1, 2])
def test_a_part_of_a_node_gets_the_granted_cpus_near_the_granted_gpu(
    prolog: Script, tmp_path: Path, version: int
) -> None:
    grant(tmp_path, "1-7,49-55,65-71,113-119", version=version)
    part = {"SLURM_JOB_PARTITION": "small-g", "SLURM_STEP_GPUS": "0,4", "SLURM_CPUS_ON_NODE": "28"}
    assert tried(step(prolog, 2, 0, **part)) == "49,50,51,52,53,54,55"
    assert tried(step(prolog, 2, 1, **part)) == "1,2,3,4,5,6,7"
    assert tried(step(prolog, 2, 1, SLURM_HINT="multithread", **part)) == "1,2,3,4,5,6,7,65,66,67,68,69,70,71"


def test_a_part_of_a_node_never_gets_a_cpu_outside_its_cpuset(prolog: Script, tmp_path: Path) -> None:
    grant(tmp_path, "2-4,17-18,50,60")
    part = {"SLURM_STEP_GPUS": "0,4", "SLURM_CPUS_ON_NODE": "112"}
    assert tried(step(prolog, 2, 0, **part)) == "50"
    assert tried(step(prolog, 2, 1, **part)) == "2,3,4"
    assert tried(step(prolog, 1, 0, **{**part, "SLURM_STEP_GPUS": None})) == "2,3,4,17,18,50,60"
    others = {**part, "SLURM_STEP_GPUS": "5,2"}
    assert reason(step(prolog, 2, 0, **others)) == "none of the granted CPUs is near GPU 5 and for tasks"
    assert reason(step(prolog, 2, 1, SLURM_CPUS_PER_TASK="3", **others)).startswith("it would have fewer CPUs than")
    assert "do not match" in reason(step(prolog, 2, 0, SLURM_STEP_GPUS="4,5,6"))


def test_a_part_of_a_node_that_no_cgroup_tells_gets_no_mask(prolog: Script) -> None:
    for partition, cpus in (("small-g", "14"), ("small-g", "111"), ("standard-g", "55")):
        ran = step(prolog, 8, 0, SLURM_JOB_PARTITION=partition, SLURM_CPUS_ON_NODE=cpus)
        assert "no cgroup" in reason(ran)
    assert tried(step(prolog, 8, 4, SLURM_JOB_PARTITION="small-g", SLURM_CPUS_ON_NODE="112")) == "1-7"


# ---- GPUs


def test_fewer_gpus_than_the_node_has_are_followed(prolog: Script) -> None:
    assert [tried(step(prolog, 4, task, SLURM_STEP_GPUS="0-3")) for task in range(4)] == golden(8, 1)[:4]
    assert "do not match" in reason(step(prolog, 4, 0, SLURM_STEP_GPUS="0,1"))


@pytest.mark.parametrize("binding", ["gres/gpu:map:4,5,2,3,6,7,0,1", "gres/gpu:per_task:1", "gres/gpu:closest"])
def test_the_one_gpu_that_slurm_gave_a_task_is_followed(prolog: Script, binding: str) -> None:
    """As Slurm 24.11 has it: each task has its own GPU in SLURM_STEP_GPUS."""
    assert tried(step(prolog, 4, 2, SLURM_TRES_BIND=binding, SLURM_STEP_GPUS="6")) == golden(8, 1)[6]


@pytest.mark.parametrize("gpus", [None, "0-7"])
@pytest.mark.parametrize("binding", ["closest", "gres/gpu:single:1", "map:0,1,2,3,4,5,6,7"])
def test_a_gpu_binding_that_hides_which_gpu_it_is_means_no_mask(prolog: Script, binding: str, gpus: str | None) -> None:
    assert "which GPU" in reason(step(prolog, 8, 0, SLURM_GPU_BIND=binding, SLURM_STEP_GPUS=gpus))


# ---- what is not known


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"SLURM_JOB_PARTITION": "lumid"}, "partition lumid is not described"),
        ({"SLURM_JOB_PARTITION": None}, "partition  is not described"),
        ({"SLURM_TASK_PID": None}, "no process id"),
        ({"SLURM_TASK_PID": "1; reboot"}, "no process id"),
        ({"SLURM_GTIDS": None}, "how many tasks"),
        ({"SLURM_GTIDS": "16,17", "SLURM_LOCALID": "2", "SLURM_PROCID": "2"}, "how many tasks"),
        ({"SLURM_GTIDS": "0,1,2"}, "the site has no masks for 3 tasks on a lumi-g node"),
    ],
)
def test_what_is_not_known_means_no_mask(prolog: Script, changes: dict[str, str | None], why: str) -> None:
    assert why in reason(step(prolog, 8, 0, **changes))


#: Nodes of `standard-g` by what differs: whether their number of GPUs is that of the kind.
NODES = {
    "a GPU gone": ("lumi-g", f"{DRIVER}/amdgpu/0000:d1", False),
    "no driver": ("lumi-g", f"{DRIVER}/amdgpu", False),
    "no GPUs": ("lumi-c", "none", False),
    "a GPU of another vendor": ("lumi-g", "none", True),
    "other CPUs": ("lumi-g", "/sys/devices/system/cpu", True),
}


@pytest.mark.parametrize("case", NODES)
def test_a_node_with_another_number_of_gpus_gets_no_mask_and_says_so(prolog: Script, tmp_path: Path, case: str) -> None:
    kind, gone, is_of_kind = NODES[case]
    files = {path: text for path, text in kernel_files(SITE, kind).items() if not path.startswith(gone)}
    be_node(tmp_path, {**files, **({f"{DRIVER}/nvidia/0000:01:00.0": ""} if "vendor" in case else {})})
    ran = step(prolog, 8, 4)
    assert tried(ran) == ("1-7" if is_of_kind else None)
    assert is_of_kind or reason(ran).startswith("this node is not a lumi-g node as others of partition standard-g")
    assert ran.exports["NCCL_SOCKET_IFNAME"]  # all nodes of the partition have GPUs


# ---- on real cores


@pytest.fixture
def task() -> Iterator[subprocess.Popen[bytes]]:
    """A process of ours that stands for a task, bound to one core as Slurm does without -c."""
    with subprocess.Popen(["sleep", "60"]) as process:
        os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
        yield process
        process.kill()


def test_the_mask_reaches_the_task(shell: str, tmp_path: Path, task: subprocess.Popen[bytes]) -> None:
    mine = sorted(os.sched_getaffinity(0))
    if len(mine) < 2:
        pytest.skip("this machine gives one core, on which no binding shows")
    cpus = f"{mine[0]},{mine[1]}"
    loaded = load_text(site_text(("{cores: 0-1, numa: 0}", f"{{cores: '{cpus}', numa: 0}}")))
    prolog = Script(tuple(shell_command(shell, tmp_path)), lay_out(tmp_path, render_files(loaded)) / "task_prolog")
    be_node(tmp_path, kernel_files(loaded.site, "twin"))
    whole = {"SLURM_CPUS_ON_NODE": "2", "SLURM_GTIDS": "0", "SLURM_LOCALID": "0"}
    ran = prolog.step(SLURM_TASK_PID=str(task.pid), LUMISITE_VERBOSE="all", **whole)
    assert (ran.status, ran.stderr) == (0, "")
    assert os.sched_getaffinity(task.pid) == set(mine[:2]), ran.prints[-3:]
