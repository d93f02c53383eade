"""The prolog's CPU masks: which mask, or none with the reason; and on this machine's own cores, that it takes effect."""

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
from tests.support.kernels import be_node, kernel_files
from tests.support.prologs import SHELLS, STEP, Ran, Script, lay_out, lumi_like_files, render_files, shell_command
from tests.support.sites import load_text, site_text

WHOLE = {"SLURM_STEP_NUM_NODES": "1", "LUMISITE_VERBOSE": "all"}
TOPOLOGY = topology_of("lumi-g", load_site("lumi").site.node_kinds["lumi-g"])


@pytest.fixture(params=SHELLS)
def prolog(request: pytest.FixtureRequest, tmp_path: Path) -> Script:
    """The rendered prolog, with the kernel's files about cgroups in the test's own directory."""
    spank = lay_out(tmp_path, lumi_like_files())
    path = spank / "task_prolog"
    text = path.read_text()
    for kernels, ours in (("/proc/self/cpuset", f"{tmp_path}/cpuset"), ("/sys/fs/cgroup", f"{tmp_path}/cgroup")):
        assert kernels in text
        text = text.replace(kernels, ours)
    path.write_text(text)
    (tmp_path / "cpuset").write_text("/\n")
    return Script(tuple(shell_command(request.param, tmp_path)), path)


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
    assert any("no CPU binding: " in line for line in ran.prints)
    return None


def reason(ran: Ran) -> str:
    return next(line.partition("no CPU binding: ")[2] for line in ran.prints if "no CPU binding: " in line)


def step(prolog: Script, tasks: int, task: int, **changes: str | None) -> Ran:
    local = str(task)
    given = {"SLURM_TASK_PID": str(os.getpid() + 10**8), "SLURM_GTIDS": ",".join(map(str, range(tasks))), **WHOLE}
    return prolog.step(**{**given, "SLURM_LOCALID": local, "SLURM_PROCID": local, **changes})


def golden(tasks: int, threads: int) -> list[str | None]:
    return [answer.cpus for answer in cpu_masks(TOPOLOGY, MaskRequest(tasks, threads))]


def test_eight_tasks_get_the_published_masks(prolog: Script) -> None:
    published = "0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,0xfe0000000000"  # facts of LUMI
    found = [tried(step(prolog, 8, task)) for task in range(8)]
    assert [mask_of(parse_number_list(cpus or "")) for cpus in found] == published.split(",")


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("tasks", [1, 2, 4, 8, 16])
def test_a_whole_node_gets_its_kinds_table(prolog: Script, tasks: int, threads: int) -> None:
    found = [tried(step(prolog, tasks, task, SLURM_THREADS_PER_CORE=str(threads))) for task in range(tasks)]
    assert found == golden(tasks, threads)


def test_both_threads_on_the_hint_or_where_that_many_cpus_were_asked_for(prolog: Script) -> None:
    assert tried(step(prolog, 8, 0, SLURM_HINT="multithread")) == golden(8, 2)[0]
    assert tried(step(prolog, 8, 0, SLURM_CPUS_PER_TASK="14")) == golden(8, 2)[0]
    assert tried(step(prolog, 8, 0, SLURM_CPUS_PER_TASK="7")) == golden(8, 1)[0]
    assert tried(step(prolog, 8, 0, SLURM_HINT="nomultithread", SLURM_THREADS_PER_CORE="2")) == golden(8, 1)[0]


def test_one_thread_of_each_core_is_no_mask_for_two(prolog: Script, tmp_path: Path) -> None:
    grant(tmp_path, "0-63")
    assert tried(step(prolog, 8, 0, SLURM_CPUS_PER_TASK="7")) == golden(8, 1)[0]
    assert tried(step(prolog, 8, 0, SLURM_CPUS_PER_TASK="14")) is None


def test_more_cpus_than_the_mask_has_means_no_mask(prolog: Script) -> None:
    assert "--cpus-per-task" in reason(step(prolog, 8, 0, SLURM_CPUS_PER_TASK="16"))


@pytest.mark.parametrize("tasks", [3, 7, 12, 64])
def test_a_count_without_a_sound_answer_means_no_mask(prolog: Script, tasks: int) -> None:
    assert "no masks for" in reason(step(prolog, tasks, 0))


