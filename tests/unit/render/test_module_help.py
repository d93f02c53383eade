"""`module help`, one screen, and the page with all that a load brings, with the modules below it."""

from __future__ import annotations

import dataclasses
import re

import pytest

from lumisite.render.modules import Rendering, plan_modules
from lumisite.render.render import render_tree
from lumisite.render.templates import load_templates
from lumisite.site.load import embedded_sites, load_site
from lumisite.site.scalars import Place
from lumisite.site.selection import resolve_selection

AI, CPE, FILES = "singularity-AI-bindings", "singularity-CPEbits", "singularity-userfilesystems"
LUMI = load_site("lumi")


def texts(**asked: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """The help of each modulefile by the module's full name, and the pages by the same."""
    files = render_tree(LUMI, resolve_selection(LUMI.site, platform=None, **asked), load_templates())
    found = {}
    for path, file in files.items():
        if match := re.fullmatch(r"modules/(.*/[^.].*)\.lua", path):
            text = re.search(r"help\(\[(=*)\[\n(.*?)\]\1\]\)", file.text, re.DOTALL)
            assert text is not None
            found[match[1]] = text[2]
    return found, {path[5:-4]: file.text for path, file in files.items() if path.startswith("help/")}


def helps(**asked: list[str]) -> dict[str, str]:
    return texts(**asked)[0]


@pytest.fixture(scope="module")
def both() -> tuple[str, str]:
    short, pages = texts(rocm=["6.2", "6.3"], cpe=["25.03", "25.09"])
    return short[f"{AI}/25.03-rocm6.2"], pages[f"{AI}/25.03-rocm6.2"]


@pytest.fixture
def screen(both: tuple[str, str]) -> str:
    return both[0]


@pytest.fixture
def manual(both: tuple[str, str]) -> str:
    return both[1]


def words(text: str) -> str:
    return " ".join(text.split())


def test_it_begins_with_what_to_type(manual: str) -> None:
    assert f"Type:\n  module load {AI}\n  srun singularity exec IMAGE COMMAND\n" in manual
    assert manual.index("Type:") < manual.index("Versions:") < manual.index("Loads:")


def test_each_version_is_told_with_what_differs_and_which_to_take(manual: str) -> None:
    assert "without one you get the default, 25.03-rocm6.3, which is right" in words(manual)
    for entry in (
        "25.03-rocm6.3 CPE 25.03, ROCm 6.3.4, cray-mpich 8.1.32, cray-pmi 6.1.15 (the default)",
        "25.03-rocm6.2 CPE 25.03, ROCm 6.2.4, cray-mpich 8.1.32",
        "25.09-rocm6.2 CPE 25.09, ROCm 6.2.4, cray-mpich 9.0.1",
        "25.09-rocm6.3 CPE 25.09",
    ):
        assert entry in words(manual)
    assert "CPE in a version says which libraries of the host are bound." in words(manual)
    assert "Of ROCm the image that runs decides" in words(manual)
    assert "Versions:" not in helps(rocm=["6.2"])[f"{AI}/25.03-rocm6.2"], "there is one"


def test_what_the_modules_below_bring_is_told_too(manual: str) -> None:
    for one in LUMI.site.host_paths.values():
        if one.where in (FILES, CPE) and "cpe" not in one.when.stacks:
            assert f"{one.spec} {one.why}" in words(manual)
    assert f"Appends to SINGULARITY_BINDPATH, by {CPE}/25.03:\n  /opt/cray\n" in manual
    loaded = dataclasses.replace(
        LUMI,
        site=dataclasses.replace(
            LUMI.site,
            settings=tuple(
                dataclasses.replace(one, where=Place(CPE)) if one.name == "PYTHONNOUSERSITE" else one
                for one in LUMI.site.settings
            ),
        ),
    )
    files = render_tree(loaded, resolve_selection(LUMI.site, rocm=["6.2"]), load_templates())
    text = words(files[f"help/{AI}/25.03-rocm6.2.txt"].text)
    assert (
        f"Environment variables, by {CPE}/25.03 (your own values take precedence): PYTHONNOUSERSITE = 1 packages in"
        in text
    )


def test_it_says_whose_singularity_runs_and_how_to_switch_that_off(manual: str) -> None:
    assert "`singularity` and `apptainer` are now wrappers, first on PATH" in words(manual)
    assert "start the real singularity (/usr/bin/singularity)" in words(manual)
    assert "SLURM_TASK_PROLOG = the helper" in manual
    assert "To switch it off:\n  LUMISITE=off srun singularity ...\n" in manual
    assert f"\n  module unload {AI}\n" in manual
    assert "To read on:\n  LUMISITE_VERBOSE=1 srun singularity ...\n" in manual
    assert LUMI.site.support.contact in manual
    assert "wrappers" not in helps(rocm=["6.2"])[f"{CPE}/25.03"]


def test_one_screen_says_what_to_type_what_it_does_how_to_stop_it_and_where_the_rest_is(screen: str) -> None:
    order = ("Type:", "What it does, in each task", "Versions", "To switch it off:", "To read on:", "Support:")
    places = [screen.index(f"\n{part}") for part in order]
    assert places == sorted(places)
    types = words(screen[places[0] : places[1]])
    assert "srun singularity exec IMAGE COMMAND" in types
    assert "`run` in place of `exec` for LUMI AI Factory images with PyTorch" in types
    does = screen[places[1] : places[2]]
    assert does.count("\n") <= 12
    for word in ("/scratch", "21 environment variables", "CPUs", "wrappers named singularity and apptainer"):
        assert word in words(does)
    off = screen[places[3] : places[4]]
    for command in ("LUMISITE=off srun", "LUMISITE_CPU_BIND=off srun", f"module unload {AI}"):
        assert f"\n  {command}" in off
    read_on = screen[places[4] :]
    for entry in ("LUMISITE_VERBOSE=1", "lumisite why NAME", f"{LUMI.site.root}/current/help/{AI}/25.03-rocm6.2.txt"):
        assert f"\n  {entry}" in read_on


@pytest.mark.parametrize("site", sorted(embedded_sites()))
def test_every_help_fits_on_one_screen(site: str) -> None:
    """Lmod prints four lines around a text."""
    loaded = load_site(site)
    selection = resolve_selection(loaded.site, platform=None, **{stack: ["all"] for stack in loaded.site.stacks})
    plans = plan_modules(Rendering(loaded, selection, "R", load_templates()))
    assert {plan.full_name: plan.help for plan in plans if plan.help.count("\n") > 56} == {}
    for plan in plans:
        assert (f"/current/help/{plan.full_name}.txt" in plan.help) == bool(plan.page), plan.full_name


def test_what_fits_on_a_screen_is_printed_whole() -> None:
    short, pages = texts(rocm=["6.2"])
    assert {*pages} == {f"{AI}/25.03-rocm6.2"}
    assert "project scratch space" in short[f"{FILES}/2026-01"]


def test_no_line_is_wider_than_a_terminal() -> None:
    short, pages = texts(rocm=["all"], cpe=["25.03", "25.09"])
    for name, text in (*short.items(), *pages.items()):
        assert [line for line in text.splitlines() if len(line) > 80] == [], name
