"""The virtual LUMI-G node is one to Slurm and hwloc: 64 cores, 4 NUMA domains, 8 cores under each L3."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from lumisite.errors import ResolveError
from tests.twin.fixtures import require_twin
from tests.twin.lumi_g import GuestRun, lumi_g, lumi_g_all

pytestmark = [pytest.mark.root, pytest.mark.slurm]

PROLOG = """#!/bin/sh
# Two masks as LUMI publishes them, for the first two tasks.
case $SLURM_LOCALID in
    0) taskset -p 0xfe000000000000 "$SLURM_TASK_PID" >/dev/null ;;
    1) taskset -p 0xfe00000000000000 "$SLURM_TASK_PID" >/dev/null ;;
esac
"""

COMMANDS = (
    "nproc; lscpu",
    "srun -n8 sh -c 'echo $SLURM_PROCID $(hostname) $(id -un)'",
    "srun -pstandard-g -n8 --cpu-bind=none --task-prolog=/opt/prolog sh -c 'echo $SLURM_PROCID $(taskset -p $$)'",
    "srun -n8 --gpus-per-node=8 sh -c 'echo $ROCR_VISIBLE_DEVICES'",
    "lstopo-no-graphics --of xml /tmp/out/node.xml",
    "echo out; echo err >&2; exit 3",
)


def boot(threads: int) -> GuestRun:
    require_twin("qemu-system-x86_64", "cpio")
    return lumi_g_all(COMMANDS, threads=threads, files={"/opt/prolog": PROLOG})


@pytest.fixture(scope="module")
def one_thread() -> GuestRun:
    return boot(1)


def test_it_has_64_cpus_in_4_numa_domains(one_thread: GuestRun) -> None:
    shown = one_thread.results[0].check().stdout
    assert shown.splitlines()[0] == "64"
    domains = re.findall(r"NUMA node(\d) CPU\(s\): +(\S+)", shown)
    assert domains == [("0", "0-15"), ("1", "16-31"), ("2", "32-47"), ("3", "48-63")]


def test_its_slurm_runs_eight_tasks_of_the_user(one_thread: GuestRun) -> None:
    rows = one_thread.results[1].check().stdout.splitlines()
    assert sorted(rows) == [f"{rank} nid005001 lumiuser" for rank in range(8)]


def test_a_task_prolog_sets_masks_there(one_thread: GuestRun) -> None:
    rows = dict(row.split(maxsplit=1) for row in one_thread.results[2].check().stdout.splitlines())
    assert rows["0"].endswith("affinity mask: fe000000000000")
    assert rows["1"].endswith("affinity mask: fe00000000000000")
    assert rows["2"].endswith("affinity mask: ffffffffffffffff")


def test_its_tasks_see_eight_gpus(one_thread: GuestRun) -> None:
    assert set(one_thread.results[3].check().stdout.split()) == {"0,1,2,3,4,5,6,7"}


def cpus_under_each(kind: str, done: GuestRun) -> list[list[int]]:
    """Give the kernel's CPU numbers below each object of a kind, as hwloc sees them."""
    objects = [part for part in ET.fromstring(done.files["node.xml"]).iter("object") if part.get("type") == kind]
    return [
        [int(unit.attrib["os_index"]) for unit in part.iter("object") if unit.get("type") == "PU"] for part in objects
    ]


def test_hwloc_sees_eight_cores_under_each_l3(one_thread: GuestRun) -> None:
    groups = cpus_under_each("L3Cache", one_thread)
    assert groups == [list(range(first, first + 8)) for first in range(0, 64, 8)]


def test_exit_code_and_both_outputs_come_back(one_thread: GuestRun) -> None:
    last = one_thread.results[5]
    assert (last.code, last.stdout, last.stderr) == (3, "out\n", "err\n")


def test_two_threads_per_core() -> None:
    done = boot(2)
    assert done.results[0].check().stdout.splitlines()[0] == "128"
    assert re.search(r"Thread\(s\) per core: +2\n", done.results[0].stdout)
    assert len(done.results[1].check().stdout.splitlines()) == 8
    assert cpus_under_each("L3Cache", done) == [list(range(first, first + 16)) for first in range(0, 128, 16)]
    # Siblings are neighbours here, unlike on LUMI.
    assert cpus_under_each("Core", done) == [[first, first + 1] for first in range(0, 128, 2)]


def test_other_numbers_of_threads_are_refused() -> None:
    with pytest.raises(ResolveError, match="should be 1 or 2"):
        lumi_g("true", threads=4)
