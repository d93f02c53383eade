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


def answer(ran: Ran) -> str:
    """Return the list that went to taskset, which refuses those that this machine has no CPU for; or why there is none."""
    assert (ran.status, ran.stderr) == (0, "")
    text = "\n".join(ran.prints)
    found = re.search(r"(?:CPUs|taskset refused) ([0-9][0-9,-]*)", text) or re.search(r"no CPU binding: (.*)", text)
    assert found, text
    return found[1]


def step(prolog: Script, tasks: int, task: int, **changes: str | None) -> Ran:
    given = {
        "SLURM_STEP_NUM_NODES": "1",
        "LUMISITE_VERBOSE": "1",
        "SLURM_TASK_PID": str(os.getpid() + 10**8),
        "SLURM_GTIDS": ",".join(map(str, range(tasks))),
        **dict.fromkeys(("SLURM_LOCALID", "SLURM_PROCID"), str(task)),
    }
    return prolog.step(**{**given, **changes})


def whole_node(tasks: int, threads: int) -> list[str | None]:
    return [task.cpus for task in cpu_masks(TOPOLOGY, MaskRequest(tasks, threads))]


def test_eight_tasks_get_the_published_masks(prolog: Script) -> None:
    published = "0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,0xfe0000000000"  # facts of LUMI
    found = [answer(step(prolog, 8, task)) for task in range(8)]
    assert [mask_of(parse_number_list(cpus)) for cpus in found] == published.split(",")


@pytest.mark.parametrize("tasks", [1, 8, 16])
def test_both_threads_are_of_another_table(prolog: Script, tasks: int) -> None:
    found = [answer(step(prolog, tasks, task, SLURM_THREADS_PER_CORE="2")) for task in range(0, tasks, 3)]
    assert found == whole_node(tasks, 2)[::3]


ONE, BOTH = (str(whole_node(8, threads)[4]) for threads in (1, 2))
FEWER = "it would have fewer CPUs than the "
HIDDEN = "which GPU a task has is not known under this GPU binding"
NO_CGROUP = "the job has part of a node, and its CPUs could not be determined (no cgroup cpuset)"
UNKNOWN = "how many tasks this node has is not known"
NO_PROCESS = "the task has no process id"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # Both threads of a core where that is said, or the cores are too few.
        ({"SLURM_HINT": "multithread"}, BOTH),
        ({"SLURM_CPUS_PER_TASK": "14"}, BOTH),
        ({"SLURM_CPUS_PER_TASK": "7"}, ONE),
        ({"SLURM_HINT": "nomultithread", "SLURM_THREADS_PER_CORE": "2"}, ONE),
        ({"SLURM_HINT": "nomultithread", "SLURM_CPUS_PER_TASK": "14"}, FEWER),
        ({"SLURM_CPUS_PER_TASK": "16"}, FEWER),
        # The count of tasks is that of this node.
        ({"SLURM_GTIDS": "16,17,18,19,20,21,22,23", "SLURM_STEP_TASKS_PER_NODE": "9,8"}, ONE),
        ({"SLURM_GTIDS": None}, UNKNOWN),
        ({"SLURM_GTIDS": "16,17,18,19"}, UNKNOWN),
        ({"SLURM_GTIDS": "0,1,2,3,4"}, "the site has no masks for 5 tasks on a lumi-g node"),
        # A step inside another has all GPUs, or fewer, or each task its own (as Slurm 24.11 has it).
        ({"SLURM_STEP_GPUS": "0-7"}, ONE),
        ({"SLURM_STEP_GPUS": "0,1"}, "8 tasks do not match the 2 GPUs of the step"),
        ({"SLURM_GTIDS": "0,1,2,3,4", "SLURM_STEP_GPUS": "0-2,5,4"}, ONE),
        *(
            ({"SLURM_TRES_BIND": f"gres/gpu:{binding}", "SLURM_STEP_GPUS": "4"}, ONE)
            for binding in ("map:4,5,2,3,6,7,0,1", "per_task:1", "closest")
        ),
        *(
            ({"SLURM_GPU_BIND": binding, "SLURM_STEP_GPUS": gpus}, HIDDEN)
            for binding in ("closest", "gres/gpu:single:1", "map:0,1,2,3,4,5,6,7")
            for gpus in (None, "0-7")
        ),
        # Part of a node, which no cgroup tells.
        ({"SLURM_JOB_PARTITION": "small-g", "SLURM_CPUS_ON_NODE": "112"}, ONE),
        ({"SLURM_JOB_PARTITION": "small-g", "SLURM_CPUS_ON_NODE": "111"}, NO_CGROUP),
        ({"SLURM_JOB_PARTITION": "standard-g", "SLURM_CPUS_ON_NODE": "56"}, ONE),
        ({"SLURM_JOB_PARTITION": "standard-g", "SLURM_CPUS_ON_NODE": "55"}, NO_CGROUP),
        ({"SLURM_JOB_PARTITION": "lumid"}, "partition lumid is not described"),
        ({"SLURM_JOB_PARTITION": None}, "partition  is not described"),
        ({"SLURM_TASK_PID": None}, NO_PROCESS),
        ({"SLURM_TASK_PID": "1; reboot"}, NO_PROCESS),
    ],
    ids=str,
)
def test_the_fifth_of_eight_tasks(prolog: Script, changes: dict[str, str | None], expected: str) -> None:
    found = answer(step(prolog, 8, 4, **changes))
    assert found.startswith(FEWER) if expected == FEWER else found == expected


