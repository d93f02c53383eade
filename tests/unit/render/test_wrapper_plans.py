"""The wrapper with reviewed plans compiled in, run for real under each shell."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lumisite.render.render import render_tree
from lumisite.render.templates import load_templates
from lumisite.site.load import parse_plan
from lumisite.site.plans import LoadedPlan
from lumisite.site.selection import resolve_selection
from tests.support.prologs import ROOT, lay_out, lumi_like, shell_command, write_script
from tests.support.wrappers import CPE, LUMI_PYTORCH, RUNTIME, Call, Wrapper

MINE = "/scratch/me/lumi-pytorch-rocm-6.2.4-python-3.12-pytorch-v2.7.1.sif"
ODD = "/scratch/me/an odd $(reboot) [name].sif"

PLAN = f"""\
plan: 2
site: lumi
platform: 2026-01
stacks: {{cpe: 25.03, rocm: 6.2.4}}
family: FAMILY
paths: PATHS
lines:
  - {{library: libcxi.so.1, decision: bind, source: {ROOT}/libcxi.so.1, target: {ROOT}/libcxi.so.1, by: singularity-CPEbits,
     reason: r, chain: c}}
  - {{library: liba.so.1, decision: bind, source: {ROOT}/opt/cray/liba.so.1, target: /lib64/liba.so.1, reason: r, chain: c}}
  - {{library: libb.so.1, decision: bind, source: {ROOT}/opt/cray/lib b.so.1, target: {ROOT}/opt/cray/lib b.so.1, reason: r,
     chain: c}}
"""
OWN = f"""\
plan: 2
site: lumi
platform: 2026-01
stacks: {{cpe: 25.03, rocm: 6.2.4}}
family: lumi-pytorch
paths: ['*/own-network-*.sif', '/scratch/me/an odd $(reboot) [[]name].sif']
library_path: [/opt/own/lib64]
lines:
  - {{library: libcxi.so.1, decision: skip, without: {ROOT}/libcxi.so.1, reason: r, chain: c}}
  - {{library: liba.so.1, decision: refuse, reason: r, chain: c, accepted: "one node is enough for $(it), it's small"}}
"""
OWN_IMAGE = "/scratch/me/own-network-3.sif"
IMAGES = f"{ROOT}/images"
ALIASED = f"""\
image: {{bytes: 5, digest: 'header:{"0" * 64}', file: {IMAGES}/planned.sif, names: [{IMAGES}/alias.sif]}}
"""
FIRST = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0"}


def loaded(text: str, file: str, **changes: str) -> LoadedPlan:
    for old, new in changes.items():
        text = text.replace(old, new)
    return LoadedPlan(parse_plan(text.encode(), Path(file)), file, text.encode())


def files() -> dict[str, str]:
    site = lumi_like(("executable: /usr/bin/singularity", f"executable: {ROOT}/runtime/singularity"))
    plans = (
        loaded(PLAN, "pytorch.yaml", FAMILY="lumi-pytorch", PATHS=f"['{MINE}']"),
        loaded(PLAN, "it's a plan.yaml", FAMILY="laif-multitorch", PATHS="['*/laif-with-plan.sif']"),
        loaded(OWN, "own.yaml"),
        loaded(
            f"{PLAN}{ALIASED}",
            "aliased.yaml",
            FAMILY="lumi-pytorch",
            PATHS=f"['{IMAGES}/*.sif', '{IMAGES}/planned.sif', '{IMAGES}/alias.sif']",
        ),
        loaded(PLAN.replace("2026-01", "2024-08"), "old.yaml", FAMILY="lumi-pytorch", PATHS="['*/old.sif']"),
    )
    selection = resolve_selection(site.site, rocm=("6.2", "7.0"), platform=None, cpe=[])
    return {path: file.text for path, file in render_tree(site, selection, load_templates(), plans).items()}


FILES = files()


@pytest.fixture
def wrapper(shell: str, tmp_path: Path) -> Wrapper:
    lay_out(tmp_path, FILES)
    write_script(tmp_path / "runtime/singularity", RUNTIME)
    for name in ("liba.so.1", "lib b.so.1"):
        (tmp_path / "opt/cray" / name).touch()
    return Wrapper(tuple(shell_command(shell, tmp_path)), tmp_path)


def added(wrapper: Wrapper, call: Call) -> list[str]:
    """Binds that the task had not, in their order."""
    return [one for one in call.binds if one not in wrapper.binds.split(",")]


def planned(wrapper: Wrapper) -> list[str]:
    cray = wrapper.folder / "opt/cray"
    return [f"{cray}/liba.so.1:/lib64/liba.so.1", f"{cray}/lib b.so.1"]


def test_an_image_with_a_plan_gets_its_binds_on_top_of_its_modules(wrapper: Wrapper) -> None:
    call = wrapper.call("exec", MINE, "python")
    assert added(wrapper, call) == planned(wrapper)
    assert call.binds[: len(wrapper.binds.split(","))] == wrapper.binds.split(",")
    assert call.stderr == ""


def test_an_image_of_the_same_family_without_a_plan_gets_none(wrapper: Wrapper) -> None:
    for image in (LUMI_PYTORCH, "/scratch/you/mine.sif", "/x/old.sif"):
        assert wrapper.call("exec", image, "python").binds == wrapper.binds.split(",")


def test_a_plan_tells_the_family_before_any_pattern_does(wrapper: Wrapper) -> None:
    call = wrapper.call("exec", "sub/laif-with-plan.sif", "python")
    assert f"{wrapper.folder}/opt/cray" not in call.binds, "the modules that laif-multitorch does not need are gone"
    assert added(wrapper, call) == planned(wrapper)


def test_what_the_image_must_not_have_is_taken_away(wrapper: Wrapper) -> None:
    call = wrapper.call("exec", OWN_IMAGE, "python")
    assert call.binds == [one for one in wrapper.binds.split(",") if not one.endswith("/libcxi.so.1")]
    assert f"{wrapper.folder}/libcxi.so.1" in wrapper.call("exec", LUMI_PYTORCH, "python").binds


def test_what_users_bound_themselves_is_theirs(wrapper: Wrapper) -> None:
    """The same file, but the module's memory does not name it: it was there before."""
    call = wrapper.call("exec", OWN_IMAGE, "python", **{CPE: f"{wrapper.folder}/opt/cray"})
    assert f"{wrapper.folder}/libcxi.so.1" in call.binds
    mine = f"/mine/liba.so.1:/lib64/liba.so.1,{wrapper.binds}"
    call = wrapper.call("exec", MINE, "python", SINGULARITY_BINDPATH=mine)
    assert [one for one in call.binds if one.endswith(":/lib64/liba.so.1")] == ["/mine/liba.so.1:/lib64/liba.so.1"]


