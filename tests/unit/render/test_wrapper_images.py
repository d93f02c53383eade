"""The image decides: what the wrapper makes of what is known of the image that runs, and what it never guesses.

That known images get what is decided, by names, plans and locks, is in `test_rank.py` and `tests/golden/test_images.py`.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from lumisite.images.lock import LoadedLock, Lock, LockedImage
from lumisite.render.render import render_tree
from lumisite.render.templates import load_templates
from lumisite.site.load import parse_plan
from lumisite.site.plans import LoadedPlan
from lumisite.site.selection import resolve_selection
from tests.support.prologs import ROOT, lumi_like
from tests.support.wrappers import CPE, LUMI_PYTORCH, RUNTIME_THERE, Call, Wrapper, make

LEVEL, NET, MONITOR = "NCCL_NET_GDR_LEVEL", "NCCL_NET", "FI_MR_CACHE_MONITOR"
SIF = "/appl/local/containers/sif-images"
OLD = f"{SIF}/lumi-pytorch-rocm-6.1.3-python-3.12-pytorch-v2.6.1.sif"
R70 = f"{SIF}/lumi-multitorch-full-u24r70f21m50t210-20260807_115122.sif"
FIRST = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0"}


def said(wrapper: Wrapper, image: str, **changes: str) -> str:
    return wrapper.call("exec", image, "x", LUMISITE_VERBOSE="all", **changes).stderr


def with_known(folder: Path, shell: str, plans: list[LoadedPlan], images: dict[str, LockedImage]) -> Wrapper:
    """Return the wrapper of a site with plans and a lock; the lock's images are files of the test's."""
    loaded = lumi_like(RUNTIME_THERE)
    locked = {f"{ROOT}/{name}.sif": image for name, image in images.items()}
    lock = LoadedLock(Lock("lumi", (), locked), "images.lock.json", json.dumps(sorted(images)).encode())
    selection = resolve_selection(loaded.site, rocm=("6.2", "7.0"), platform=None, cpe=[])
    files = render_tree(loaded, selection, load_templates(), plans, lock)
    return make(folder, shell, {path: file.text for path, file in files.items()})


def test_a_value_of_the_users_stays_and_is_named_whatever_the_image_turns_out_to_be(wrapper: Wrapper) -> None:
    environment = wrapper.call("exec", R70, "x", NCCL_NET_GDR_LEVEL="SYS", NCCL_NET="Socket").environment
    assert (environment[LEVEL], environment[NET]) == ("SYS", "Socket")
    for value, quoted in (("memhooks", "=memhooks"), ("x\x1b[2J", ""), ("", "="), ("x" * 300, "")):
        words = f": {MONITOR}{quoted} not changed: it was set before lumisite ran\n"
        assert words in said(wrapper, R70, **{MONITOR: value})


# ---- links


def set_age(file: Path, seconds: int) -> None:
    """Make a file that is so much newer than now."""
    file.parent.mkdir(exist_ok=True)
    file.touch()
    os.utime(file, (time.time() + seconds,) * 2)


def test_a_link_is_what_it_leads_to(wrapper: Wrapper) -> None:
    """Also one among the folders, for a family whose pattern names a folder, and by a detour."""
    for name, target, family in (
        ("lumi-rocm-rocm-6.1.3.sif", R70, "laif-rocm70"),
        ("mine.sif", OLD, "lumi-pytorch"),
        ("lumi-pytorch-rocm-6.1.3-pytorch-v2.9.sif", "/x/mine.sif", "lumi-pytorch"),
    ):
        set_age(wrapper.folder / "images" / Path(target).name, -1000)
        (wrapper.folder / name).symlink_to(f"images/{Path(target).name}")
        assert f"{name}: family {family}\n" in said(wrapper, str(wrapper.folder / name))
    folder = wrapper.folder / "lumi-multitorch-images"
    folder.mkdir()
    (folder / "it's $(reboot) a.sif").touch()
    (wrapper.folder / "latest").symlink_to(folder.name)
    (wrapper.folder / "again").symlink_to("latest")
    for typed in ("latest", "again/.", "latest/../latest"):
        assert ": family laif-multitorch" in said(wrapper, f"{wrapper.folder}/{typed}/it's $(reboot) a.sif"), typed
    assert f"{wrapper.folder}/a.sif: family unknown" in said(wrapper, f"{folder}/../a.sif")


def test_a_link_that_leads_nowhere_or_round_stops_nothing(wrapper: Wrapper) -> None:
    links = [f"{wrapper.folder}/{name}" for name in ("broken", "round")]
    for link, target in zip(links, ("nowhere/at/all", "round"), strict=True):
        Path(link).symlink_to(target)
    for typed in (
        *links,
        "nowhere/../a.sif",
        "latest/gone/a.sif",
        "docker://latest/a.sif",
        "a//a.sif",
        "//",
        "..",
        ".",
    ):
        call = wrapper.call("exec", typed, "x")
        assert (call.arguments[1], call.stderr) == (typed, "")


# ---- images that somebody has read

PLUGIN = {"rocm": "6.1.3", "ofi_plugin": "1.4.0"}
OWN = "/opt/libfabric/lib/libfabric.so.1"


def test_what_was_read_counts_until_the_image_is_written_anew(shell: str, tmp_path: Path) -> None:
    sets_it = LockedImage(family="cotainr", versions=PLUGIN, sets={"NCCL_CROSS_NIC": "0"})
    wrapper = with_known(tmp_path, shell, [], {"mine": sets_it, "ten": LockedImage(versions={"rocm": "10.0.0"})})
    set_age(tmp_path / "mine.sif", -1000)
    (tmp_path / "alias.sif").symlink_to("mine.sif")
    ours = {"NCCL_CROSS_NIC": "1", "LUMISITE_EXPORTS": ";NCCL_CROSS_NIC=1;"}

    def found(**changes: str) -> list[str | None]:
        environment = wrapper.call("exec", f"{tmp_path}/alias.sif", "x", **{**ours, **changes}).environment
        return [environment.get(name) for name in (LEVEL, "NCCL_CROSS_NIC")]

    assert found() == ["PHB", None]
    assert found(NCCL_CROSS_NIC="2")[1] == "2", "the user's"
    set_age(tmp_path / "mine.sif", 1000)
    assert found() == [None, "1"]
    assert ", ROCm 10.0\n" in said(wrapper, f"{tmp_path}/ten.sif")


def test_an_image_whose_libfabric_is_gone_or_too_old_is_named_once_on_a_node(shell: str, tmp_path: Path) -> None:
    """The platform of the description has another libfabric; the node itself has the last word."""
    folder = f"{tmp_path}/opt/cray/libfabric/9.9/lib64"
    gone, fine, old = (f"{tmp_path}/{name}.sif" for name in ("gone", "fine", "old"))
    too_old = {"needs": "FABRIC_1.7", "has": "FABRIC_1.6"}
    images = {
        "gone": LockedImage(versions=PLUGIN, libfabric_folders=("/opt/x", folder)),
        "fine": LockedImage(versions=PLUGIN, libfabric=OWN),
        "old": LockedImage(versions=PLUGIN, libfabric=OWN, libfabric_versions=too_old),
    }
    wrapper = with_known(tmp_path, shell, [], images)

    def warned(image: str = gone, **changes: str | None) -> str:
        return wrapper.call("exec", image, "x", **{"SLURM_LOCALID": "0", "SLURMD_NODENAME": "n7", **changes}).stderr

    without = "starts without the fast network: its plugin"
    assert warned() == f"lumisite: {gone} {without} looks for {folder}/libfabric.so.1, which is not on n7\n"
    reason = f"needs FABRIC_1.7 of libfabric, and {OWN} has up to FABRIC_1.6"
    assert warned(old) == f"lumisite: {old} {without} {reason}\n"
    silent = [warned(fine), warned(SLURM_LOCALID="3"), warned("/x/other.sif"), warned(LUMISITE_DONE=None)]
    for nodes, gpus in (("one", "gpu"), ("several", "cpu")):
        silent.append(warned(LUMISITE_STEP=f"25.03-rocm6.2/{nodes}/{gpus}/p/lumi-g"))
    Path(folder).mkdir(parents=True)
    Path(folder, "libfabric.so.1").touch()
    assert {*silent, warned()} == {""}


# ---- images with a plan

MINE = "/scratch/me/lumi-pytorch-rocm-6.2.4-python-3.12-pytorch-v2.7.1.sif"
ODD = "/scratch/me/an odd $(reboot) [name].sif"
OWN_IMAGE = "/scratch/me/own-network-3.sif"
IMAGES = f"{ROOT}/images"
HEAD = "plan: 2\nsite: lumi\nplatform: 2026-01\nstacks: {cpe: 25.03, rocm: 6.2.4}\n"
BINDS = f"""\
lines:
  - {{library: libcxi.so.1, decision: bind, source: {ROOT}/libcxi.so.1, target: {ROOT}/libcxi.so.1, by: singularity-CPEbits,
     reason: r, chain: c}}
  - {{library: liba.so.1, decision: bind, source: {ROOT}/opt/cray/liba.so.1, target: /lib64/liba.so.1, reason: r, chain: c}}
  - {{library: libb.so.1, decision: bind, source: {ROOT}/opt/cray/lib b.so.1, target: {ROOT}/opt/cray/lib b.so.1, reason: r,
     chain: c}}
