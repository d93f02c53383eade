"""`module help`: one screen."""

from __future__ import annotations

import pytest

from lumisite.render.modules import Rendering, plan_modules
from lumisite.render.templates import load_templates
from lumisite.site.load import embedded_sites, load_site
from lumisite.site.selection import resolve_selection

AI, CPE, FILES = "singularity-AI-bindings", "singularity-CPEbits", "singularity-userfilesystems"


def helps(site: str, **requests: list[str]) -> dict[str, str]:
    """Return the help of each module by its full name."""
    loaded = load_site(site)
    selection = resolve_selection(loaded.site, platform=None, **requests)
    return {plan.full_name: plan.help for plan in plan_modules(Rendering(loaded, selection, "R", load_templates()))}


def words(text: str) -> str:
    return " ".join(text.split())


def test_one_screen_says_what_to_type_what_it_does_how_to_stop_it_and_what_tells_more() -> None:
    screen = helps("lumi", rocm=["6.2", "6.3"], cpe=["25.03", "25.09"])[f"{AI}/25.03-rocm6.2"]
    order = ("Type:", "What it does, in each task", "Versions", "To switch it off:", "To read on:", "Support:")
    places = [screen.index(f"\n{part}") for part in order]
    assert places == sorted(places)
    types = words(screen[places[0] : places[1]])
    assert f"module load {AI} srun singularity exec IMAGE COMMAND" in types
    assert "`run` in place of `exec` for LUMI AI Factory images with PyTorch" in types
    does = screen[places[1] : places[2]]
    for word in ("/scratch", "20 environment variables", "CPUs", "wrappers named singularity and apptainer"):
        assert word in words(does)
    versions = words(screen[places[2] : places[3]])
    assert "25.03-rocm6.3 CPE 25.03, ROCm 6.3.4, cray-mpich 8.1.32, cray-pmi 6.1.15 (the default)" in versions
    assert f"and 1 more: module spider {AI}" in versions
    off = screen[places[3] : places[4]]
    for command in ("LUMISITE=off srun", "LUMISITE_CPU_BIND=off srun", f"module unload {AI}"):
        assert f"\n  {command}" in off
    for entry in ("LUMISITE_VERBOSE=1", "lumisite why NAME", f"module help {CPE}"):
        assert f"\n  {entry}" in screen[places[4] :]


def test_a_module_without_the_helper_says_no_word_of_it() -> None:
    text = helps("lumi", rocm=["6.2"])[f"{FILES}/2026-01"]
    assert "binds /pfs, /scratch, /projappl" in words(text)
    assert "srun" not in text
    assert "Versions" not in text, "there is one"


@pytest.mark.parametrize("site", sorted(embedded_sites()))
def test_every_help_fits_on_one_screen(site: str) -> None:
    """Lmod prints four lines around a text."""
    for name, text in helps(site, **{stack: ["all"] for stack in load_site(site).site.stacks}).items():
        assert text.count("\n") <= 56, name
        assert [line for line in text.splitlines() if len(line) > 80] == [], name