def test_the_library_path_of_a_plan_comes_behind_the_users(wrapper: Wrapper) -> None:
    mine = wrapper.call("exec", OWN_IMAGE, "x", SINGULARITYENV_LD_LIBRARY_PATH="/mine").environment
    assert mine["SINGULARITYENV_LD_LIBRARY_PATH"] == "/mine:/opt/own/lib64"
    assert "SINGULARITYENV_LD_LIBRARY_PATH" not in wrapper.call("exec", MINE, "x").environment


def test_what_an_image_goes_without_is_said_once_in_a_job(wrapper: Wrapper) -> None:
    said = f"lumisite: {OWN_IMAGE} runs without the host's liba.so.1 here: one node is enough for $(it), it's small\n"
    assert wrapper.call("exec", OWN_IMAGE, "x", **FIRST).stderr == said
    assert wrapper.call("exec", OWN_IMAGE, "x", SLURM_PROCID=None).stderr == said
    assert wrapper.call("exec", OWN_IMAGE, "x").stderr == ""


def test_a_file_that_this_node_lacks_is_said_once_on_the_node(wrapper: Wrapper) -> None:
    lost = wrapper.folder / "opt/cray/liba.so.1"
    lost.unlink()
    call = wrapper.call("exec", MINE, "x", SLURM_LOCALID="0")
    assert call.stderr == f"lumisite: {lost} not found on nid005124: the container starts without it\n"
    assert added(wrapper, call) == planned(wrapper)[1:]
    assert wrapper.call("exec", MINE, "x").stderr == ""


def test_the_user_who_names_a_family_gets_no_plan(wrapper: Wrapper) -> None:
    assert added(wrapper, wrapper.call("exec", MINE, "x", LUMISITE_FAMILY="lumi-pytorch")) == []


def test_verbose_names_the_plan(wrapper: Wrapper) -> None:
    said = wrapper.call("exec", MINE, "x", LUMISITE_VERBOSE="all").stderr
    assert ": plan pytorch.yaml\n" in said
    assert f": with the bind {planned(wrapper)[0]}\n" in said


def test_a_path_with_what_a_shell_would_run_is_only_a_path(wrapper: Wrapper) -> None:
    assert f"{wrapper.folder}/libcxi.so.1" not in wrapper.call("exec", ODD, "x").binds
    assert f"{wrapper.folder}/libcxi.so.1" in wrapper.call("exec", ODD.replace("[name]", "n"), "x").binds


# ---- the image behind the path


def alias(wrapper: Wrapper, leads_to: str) -> str:
    """The image of aliased.yaml, planned as images/planned.sif, and where its name leads now."""
    folder = wrapper.folder / "images"
    folder.mkdir()
    for name in ("planned.sif", "other.sif", "copy-1.sif"):
        (folder / name).touch()
        os.utime(folder / name, (1, 1))
    (folder / "alias.sif").symlink_to(leads_to)
    return str(folder / "alias.sif")


def test_a_link_that_leads_where_it_did_has_its_plan(wrapper: Wrapper) -> None:
    for image in (alias(wrapper, "planned.sif"), f"{wrapper.folder}/images/planned.sif"):
        call = wrapper.call("exec", image, "x", **FIRST)
        assert added(wrapper, call) == planned(wrapper)
        assert call.stderr == ""


def test_a_link_that_leads_elsewhere_has_lost_its_plan(wrapper: Wrapper) -> None:
    image = alias(wrapper, "other.sif")
    call = wrapper.call("exec", image, "x", **FIRST)
    assert added(wrapper, call) == []
    assert call.stderr == (
        f"lumisite: {image} is not the file that aliased.yaml was made for, so it gets what its family gets\n"
    )
    assert wrapper.call("exec", image, "x").stderr == "", "another task says nothing"


def test_an_image_that_was_written_after_its_release_is_named(wrapper: Wrapper) -> None:
    image = alias(wrapper, "planned.sif")
    later = wrapper.path.stat().st_mtime + 60
    os.utime(image, (later, later))
    call = wrapper.call("exec", image, "x", **FIRST)
    assert added(wrapper, call) == planned(wrapper)
    assert call.stderr == (
        f"lumisite: {image} is newer than the release with its plan aliased.yaml, which may be for another image\n"
    )


def test_a_copy_that_a_pattern_fits_may_be_newer(wrapper: Wrapper) -> None:
    alias(wrapper, "planned.sif")
    copy = wrapper.folder / "images/copy-1.sif"
    later = wrapper.path.stat().st_mtime + 60
    os.utime(copy, (later, later))
    call = wrapper.call("exec", str(copy), "x", **FIRST)
    assert added(wrapper, call) == planned(wrapper)
    assert call.stderr == ""
