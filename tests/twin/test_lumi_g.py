"""The virtual LUMI-G node: what it is to Slurm, hwloc and lumisite, and the helper's CPU masks on it.

It is booted once, and once more for what two threads per core do. As on LUMI, the first core of each L3 group is reserved (`CpuSpecList`), and a
step's cgroup holds what it was granted. The second node has two threads per core and no cgroups: what Slurm says must do.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass

import pytest

from lumisite.machine.masks import MaskRequest, cpu_masks
from lumisite.machine.topology import topology_of
from lumisite.site.cpu_list import parse_number_list
from lumisite.site.load import load_site
from tests.support.kernels import kernel_files, seen_in
from tests.support.prologs import render_files
from tests.twin import slurm_conf
from tests.twin.fence import SCRIPTS
from tests.twin.fixtures import require_twin
from tests.twin.lumi_g import NODE, GuestRun, lumi_g_all
from tests.twin.process import Result
from tests.twin.roots import DEFAULT_GENERATION

pytestmark = [pytest.mark.measures, pytest.mark.root, pytest.mark.slurm]

PUBLISHED = (
    "0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,0xfe0000000000"  # LUMI's pages
)
THEIRS = "0x2,0x4,0x8,0x10,0x20,0x40,0x80,0x200"
#: The first two tasks have each other's masks.
SWAPPED = ",".join([*reversed(PUBLISHED.split(",")[:2]), *PUBLISHED.split(",")[2:]])
COUNTS = (1, 2, 4, 8, 16)
MODES = ("", "-c7")
TOPOLOGY = topology_of("lumi-g", load_site("lumi").site.node_kinds["lumi-g"])

SRUN = "env LUMISITE_VERBOSE=1 srun --task-prolog=/opt/prolog"
#: One line for each task: its number, its affinity, and the CPUs of its step's cgroup if it has one. The shell reads
#: them itself: in emulation a program costs most by its start.
SHOW = (
    "sh -c 'while read -r name value; do [ $name != Cpus_allowed: ] || mask=$value; done </proc/self/status"
    "; read -r place </proc/self/cpuset; granted=/sys/fs/cgroup$place/cpuset.cpus.effective"
    "; [ ! -e $granted ] || read -r cpus <$granted; echo task $SLURM_LOCALID $mask $cpus'"
)
PART = "salloc --quiet -p small-g -n2 -c20 --gpus=2 env -u SLURM_CPUS_PER_TASK -u SLURM_TRES_PER_TASK"

#: What the node itself is.
NODE_ITSELF = {
    "cpus": "nproc; lscpu",
    "tasks": "srun -n8 --gpus-per-node=8 sh -c 'echo $SLURM_PROCID $(hostname) $(id -un) $ROCR_VISIBLE_DEVICES'",
    "hwloc": "lstopo-no-graphics --of xml /tmp/out/node.xml",
    "end": "echo out; echo err >&2; exit 3",
}
CONFINED = {
    **NODE_ITSELF,
    **{f"mode {mode}": f"{SRUN} -p standard-g -n8 {mode} {SHOW}" for mode in MODES},
    "their masks": f"{SRUN} -p standard-g -n8 --cpu-bind=mask_cpu:{SWAPPED} {SHOW}",
    "their variable": f"SLURM_CPU_BIND=mask_cpu:{THEIRS} {SRUN} -p standard-g -n8 {SHOW}",
    "their taskset": f"{SRUN} -p standard-g -n8 taskset 0x800 {SHOW}",
    "off": f"LUMISITE=off {SRUN} -p standard-g -n8 {SHOW}",
    "inside a step": f"srun -p standard-g -n1 --task-prolog=/opt/prolog {SRUN} --overlap -n8 {SHOW}",
    "two tasks": f"{SRUN} -p standard-g -n2 --cpu-bind=none {SHOW}",
    "gpu map": f"{SRUN} -p standard-g -n8 --gpus-per-node=8 --gpu-bind=map:4,5,2,3,6,7,0,1 {SHOW}",
    "part": f"{PART} {SRUN} -n2 {SHOW}",
    "part -c7": f"{SRUN} -p small-g -n2 -c7 --gpus=2 {SHOW}",
    "part torchrun": f"{SRUN} -p small-g -n1 -c20 --gpus=4 {SHOW}",
}
THREADS = {
    **{name: NODE_ITSELF[name] for name in ("cpus", "hwloc")},
    **{f"count {tasks}": f"{SRUN} -p standard-g -n{tasks} --threads-per-core=2 {SHOW}" for tasks in COUNTS},
    "one thread": f"{SRUN} -p standard-g -n8 --hint=nomultithread {SHOW}",
    "-c14": f"{SRUN} -p standard-g -n8 -c14 {SHOW}",
    "part": f"{SRUN} -p small-g -n8 -c4 {SHOW}",
    "as it is": f"{SRUN.replace('prolog=/opt/prolog', 'prolog=/opt/on-guest')} -p standard-g -n8 --cpu-bind=none {SHOW}",
}


@dataclass(frozen=True)
class Task:
    """What a task was bound to: `mask` as the prolog's table has it, and the CPUs of its cgroup (or none)."""

    mask: str
    granted: frozenset[int]

    @property
    def cpus(self) -> frozenset[int]:
        bits = int(self.mask, 16)
        return frozenset(cpu for cpu in range(bits.bit_length()) if bits >> cpu & 1)


