"""Sites with other stacks than the two of a Cray with AMD's GPUs: one, several of several vendors, none."""

from __future__ import annotations

from dataclasses import replace

from lumisite.render.manifest import MANIFEST, parse_manifest
from lumisite.render.render import render_tree
from lumisite.render.templates import load_templates
from lumisite.site.load import LoadedSite
from lumisite.site.selection import resolve_selection
from tests.support.sites import load_text, site_faults, site_text

DRIVER = "rocm: {default: 6.2.4, driver: \"none, stands for amdgpu of ROCm 6.3\", runs: '>=6.1,<7.1'}"
CUDA = "cuda: {default: 12.8, driver: 570.172, runs: '<13', compat: '<14'}"
CUDA_STACK = """\
  cuda:
    title: CUDA
    gpu: nvidia
    releases:
      12.4: {found: image, source: here}
      12.8: {found: image, source: here}
      13.0: {found: image, source: here}
"""


def twin(stacks: str, here: str, *changes: tuple[str, str]) -> LoadedSite:
    """Return the twin with one platform and other stacks: what it says of all, and what of that platform."""
    text = site_text()
    text = text[: text.index("  2024-08:\n")] + text[text.index("  2026-01:\n") :]
    begin, end = text.index("\nstacks:\n"), text.index("\nnode_kinds:\n")
    text = text[:begin] + stacks + text[end:]
    begin = text.index("    stacks:\n", text.index("  2026-01:\n"))
    text = text[:begin] + here + text[text.index("    libraries:", begin) :]
    for old, new in (("version: [cpe]", "version: [platform]"), *changes):
        assert old in text, old
        text = text.replace(old, new)
    return load_text(text)


def only_cuda() -> LoadedSite:
    changes = (
        ("default_for: {rocm: '>=5'}", "default_for: {cuda: '>=11'}"),
        ("version: [cpe, rocm]", "version: [cuda]"),
    )
    return twin(f"\nstacks:\n{CUDA_STACK}", f"    stacks: {{{CUDA}}}\n", *changes)


def rendered(loaded: LoadedSite, **requests: list[str]) -> list[str]:
    files = render_tree(loaded, resolve_selection(loaded.site, platform=None, **requests), load_templates())
    return [path for path in files if path.startswith("modules/singularity-AI") and "/." not in path]


def test_one_stack_gives_its_name_and_its_series() -> None:
    loaded, top = only_cuda(), "modules/singularity-AI-bindings"
    assert rendered(loaded) == [f"{top}/cuda12.8.lua"]
    assert rendered(loaded, cuda=["all"]) == [f"{top}/cuda12.4.lua", f"{top}/cuda12.8.lua", f"{top}/cuda13.0.lua"]
    reasons = {one.name: one.reason for one in resolve_selection(loaded.site, cuda=["13"]).candidates}
    packages = "the packages for forward compatibility, which the image must bring"
    assert reasons["13.0"] == f"in range <14 of {packages}, found in: image"


def test_without_a_driver_any_release_will_do() -> None:
    site = only_cuda().site
    here = site.platforms[site.platform]
    platform = replace(here, stacks={"cuda": replace(here.stacks["cuda"], runs=None)})
    selection = resolve_selection(replace(site, platforms={site.platform: platform}))
    reasons = [one.reason for one in selection.candidates if one.chosen and one.kind == "cuda"]
    assert reasons == ["no driver decides, found in: image"]


def test_without_a_stack_there_is_a_platform() -> None:
    gone = ("    default_for: {rocm: '>=5'}\n", "    plugin: from-host\n")
    changes = [*((line, "") for line in gone), ("version: [cpe, rocm]", "version: [platform]")]
    loaded = twin("\nstacks: {}\n", "", *changes)
    assert rendered(loaded) == ["modules/singularity-AI-bindings/2026-01.lua"]
    files = render_tree(loaded, resolve_selection(loaded.site), load_templates())
    assert parse_manifest(files[MANIFEST].text.encode(), "M").stacks == {}
    assert 'LUMISITE_STACK", "2026-01"' in files["modules/singularity-AI-bindings/2026-01.lua"].text


def test_a_second_stack_for_gpus_is_a_fault() -> None:
    changes = (
        ("\nnode_kinds:\n", f"{CUDA_STACK}\nnode_kinds:\n"),
        ("default_for: {rocm: '>=5'}", "default_for: {rocm: '>=5', cuda: '>1'}"),
    )
    assert site_faults(*changes) == ["stacks.cuda.gpu: has `gpu` as rocm has it"]


def test_a_stack_of_gpus_has_a_driver() -> None:
    bare = DRIVER.replace('driver: "none, stands for amdgpu of ROCm 6.3", ', "")
    gpus = ("    nics:", "    gpus: [{l3: 0, numa: 0}]\n    nics:")
    assert site_faults((DRIVER, bare), gpus) == ["platforms.2026-01.stacks.rocm.driver: is missing"]
    assert load_text(site_text((DRIVER, bare)))