def test_the_count_is_that_of_this_node(prolog: Script) -> None:
    assert tried(step(prolog, 0, 0, SLURM_GTIDS="16,17,18,19", SLURM_STEP_TASKS_PER_NODE="8(x2),4")) == golden(4, 1)[0]
    assert "not known" in reason(step(prolog, 0, 0, SLURM_GTIDS=""))
    assert "not known" in reason(step(prolog, 0, 4, SLURM_GTIDS="16,17,18,19"))


def test_one_task_has_the_node_and_reads_what_to_pass_to_torchrun(prolog: Script, tmp_path: Path) -> None:
    ran = step(prolog, 1, 0)
    assert tried(ran) == golden(1, 1)[0]


# ---- what the user has bound


@pytest.mark.parametrize(
    "binding",
    ["quiet,map_cpu:0,1", "quiet,mask_cpu:FE,FF", "verbose,mask_cpu:ff", "quiet,rank", "mask_ldom:0x1", "rank_ldom"],
)
def test_the_users_binding_stays(prolog: Script, binding: str) -> None:
    kind, _, values = binding.partition(":")
    assert reason(step(prolog, 8, 0, SLURM_CPU_BIND=binding)) == "the binding is yours"
    by_parts = {"SLURM_CPU_BIND_TYPE": f"{kind.rpartition(',')[2]}:", "SLURM_CPU_BIND_LIST": values or None}
    assert reason(step(prolog, 8, 0, SLURM_CPU_BIND=binding, **by_parts)) == "the binding is yours"


def test_a_binding_that_the_cli_filter_has_marked_stays(prolog: Script) -> None:
    ran = step(prolog, 8, 0, LUMISITE_CPU_BIND="user")
    assert reason(ran) == "the binding is yours"
    assert ran.unsets == ["LUMISITE_CPU_BIND"]  # a step inside this one has not been marked


@pytest.mark.parametrize("binding", ["quiet,none", "quiet,mask_cpu:0x1,0x2", "quiet", "", None])
def test_slurms_own_binding_or_none_gives_way(prolog: Script, binding: str | None) -> None:
    assert tried(step(prolog, 8, 4, SLURM_CPU_BIND=binding)) == "1-7"


def test_a_step_inside_a_step_does_not_inherit_slurms_binding(prolog: Script) -> None:
    """Seen on Slurm 24.11: srun reads SLURM_CPU_BIND, and lists the masks without 0x, as those of a user."""
    names = {"SLURM_CPU_BIND", "SLURM_CPU_BIND_LIST", "SLURM_CPU_BIND_TYPE", "SLURM_CPU_BIND_VERBOSE"}
    assert names <= set(step(prolog, 8, 0, SLURM_CPU_BIND="quiet,mask_cpu:0x00FE,0x0F0A").unsets)
    assert not names & set(step(prolog, 8, 0, SLURM_CPU_BIND="quiet,mask_cpu:FE,F0A").unsets)


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
    grant(tmp_path, "2-4,50,60")
    part = {"SLURM_JOB_PARTITION": "standard-g", "SLURM_STEP_GPUS": "0,4", "SLURM_CPUS_ON_NODE": "112"}
    assert tried(step(prolog, 2, 0, **part)) == "50"
    assert tried(step(prolog, 2, 1, **part)) == "2,3,4"
    assert tried(step(prolog, 1, 0, **{**part, "SLURM_STEP_GPUS": None})) == "2,3,4,50,60"


def test_a_part_of_a_node_without_near_cpus_gets_no_mask(prolog: Script, tmp_path: Path) -> None:
    grant(tmp_path, "17-23")
    part = {"SLURM_JOB_PARTITION": "small-g", "SLURM_STEP_GPUS": "0,2"}
    assert reason(step(prolog, 2, 0, **part)) == "none of the granted CPUs is near GPU 0 and for tasks"
    assert tried(step(prolog, 2, 1, **part)) == "17,18,19,20,21,22,23"


def test_a_part_of_a_node_gets_no_mask_smaller_than_it_asked_for(prolog: Script, tmp_path: Path) -> None:
    grant(tmp_path, "49-51,1-7")
    part = {"SLURM_JOB_PARTITION": "small-g", "SLURM_STEP_GPUS": "0", "SLURM_CPUS_PER_TASK": "10"}
    assert "--cpus-per-task" in reason(step(prolog, 1, 0, **part))