def tasks_of(result: Result) -> list[Task]:
    """Read the lines of `SHOW`, by the number of the task."""
    rows = sorted(re.findall(r"^task (\d+) ([0-9a-f,]+) ?(\S*)$", result.check().stdout, re.MULTILINE), key=by_number)
    return [
        Task(f"0x{int(mask.replace(',', ''), 16):x}", frozenset(parse_number_list(list_))) for _, mask, list_ in rows
    ]


def by_number(row: tuple[str, ...]) -> int:
    return int(row[0])


def masks_of(result: Result) -> list[str]:
    return [task.mask for task in tasks_of(result)]


def golden(tasks: int, threads: int) -> list[str | None]:
    return [answer.mask for answer in cpu_masks(TOPOLOGY, MaskRequest(tasks, threads))]


def helper() -> dict[str, str]:
    """The prolog, and what the kernel of a LUMI-G node says: of second threads and GPUs the guest's says less."""
    kernel = {f"/opt/kernel{path}": text for path, text in kernel_files(load_site("lumi").site, "lumi-g").items()}
    script = render_files(load_site("lumi"), rocm=("6.2",))["spank/task_prolog"]
    return {"/opt/prolog": seen_in("/opt/kernel", script), "/opt/on-guest": script, **kernel}


@pytest.fixture(scope="module")
def confined_run() -> GuestRun:
    """One thread per core, cgroups, reserved cores."""
    require_twin("qemu-system-x86_64", "cpio")
    lines = ("TaskPlugin=task/cgroup,task/affinity",)
    conf = slurm_conf.slurm_conf(DEFAULT_GENERATION, NODE.name, [NODE.name], 64, lines)
    shape = "Sockets=8 CoresPerSocket=8 ThreadsPerCore=1 CpuSpecList=0,8,16,24,32,40,48,56"
    start, mount = (SCRIPTS / "guest_init.sh").read_text(), "mount -t devtmpfs devtmpfs /dev\n"
    assert mount in start
    files = {
        **helper(),
        "/init": start.replace(mount, f"{mount}mount -t cgroup2 cgroup2 /sys/fs/cgroup\n"),
        "/etc/slurm/slurm.conf": conf.replace("CPUs=64", shape),
        "/etc/slurm/cgroup.conf": "CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\nConstrainCores=yes\n",
    }
    return lumi_g_all(tuple(CONFINED.values()), files=files)


@pytest.fixture(scope="module")
def confined(confined_run: GuestRun) -> dict[str, Result]:
    return by_name(CONFINED, confined_run)


@pytest.fixture(scope="module")
def threads_run() -> GuestRun:
    """Two threads per core, and no cgroups."""
    require_twin("qemu-system-x86_64", "cpio")
    return lumi_g_all(tuple(THREADS.values()), threads=2, files=helper())


@pytest.fixture(scope="module")
def threads(threads_run: GuestRun) -> dict[str, Result]:
    return by_name(THREADS, threads_run)


def by_name(commands: dict[str, str], done: GuestRun) -> dict[str, Result]:
    return dict(zip(commands, done.results, strict=True))


def cpus_under_each(kind: str, done: GuestRun) -> list[list[int]]:
    """Give the kernel's CPU numbers below each object of a kind, as hwloc sees them."""
    objects = [part for part in ET.fromstring(done.files["node.xml"]).iter("object") if part.get("type") == kind]
    return [
        [int(unit.attrib["os_index"]) for unit in part.iter("object") if unit.get("type") == "PU"] for part in objects
    ]


