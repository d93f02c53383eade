"""The prolog on a partition with nodes of several kinds: what it takes the node for, and no mask where it is none."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lumisite.machine.host import DiskTree
from lumisite.machine.live import read_facts
from lumisite.machine.masks import MaskRequest, cpu_masks
from lumisite.machine.topology import topology_of
from lumisite.site.kinds import fingerprint_of
from lumisite.site.load import LoadedSite
from lumisite.vendors import drivers_of
from tests.support.kernels import CPU, DOMAIN, DRIVER, be_node, kernel_files
from tests.support.prologs import (
    ROOT,
    SHELLS,
    Ran,
    Script,
    lay_out,
    lumi_like,
    render_files,
    shell_command,
    write_script,
)
from tests.support.wrappers import LUMI_PYTORCH, RUNTIME, Wrapper
from tests.unit.render.test_prolog_cpus import reason, step, tried

#: 40 cores, four GPUs, and CPUs in another order than LUMI-G has them.
WIDE = """
  wide:
    memory_mib: 1000
    l3:
      - {cores: 0-9, siblings: 40-49, numa: 0}
      - {cores: 10-19, siblings: 50-59, numa: 0}
      - {cores: 20-29, siblings: 60-69, numa: 1}
      - {cores: 30-39, siblings: 70-79, numa: 1}
    gpus: [{l3: 0, numa: 0}, {l3: 1, numa: 0}, {l3: 2, numa: 1}, {l3: 3, numa: 1}]
    source: here
  # As many CPUs and domains, but each core in another domain than the one before.
  striped:
    memory_mib: 1000
    l3:
      - {cores: '0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30,32,34,36,38,40,42,44,46,48,50,52,54,56,58,60,62,64,66,68,70,72,74,76,78', numa: 0}
      - {cores: '1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31,33,35,37,39,41,43,45,47,49,51,53,55,57,59,61,63,65,67,69,71,73,75,77,79', numa: 1}
    gpus: [{l3: 0, numa: 0}, {l3: 1, numa: 1}]
    source: here
"""
SETTINGS = """
  - {name: BY_KIND, value: wide, when: {kind: [wide]}, why: w, source: here}
  - {name: BY_KIND, value: lumi-g, when: {kind: [lumi-g]}, why: w, source: here}
  - {name: BY_GPUS, value: 'yes', when: {gpus: yes}, why: w, source: here}