# ---- what the user has bound

INHERITED = {"SLURM_CPU_BIND", "SLURM_CPU_BIND_LIST", "SLURM_CPU_BIND_TYPE", "SLURM_CPU_BIND_VERBOSE"}


@pytest.mark.parametrize(
    ("binding", "mark", "unset"),
    [
        *((text, None, set()) for text in ("quiet,map_cpu:0,1", "quiet,mask_cpu:FE,FF", "quiet,rank", "mask_ldom:0x1")),
        ("quiet,mask_cpu:0x1", "off", set()),
        # A step inside this one has not been marked.
        ("quiet,mask_cpu:0x1", "user", {"LUMISITE_CPU_BIND"}),
    ],
)
def test_the_users_binding_stays(prolog: Script, binding: str, mark: str | None, unset: set[str]) -> None:
    ran = step(prolog, 8, 0, SLURM_CPU_BIND=binding, LUMISITE_CPU_BIND=mark)
    assert (answer(ran), set(ran.unsets)) == ("the binding is yours", unset)


@pytest.mark.parametrize("binding", ["quiet,none", "quiet,mask_cpu:0x1,0x2", "quiet", "", None])
def test_slurms_own_binding_or_none_gives_way(prolog: Script, binding: str | None) -> None:
    """srun in the step would read SLURM_CPU_BIND, and list the masks without 0x, as those of a user."""
    ran = step(prolog, 8, 4, SLURM_CPU_BIND=binding)
    assert (answer(ran), set(ran.unsets)) == (ONE, INHERITED if "0x" in (binding or "") else set())


# ---- what the step was granted


@pytest.mark.parametrize("cpus", ["0-127", "1-7,9-15,17-23,25-31,33-39,41-47,49-55,57-63"])
def test_a_cgroup_with_all_cpus_is_a_whole_node(prolog: Script, tmp_path: Path, cpus: str) -> None:
    grant(tmp_path, cpus)
    assert answer(step(prolog, 8, 4, SLURM_JOB_PARTITION="small-g", SLURM_CPUS_ON_NODE="2")) == ONE


@pytest.mark.parametrize("version", [1, 2])
def test_a_part_of_a_node_gets_the_granted_cpus_near_the_granted_gpu(
    prolog: Script, tmp_path: Path, version: int
) -> None:
    grant(tmp_path, "1-7,49-55,65-71,113-119", version=version)
    part = {"SLURM_JOB_PARTITION": "small-g", "SLURM_STEP_GPUS": "0,4", "SLURM_CPUS_ON_NODE": "28"}
    assert answer(step(prolog, 2, 0, **part)) == "49,50,51,52,53,54,55"
    assert answer(step(prolog, 2, 1, **part)) == "1,2,3,4,5,6,7"
    assert answer(step(prolog, 2, 1, SLURM_HINT="multithread", **part)) == "1,2,3,4,5,6,7,65,66,67,68,69,70,71"


def test_a_part_of_a_node_never_gets_a_cpu_outside_its_cpuset(prolog: Script, tmp_path: Path) -> None:
    grant(tmp_path, "2-4,17-18,50,60")
    for tasks, task, gpus, changes, expected in (
        (2, 0, "0,4", {}, "50"),
        (2, 1, "0,4", {}, "2,3,4"),
        (1, 0, None, {}, "2,3,4,17,18,50,60"),
        (2, 0, "5,2", {}, "none of the granted CPUs is near GPU 5 and for tasks"),
        (2, 1, "5,2", {"SLURM_CPUS_PER_TASK": "3"}, f"{FEWER}3 that --cpus-per-task asks for"),
        (2, 0, "4,5,6", {}, "part of a node, and 2 tasks do not match the 3 GPUs of the step"),
    ):
        ran = step(prolog, tasks, task, SLURM_STEP_GPUS=gpus, SLURM_CPUS_ON_NODE="112", **changes)
        assert answer(ran) == expected


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
    misfit = "this node is not a lumi-g node as others of partition standard-g"
    assert answer(ran) == ONE if is_of_kind else answer(ran).startswith(misfit)
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