def test_it_is_a_node_of_lumi_g(confined: dict[str, Result], confined_run: GuestRun) -> None:
    shown = confined["cpus"].check().stdout
    assert shown.splitlines()[0] == "64"
    domains = re.findall(r"NUMA node(\d) CPU\(s\): +(\S+)", shown)
    assert domains == [("0", "0-15"), ("1", "16-31"), ("2", "32-47"), ("3", "48-63")]
    rows = confined["tasks"].check().stdout.splitlines()
    assert sorted(rows) == [f"{rank} nid005001 lumiuser 0,1,2,3,4,5,6,7" for rank in range(8)]
    groups = cpus_under_each("L3Cache", confined_run)
    assert groups == [list(range(first, first + 8)) for first in range(0, 64, 8)]
    last = confined["end"]
    assert (last.code, last.stdout, last.stderr) == (3, "out\n", "err\n")


@pytest.mark.parametrize("mode", MODES)
def test_eight_tasks_get_the_published_masks(confined: dict[str, Result], mode: str) -> None:
    assert masks_of(confined[f"mode {mode}"]) == PUBLISHED.split(",")


@pytest.mark.parametrize(("name", "theirs"), [("their masks", SWAPPED), ("their variable", THEIRS)])
def test_a_users_masks_survive(confined: dict[str, Result], name: str, theirs: str) -> None:
    assert masks_of(confined[name]) == theirs.split(",")
    assert confined[name].stdout.count("no CPU binding: the binding is yours") == 8


def test_a_users_taskset_survives(confined: dict[str, Result]) -> None:
    assert masks_of(confined["their taskset"]) == ["0x800"] * 8


def test_off_leaves_slurms_own_binding(confined: dict[str, Result]) -> None:
    assert not set(masks_of(confined["off"])) & set(PUBLISHED.split(","))
    assert "lumisite" not in confined["off"].stdout


def test_a_step_inside_a_step_is_not_held_by_the_outer_binding(confined: dict[str, Result]) -> None:
    assert masks_of(confined["inside a step"]) == PUBLISHED.split(",")


def test_another_count_matches_the_table(confined: dict[str, Result]) -> None:
    assert masks_of(confined["two tasks"]) == golden(2, 1)


def test_a_gpu_map_is_followed(confined: dict[str, Result]) -> None:
    assert masks_of(confined["gpu map"]) == [golden(8, 1)[gpu] for gpu in (4, 5, 2, 3, 6, 7, 0, 1)]


@pytest.mark.parametrize("name", [name for name in CONFINED if name.startswith("part")])
def test_a_part_of_a_node_never_gets_a_core_outside_its_cpuset(confined: dict[str, Result], name: str) -> None:
    for task in tasks_of(confined[name]):
        assert task.cpus
        assert task.cpus <= task.granted


def test_a_part_of_a_node_gets_what_was_granted_near_its_gpus(confined: dict[str, Result]) -> None:
    """Without -c a task is bound near its GPU, or not at all where nothing there was granted."""
    result = confined["part"]
    near = [set(answer.pu_os) for answer in cpu_masks(TOPOLOGY, MaskRequest(8, 2))]
    for gpu, task in enumerate(tasks_of(result)):
        wanted = task.granted & near[gpu]
        if wanted:
            assert task.cpus == wanted
        else:
            assert f"none of the granted CPUs is near GPU {gpu} " in result.stdout


def test_the_only_task_of_a_part_gets_all_of_it(confined: dict[str, Result]) -> None:
    (task,) = tasks_of(confined["part torchrun"])
    assert task.cpus == task.granted


def test_two_threads_of_a_core(threads: dict[str, Result], threads_run: GuestRun) -> None:
    assert threads["cpus"].check().stdout.splitlines()[0] == "128"
    # Siblings are neighbours here, unlike on LUMI.
    assert cpus_under_each("Core", threads_run) == [[first, first + 1] for first in range(0, 128, 2)]
    for tasks in COUNTS:
        assert masks_of(threads[f"count {tasks}"]) == golden(tasks, 2)
    assert masks_of(threads["one thread"]) == PUBLISHED.split(",")
    assert masks_of(threads["-c14"]) == golden(8, 2), "as many CPUs as both threads have"
    assert threads["part"].stdout.count("(no cgroup cpuset)") == 8, "what no cgroup tells keeps Slurm's binding"
    # As it is, CPU 64 is in another domain than on LUMI, and it has no GPU with a driver.
    assert set(masks_of(threads["as it is"])) == {f"0x{'f' * 32}"}
    assert threads["as it is"].stdout.count("this node is not a lumi-g node as others of partition standard-g") == 8
