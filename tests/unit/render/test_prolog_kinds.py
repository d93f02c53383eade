"""What the prolog takes a node for: one of its partition's kind if it has as many GPUs, else no mask."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lumisite.machine.host import DiskTree
from lumisite.machine.live import read_facts
from lumisite.site.kinds import fingerprint_of
from lumisite.site.load import LoadedSite
from lumisite.vendors import drivers_of
from tests.support.kernels import CPU, DOMAIN, DRIVER, be_node, kernel_files
from tests.support.prologs import SHELLS, Script, lay_out, lumi_like, render_files, shell_command
from tests.unit.render.test_prolog_cpus import reason, step, tried

SETTINGS = """
  - {name: BY_KIND, value: lumi-g, when: {kind: [lumi-g]}, why: w, source: here}
  - {name: BY_GPUS, value: 'yes', when: {gpus: yes}, why: w, source: here}
"""


@functools.cache
def described() -> LoadedSite:
    return lumi_like(("\nsettings:\n", f"\nsettings:{SETTINGS}"))


@functools.cache
def files() -> dict[str, str]:
    return render_files(described(), rocm=("6.2",))


@functools.cache
def node(kind: str) -> dict[str, str]:
    return kernel_files(described().site, kind)


@pytest.fixture(params=SHELLS)
def prolog(request: pytest.FixtureRequest, tmp_path: Path) -> Script:
    return Script(tuple(shell_command(request.param, tmp_path)), lay_out(tmp_path, files()) / "task_prolog")


def test_settings_go_by_the_nodes_kind(prolog: Script, tmp_path: Path) -> None:
    for kind, partition, by_kind, by_gpus in (
        ("lumi-g", "standard-g", "lumi-g", "yes"),
        ("lumi-c", "standard", None, None),
    ):
        be_node(tmp_path, node(kind))
        found = step(prolog, 1, 0, SLURM_JOB_PARTITION=partition).exports
        assert (found.get("BY_KIND"), found.get("BY_GPUS")) == (by_kind, by_gpus)


def changed(kind: str, *gone: str, cpu: str = "", numa: str = "") -> dict[str, str]:
    """A node of a kind without files, by the beginning of their paths, or with other CPUs or domains."""
    kept = {path: text for path, text in node(kind).items() if not path.startswith(gone or ("no such",))}
    kept |= {f"{CPU}/present": cpu, f"{CPU}/online": cpu} if cpu else {}
    return kept | ({f"{DOMAIN}/has_cpu": numa} if numa else {})


BUSES = "0000:c1:00.0 0000:c6:00.0 0000:c9:00.0 0000:ce:00.0 0000:d1:00.0 0000:d6:00.0 0000:d9:00.0 0000:de:00.0"
#: Nodes with another number of GPUs than those of `standard-g`, and what each has otherwise than LUMI-G.
OTHERS: dict[str, tuple[Callable[[], dict[str, str]], str]] = {
    "a GPU gone": (
        lambda: changed("lumi-g", f"{DRIVER}/amdgpu/0000:d1"),
        f"GPUs 7 amd at {BUSES.replace(' 0000:d1:00.0', '')}, expected 8 amd",
    ),
    "no driver": (lambda: changed("lumi-g", f"{DRIVER}/amdgpu"), "GPUs none, expected 8 amd"),
    "no drivers at all": (lambda: changed("lumi-g", DRIVER), "GPUs none, expected 8 amd"),
    "nothing to read": (
        dict[str, str],
        "CPUs unknown, expected 0-127; NUMA domains unknown, expected 0-3; GPUs none, expected 8 amd",
    ),
}
#: Nodes with as many GPUs, which only `check --host` looks at.
LIKE: dict[str, tuple[Callable[[], dict[str, str]], str]] = {
    "other CPUs": (lambda: changed("lumi-g", cpu="0-255\n"), "CPUs 0-255, expected 0-127"),
    "other domains": (lambda: changed("lumi-g", numa="0-7\n"), "NUMA domains 0-7, expected 0-3"),
    "numbered otherwise": (lambda: changed("lumi-g", f"{DOMAIN}/node2/cpu40"), "CPU 40 outside NUMA domain 2"),
    "GPUs at other addresses": (
        lambda: {path.replace("0000:de", "0000:df"): text for path, text in node("lumi-g").items()},
        f"GPUs at {BUSES.replace('de', 'df')}, expected {BUSES.replace('ce', 'cc').replace('de', 'dc')} or {BUSES}",
    ),
}


NO_KIND = "this node is not a lumi-g node as others of partition standard-g"


@pytest.mark.parametrize("case", OTHERS)
def test_a_node_that_is_not_of_its_partitions_kind_gets_nothing_and_says_so(
    prolog: Script, tmp_path: Path, case: str
) -> None:
    be_node(tmp_path, OTHERS[case][0]())
    ran = step(prolog, 8, 3, LUMISITE_GPUS="one", ROCR_VISIBLE_DEVICES="0,1,2,3,4,5,6,7")
    assert tried(ran) is None
    assert reason(ran).startswith(NO_KIND)
    assert not {"ROCR_VISIBLE_DEVICES", "BY_KIND"} & {*ran.exports, *ran.unsets}
    assert ran.exports["BY_GPUS"] == "yes"  # nodes of the partition have GPUs
    quiet = step(prolog, 8, 3, LUMISITE_VERBOSE=None)
    assert not any(NO_KIND in line for line in quiet.prints)


@pytest.mark.parametrize("case", LIKE)
def test_a_node_with_as_many_gpus_is_taken_for_the_kind(prolog: Script, tmp_path: Path, case: str) -> None:
    be_node(tmp_path, LIKE[case][0]())
    assert tried(step(prolog, 8, 4)) == "1-7"


@pytest.mark.parametrize("case", [*OTHERS, *LIKE])
def test_check_host_compares_the_rest(tmp_path: Path, case: str) -> None:
    kernel, differing = (OTHERS | LIKE)[case]
    be_node(tmp_path, kernel())
    site = described().site
    seen = read_facts(DiskTree(str(tmp_path)), drivers_of(site))
    assert "; ".join(fingerprint_of(site, "lumi-g").differences(seen)) == differing


HEALTHY: dict[str, Callable[[], dict[str, str]]] = {
    "some CPUs are offline": lambda: {**node("lumi-g"), f"{CPU}/online": "1-7,9-63,65-127\n"},
    "second threads are switched off, and not described": lambda: {**node("lumi-g"), f"{CPU}/present": "0-255\n"},
    "the addresses of another platform": lambda: {
        path.replace("0000:ce", "0000:cc").replace("0000:de", "0000:dc"): text for path, text in node("lumi-g").items()
    },
    "GPUs of vendors that the site does not have": lambda: {**node("lumi-g"), f"{DRIVER}/nvidia/0000:01:00.0": ""},
}


@pytest.mark.parametrize("case", HEALTHY)
def test_a_node_of_the_kind_is_known_all_the_same(prolog: Script, tmp_path: Path, case: str) -> None:
    be_node(tmp_path, HEALTHY[case]())
    assert tried(step(prolog, 8, 4)) == "1-7"


def test_a_task_with_one_cpu_sees_the_whole_node(prolog: Script) -> None:
    """What the task itself may use, as `nproc` says it, does not count."""
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(mine)})
    try:
        assert tried(step(prolog, 8, 4)) == "1-7"
    finally:
        os.sched_setaffinity(0, mine)


def test_a_kind_without_gpus_is_known_by_that(prolog: Script, tmp_path: Path) -> None:
    for kernel, known in (({}, True), (changed("lumi-c", cpu="0-3\n"), True), (node("lumi-g"), False)):
        be_node(tmp_path, kernel)
        why = reason(step(prolog, 8, 0, SLURM_JOB_PARTITION="standard", SLURM_CPUS_ON_NODE="256"))
        assert why.startswith("this node is not a lumi-c node") is not known


def test_the_users_own_binding_and_undescribed_partitions_are_as_before(prolog: Script, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "sys")
    assert reason(step(prolog, 8, 0, SLURM_JOB_PARTITION="elsewhere")) == "partition other is not described"