"""
PLANS = {
    "pytorch.yaml": f"{HEAD}family: lumi-pytorch\npaths: ['{MINE}']\n{BINDS}",
    "it's a plan.yaml": f"{HEAD}family: laif-multitorch\npaths: ['*/laif-with-plan.sif']\n{BINDS}",
    "old.yaml": f"{HEAD}family: lumi-pytorch\npaths: ['*/old.sif']\n{BINDS}".replace("2026-01", "2024-08"),
    "own.yaml": f"""\
{HEAD}family: lumi-pytorch
paths: ['*/own-network-*.sif', '/scratch/me/an odd $(reboot) [[]name].sif']
library_path: [/opt/own/lib64]
lines:
  - {{library: libcxi.so.1, decision: skip, without: {ROOT}/libcxi.so.1, reason: r, chain: c}}
  - {{library: liba.so.1, decision: refuse, reason: r, chain: c, accepted: "one node is enough for $(it), it's small"}}
""",
    "aliased.yaml": f"""\
{HEAD}family: lumi-pytorch
paths: ['{IMAGES}/*.sif', '{IMAGES}/planned.sif', '{IMAGES}/alias.sif']
{BINDS}image: {{bytes: 5, digest: 'header:{"0" * 64}', file: {IMAGES}/planned.sif, names: [{IMAGES}/alias.sif]}}
""",
}


@pytest.fixture
def planned(shell: str, tmp_path: Path) -> Wrapper:
    plans = [LoadedPlan(parse_plan(text.encode(), Path(name)), name, text.encode()) for name, text in PLANS.items()]
    wrapper = with_known(tmp_path, shell, plans, {})
    for name in ("liba.so.1", "lib b.so.1"):
        (tmp_path / "opt/cray" / name).touch()
    return wrapper


def plans_binds(wrapper: Wrapper) -> list[str]:
    cray = wrapper.folder / "opt/cray"
    return [f"{cray}/liba.so.1:/lib64/liba.so.1", f"{cray}/lib b.so.1"]


def added(wrapper: Wrapper, call: Call) -> list[str]:
    """Return the binds that the task had not, in their order."""
    return [bind for bind in call.binds if bind not in wrapper.binds.split(",")]


def test_an_image_with_a_plan_gets_its_binds_on_top_of_its_modules(planned: Wrapper) -> None:
    call = planned.call("exec", MINE, "python")
    assert call.binds == [*planned.binds.split(","), *plans_binds(planned)]
    assert call.stderr == ""
    assert "SINGULARITYENV_LD_LIBRARY_PATH" not in call.environment
    for image in (LUMI_PYTORCH, "/scratch/you/mine.sif", "/x/old.sif"):
        assert planned.call("exec", image, "python").binds == planned.binds.split(","), "no plan"
    named = planned.call("exec", MINE, "x", LUMISITE_FAMILY="lumi-pytorch")
    assert added(planned, named) == [], "who names a family gets no plan"
    mine = f"/mine/liba.so.1:/lib64/liba.so.1,{planned.binds}"
    call = planned.call("exec", MINE, "python", SINGULARITY_BINDPATH=mine)
    assert [bind for bind in call.binds if bind.endswith(":/lib64/liba.so.1")] == ["/mine/liba.so.1:/lib64/liba.so.1"]
    call = planned.call("exec", "sub/laif-with-plan.sif", "python")
    assert f"{planned.folder}/opt/cray" not in call.binds, "a plan tells the family before any pattern does"
    assert added(planned, call) == plans_binds(planned)
    verbose = said(planned, MINE)
    assert ": plan pytorch.yaml\n" in verbose
    assert f": with the bind {plans_binds(planned)[0]}\n" in verbose


def test_what_the_image_must_not_have_is_taken_away_and_said_once_in_a_job(planned: Wrapper) -> None:
    call = planned.call("exec", OWN_IMAGE, "x", **FIRST, SINGULARITYENV_LD_LIBRARY_PATH="/mine")
    assert call.binds == [bind for bind in planned.binds.split(",") if not bind.endswith("/libcxi.so.1")]
    assert call.environment["SINGULARITYENV_LD_LIBRARY_PATH"] == "/mine:/opt/own/lib64"
    lack = f"lumisite: {OWN_IMAGE} runs without the host's liba.so.1 here: one node is enough for $(it), it's small\n"
    assert [call.stderr, planned.call("exec", OWN_IMAGE, "x", SLURM_PROCID=None).stderr] == [lack] * 2
    # The same file, but the module's memory does not name it: it was there before.
    call = planned.call("exec", OWN_IMAGE, "python", **{CPE: f"{planned.folder}/opt/cray"})
    assert (f"{planned.folder}/libcxi.so.1" in call.binds, call.stderr) == (True, "")


def test_a_file_that_this_node_lacks_is_said_once_on_the_node(planned: Wrapper) -> None:
    lost = planned.folder / "opt/cray/liba.so.1"
    lost.unlink()
    call = planned.call("exec", MINE, "x", SLURM_LOCALID="0")
    assert call.stderr == f"lumisite: {lost} not found on nid005124: the container starts without it\n"
    assert added(planned, call) == plans_binds(planned)[1:]
    assert planned.call("exec", MINE, "x").stderr == ""


def test_a_path_with_what_a_shell_would_run_is_only_a_path(planned: Wrapper) -> None:
    assert f"{planned.folder}/libcxi.so.1" not in planned.call("exec", ODD, "x").binds
    assert f"{planned.folder}/libcxi.so.1" in planned.call("exec", ODD.replace("[name]", "n"), "x").binds


@pytest.mark.parametrize(
    ("name", "leads_to", "is_newer", "has_plan", "warning"),
    [
        ("alias", "planned.sif", False, True, ""),
        ("planned", "planned.sif", False, True, ""),
        (
            "alias",
            "other.sif",
            False,
            False,
            "is not the file that aliased.yaml was made for, so it gets what its family gets",
        ),
        (
            "alias",
            "planned.sif",
            True,
            True,
            "is newer than the release with its plan aliased.yaml, which may be for another image",
        ),
        ("copy-1", "planned.sif", True, True, ""),  # a pattern fits it, and copies may be newer
    ],
)
def test_a_plan_is_for_the_file_that_it_was_made_for(
    planned: Wrapper, name: str, leads_to: str, is_newer: bool, has_plan: bool, warning: str
) -> None:
    folder = planned.folder / "images"
    for file in ("planned.sif", "other.sif", "copy-1.sif"):
        set_age(folder / file, 1000 if is_newer else -1000)
    (folder / "alias.sif").symlink_to(leads_to)
    image = f"{folder}/{name}.sif"
    call = planned.call("exec", image, "x", **FIRST)
    assert added(planned, call) == (plans_binds(planned) if has_plan else [])
    assert call.stderr == (f"lumisite: {image} {warning}\n" if warning else "")
    assert planned.call("exec", image, "x").stderr == "", "another task says nothing"