"""
MIXED = "  mixed: {node_kind: [lumi-g, wide, striped, lumi-c], whole_nodes: yes, source: here}\n"


@functools.cache
def mixed() -> LoadedSite:
    return lumi_like(
        ("\nnode_kinds:", f"\nnode_kinds:{WIDE.rstrip()}"),
        ("\npartitions:\n", f"\npartitions:\n{MIXED}"),
        ("\nsettings:\n", f"\nsettings:{SETTINGS}"),
    )


@functools.cache
def files() -> dict[str, str]:
    return render_files(mixed(), rocm=("6.2",))


@functools.cache
def node(kind: str) -> dict[str, str]:
    return kernel_files(mixed().site, kind)


@pytest.fixture(params=SHELLS)
def prolog(request: pytest.FixtureRequest, tmp_path: Path) -> Script:
    return Script(tuple(shell_command(request.param, tmp_path)), lay_out(tmp_path, files()) / "task_prolog")


def on_mixed(prolog: Script, task: int, tasks: int, **more: str | None) -> Ran:
    whole = {"SLURM_JOB_PARTITION": "mixed", "SLURM_CPUS_ON_NODE": "256"}
    return step(prolog, tasks, task, **{**whole, **more})


def masks(kind: str, tasks: int) -> list[str | None]:
    return [one.cpus for one in cpu_masks(topology_of(kind, mixed().site.node_kinds[kind]), MaskRequest(tasks))]


@pytest.mark.parametrize(("kind", "gpus"), [("lumi-g", 8), ("wide", 4), ("striped", 2)])
def test_each_task_has_the_mask_of_its_nodes_kind(prolog: Script, tmp_path: Path, kind: str, gpus: int) -> None:
    be_node(tmp_path, node(kind))
    assert [tried(on_mixed(prolog, task, gpus)) for task in range(gpus)] == masks(kind, gpus)


def test_settings_go_by_the_nodes_kind(prolog: Script, tmp_path: Path) -> None:
    for kind, by_kind, by_gpus in (("lumi-g", "lumi-g", "yes"), ("wide", "wide", "yes"), ("lumi-c", None, None)):
        be_node(tmp_path, node(kind))
        found = on_mixed(prolog, 0, 1).exports
        assert (found.get("BY_KIND"), found.get("BY_GPUS")) == (by_kind, by_gpus)


def test_the_wrapper_goes_by_the_nodes_kind_too(tmp_path: Path) -> None:
    """What depends on the image as well is left to the wrapper, which has the kind from the prolog."""
    loaded = lumi_like(
        ("\nnode_kinds:", f"\nnode_kinds:{WIDE.rstrip()}"),
        ("\npartitions:\n", f"\npartitions:\n{MIXED}"),
        ("\nsettings:\n", f"\nsettings:{SETTINGS.replace('when: {', 'when: {family: [lumi-pytorch], ')}"),
        ("executable: /usr/bin/singularity", f"executable: {ROOT}/runtime/singularity"),
    )
    lay_out(tmp_path, render_files(loaded, rocm=("6.2",)))
    wrapper = Wrapper(tuple(shell_command("dash", tmp_path)), tmp_path)
    write_script(wrapper.runtime, RUNTIME)
    for kind, gpus, by_kind, by_gpus in (("lumi-g", "gpu", "lumi-g", "yes"), ("lumi-c", "cpu", None, None)):
        step = f"25.03-rocm6.2/one/{gpus}/mixed/{kind}"
        found = wrapper.call("exec", LUMI_PYTORCH, "x", LUMISITE_STEP=step).environment
        assert (found.get("BY_KIND"), found.get("BY_GPUS")) == (by_kind, by_gpus)


def test_one_gpu_for_each_task_goes_by_the_nodes_kind(prolog: Script, tmp_path: Path) -> None:
    for kind, told in (("lumi-g", "4"), ("wide", None)):
        be_node(tmp_path, node(kind))
        assert on_mixed(prolog, 4, 8, LUMISITE_GPUS="one").exports.get("ROCR_VISIBLE_DEVICES") == told


def changed(kind: str, *gone: str, cpu: str = "", numa: str = "") -> dict[str, str]:
    """A node of a kind without files, by the beginning of their paths, or with other CPUs or domains."""
    kept = {path: text for path, text in node(kind).items() if not path.startswith(gone or ("no such",))}
    kept |= {f"{CPU}/present": cpu, f"{CPU}/online": cpu} if cpu else {}
    return kept | ({f"{DOMAIN}/has_cpu": numa} if numa else {})


BUSES = "0000:c1:00.0 0000:c6:00.0 0000:c9:00.0 0000:ce:00.0 0000:d1:00.0 0000:d6:00.0 0000:d9:00.0 0000:de:00.0"
WIDES = "0000:00:00.0 0000:04:00.0 0000:08:00.0 0000:0c:00.0"
#: Nodes with another number of GPUs than those of `standard-g`, and what each has otherwise than LUMI-G.
OTHERS: dict[str, tuple[Callable[[], dict[str, str]], str]] = {
    "another kind": (
        lambda: node("wide"),
        f"CPUs 0-79, expected 0-127; NUMA domains 0-1, expected 0-3; GPUs 4 amd at {WIDES}, expected 8 amd",
    ),
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


NO_KIND = "this node is of no node kind of partition"


@pytest.mark.parametrize("case", OTHERS)
def test_a_node_that_is_not_of_its_partitions_kind_gets_nothing_and_says_so(
    prolog: Script, tmp_path: Path, case: str
) -> None:
    be_node(tmp_path, OTHERS[case][0]())
    ran = step(prolog, 8, 3, LUMISITE_GPUS="one", ROCR_VISIBLE_DEVICES="0,1,2,3,4,5,6,7")
    assert tried(ran) is None
    assert reason(ran).startswith(f"{NO_KIND} standard-g (")
    assert not {"ROCR_VISIBLE_DEVICES", "BY_KIND"} & {*ran.exports, *ran.unsets}
    assert ran.exports["BY_GPUS"] == "yes"  # all kinds of the partition have GPUs
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
    site = mixed().site
    seen = read_facts(DiskTree(str(tmp_path)), drivers_of(site))
    assert "; ".join(fingerprint_of(site, "lumi-g").differences(seen)) == differing


def test_a_node_that_may_be_any_of_several_gets_no_mask(prolog: Script, tmp_path: Path) -> None:
    text = prolog.path.read_text()
    assert "kind striped 2 '2 amd'" in text
    prolog.path.write_text(text.replace("kind striped 2 '2 amd'", "kind striped 4 '4 amd'"))
    be_node(tmp_path, node("wide"))
    assert reason(on_mixed(prolog, 0, 4)) == "this node may be of any of these node kinds: wide striped"


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
        assert why.startswith(f"{NO_KIND} standard (") is not known


def test_the_users_own_binding_and_undescribed_partitions_are_as_before(prolog: Script, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "sys")
    assert reason(step(prolog, 8, 0, SLURM_JOB_PARTITION="elsewhere")) == "partition other is not described"
