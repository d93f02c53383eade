"""What the prolog takes a node for: by its partition and its number of GPUs, and no mask where they do not agree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lumisite.machine.host import DiskTree
from lumisite.machine.live import read_facts
from lumisite.site.kinds import fingerprint_of
from lumisite.vendors import drivers_of
from tests.support.kernels import CPU, DOMAIN, DRIVER, be_node, kernel_files
from tests.support.prologs import SHELLS, Script, lay_out, lumi_like, lumi_like_files, shell_command
from tests.unit.render.test_prolog_cpus import reason, step, tried

SITE = lumi_like().site


def node(kind: str) -> dict[str, str]:
    return kernel_files(SITE, kind)


@pytest.fixture(params=SHELLS)
def prolog(request: pytest.FixtureRequest, tmp_path: Path) -> Script:
    return Script(tuple(shell_command(request.param, tmp_path)), lay_out(tmp_path, lumi_like_files()) / "task_prolog")


def changed(kind: str, *gone: str, cpu: str = "", numa: str = "") -> dict[str, str]:
    """Return the files of a node of a kind without some, by the beginning of their paths, or with other CPUs or domains."""
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


@pytest.mark.parametrize("case", OTHERS)
def test_a_node_with_another_number_of_gpus_gets_no_mask_and_says_so(prolog: Script, tmp_path: Path, case: str) -> None:
    be_node(tmp_path, OTHERS[case][0]())
    ran = step(prolog, 8, 3)
    assert tried(ran) is None
    assert reason(ran).startswith("this node is not a lumi-g node as others of partition standard-g")
    assert ran.exports["NCCL_SOCKET_IFNAME"]  # all nodes of the partition have GPUs
    assert not any("is not a" in line for line in step(prolog, 8, 3, LUMISITE_VERBOSE=None).prints)


@pytest.mark.parametrize("case", LIKE)
def test_a_node_with_as_many_gpus_is_taken_for_the_kind(prolog: Script, tmp_path: Path, case: str) -> None:
    be_node(tmp_path, LIKE[case][0]())
    assert tried(step(prolog, 8, 4)) == "1-7"


@pytest.mark.parametrize("case", [*OTHERS, *LIKE])
def test_check_host_compares_the_rest(tmp_path: Path, case: str) -> None:
    kernel, differing = (OTHERS | LIKE)[case]
    be_node(tmp_path, kernel())
    seen = read_facts(DiskTree(str(tmp_path)), drivers_of(SITE))
    assert "; ".join(fingerprint_of(SITE, "lumi-g").differences(seen)) == differing


def test_gpus_of_a_vendor_that_the_site_does_not_have_do_not_count(prolog: Script, tmp_path: Path) -> None:
    be_node(tmp_path, {**node("lumi-g"), f"{DRIVER}/nvidia/0000:01:00.0": ""})
    assert tried(step(prolog, 8, 4)) == "1-7"


def test_a_kind_without_gpus_is_known_by_that(prolog: Script, tmp_path: Path) -> None:
    for kernel, known in (({}, True), (changed("lumi-c", cpu="0-3\n"), True), (node("lumi-g"), False)):
        be_node(tmp_path, kernel)
        why = reason(step(prolog, 8, 0, SLURM_JOB_PARTITION="standard", SLURM_CPUS_ON_NODE="256"))
        assert why.startswith("this node is not a lumi-c node") is not known