def test_a_part_of_a_node_that_no_cgroup_tells_gets_no_mask(prolog: Script) -> None:
    for cpus in ("14", "56", "64", "111"):
        assert "no cgroup" in reason(step(prolog, 8, 0, SLURM_JOB_PARTITION="small-g", SLURM_CPUS_ON_NODE=cpus))
    assert "no cgroup" in reason(step(prolog, 8, 0, SLURM_CPUS_ON_NODE="55"))


def test_all_cpus_of_a_shared_node_are_a_whole_node(prolog: Script) -> None:
    assert tried(step(prolog, 8, 4, SLURM_JOB_PARTITION="small-g", SLURM_CPUS_ON_NODE="112")) == "1-7"


@pytest.mark.parametrize("cpus", ["0-127", "1-7,9-15,17-23,25-31,33-39,41-47,49-55,57-63"])
def test_a_cgroup_with_all_cpus_is_a_whole_node(prolog: Script, tmp_path: Path, cpus: str) -> None:
    grant(tmp_path, cpus)
    assert tried(step(prolog, 8, 4, SLURM_JOB_PARTITION="small-g", SLURM_CPUS_ON_NODE="2")) == "1-7"


def test_gpus_that_do_not_match_the_tasks_mean_no_mask(prolog: Script, tmp_path: Path) -> None:
    assert "do not match" in reason(step(prolog, 4, 0, SLURM_STEP_GPUS="0,1"))
    grant(tmp_path, "1-15")
    assert "do not match" in reason(step(prolog, 2, 0, SLURM_STEP_GPUS="4,5,6", SLURM_JOB_PARTITION="small-g"))


def test_fewer_gpus_than_the_node_has_are_followed(prolog: Script) -> None:
    found = [tried(step(prolog, 4, task, SLURM_STEP_GPUS="0-3")) for task in range(4)]
    assert found == golden(8, 1)[:4]


# ---- GPU binding


def test_a_gpu_map_is_followed(prolog: Script) -> None:
    order = [4, 5, 2, 3, 6, 7, 0, 1]
    bind = {"SLURM_TRES_BIND": f"gres/gpu:map:{','.join(map(str, order))}"}
    wanted = [golden(8, 1)[gpu] for gpu in order]
    # As Slurm 24.11 has it: each task has its own GPU in SLURM_STEP_GPUS.
    assert [tried(step(prolog, 8, task, SLURM_STEP_GPUS=str(order[task]), **bind)) for task in range(8)] == wanted


@pytest.mark.parametrize("binding", ["gres/gpu:per_task:1", "gres/gpu:single:1", "gres/gpu:closest"])
def test_the_one_gpu_that_slurm_gave_a_task_is_followed(prolog: Script, binding: str) -> None:
    assert tried(step(prolog, 4, 2, SLURM_TRES_BIND=binding, SLURM_STEP_GPUS="6")) == golden(8, 1)[6]


@pytest.mark.parametrize("binding", ["closest", "single:1", "gres/gpu:closest", "per_task:1", "map:0,1,2,3,4,5,6,7"])
def test_a_gpu_binding_that_hides_which_gpu_it_is_means_no_mask(prolog: Script, binding: str) -> None:
    assert "GPU" in reason(step(prolog, 8, 0, SLURM_GPU_BIND=binding)) or "no masks" in reason(
        step(prolog, 8, 0, SLURM_GPU_BIND=binding)
    )


# ---- what is missing


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"SLURM_JOB_PARTITION": "lumid"}, "partition lumid"),
        ({"SLURM_JOB_PARTITION": None}, "partition "),
        ({"SLURM_TASK_PID": None}, "no process id"),
        ({"SLURM_TASK_PID": "1; reboot"}, "no process id"),
        ({"SLURM_GTIDS": None}, "how many tasks"),
    ],
)
def test_what_is_not_known_means_no_mask(prolog: Script, changes: dict[str, str | None], why: str) -> None:
    assert why in reason(step(prolog, 8, 0, **changes))


# ---- on real cores


@pytest.fixture
def task() -> Iterator[subprocess.Popen[bytes]]:
    """A process of ours that stands for a task, bound to one core as Slurm does without -c."""
    with subprocess.Popen(["sleep", "60"]) as process:
        os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
        yield process
        process.kill()


@pytest.mark.parametrize("shell", SHELLS)
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


def test_the_lumi_step_above_is_one_that_gets_a_mask() -> None:
    """The other tests only change it, so it must be whole."""
    assert STEP["SLURM_JOB_PARTITION"] == "standard-g"
