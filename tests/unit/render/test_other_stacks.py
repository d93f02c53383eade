"""Sites with other stacks than the two of a Cray with AMD's GPUs: one, several of several vendors, none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lumisite.render.manifest import MANIFEST, parse_manifest
from lumisite.render.render import render_tree
from lumisite.render.templates import load_templates
from lumisite.site.load import LoadedSite
from lumisite.site.selection import resolve_selection
from tests.support.prologs import lay_out, lumi_like, render_files, shell_command, write_script
from tests.support.sites import load_text, site_faults, site_text
from tests.support.wrappers import RUNTIME, Wrapper

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


def twin(*changes: tuple[str, str]) -> LoadedSite:
    """Give the twin with one platform and without its stacks but what changes say."""
    text = site_text()
    old, new = text.index("  2024-08:\n"), text.index("  2026-01:\n")
    text = text[:old] + text[new:]
    for before, after in changes:
        assert before in text, before
        text = text.replace(before, after)
    return load_text(text)


def stacks_of(text: str) -> str:
    return text[text.index("\nstacks:\n") : text.index("\nnode_kinds:\n")]


def here_of(text: str) -> str:
    begin = text.index("    stacks:\n", text.index("  2026-01:\n"))
    return text[begin : text.index("    libraries:", begin)]


PLAIN = site_text()
ONLY_CUDA = (
    (stacks_of(PLAIN), f"\nstacks:\n{CUDA_STACK}"),
    (here_of(PLAIN), f"    stacks: {{{CUDA}}}\n"),
    ("default_for: {rocm: '>=5'}", "default_for: {cuda: '>=11'}"),
    ("version: [cpe]", "version: [platform]"),
    ("version: [cpe, rocm]", "version: [cuda]"),
)
NOTHING = (
    (stacks_of(PLAIN), "\nstacks: {}\n"),
    (here_of(PLAIN), ""),
    ("    default_for: {rocm: '>=5'}\n", ""),
    ("    plugin: from-host\n", ""),
    ("version: [cpe]", "version: [platform]"),
    ("version: [cpe, rocm]", "version: [platform]"),
)


def rendered(loaded: LoadedSite, **asked: list[str]) -> list[str]:
    files = render_tree(loaded, resolve_selection(loaded.site, platform=None, **asked), load_templates())
    return [path for path in files if path.startswith("modules/singularity-AI") and "/." not in path]


def test_one_stack_gives_its_name_and_its_series() -> None:
    loaded = twin(*ONLY_CUDA)
    top = "modules/singularity-AI-bindings"
    assert rendered(loaded) == [f"{top}/cuda12.8.lua"]
    assert rendered(loaded, cuda=["all"]) == [f"{top}/cuda12.4.lua", f"{top}/cuda12.8.lua", f"{top}/cuda13.0.lua"]
    reasons = {one.name: one.reason for one in resolve_selection(loaded.site, cuda=["13"]).candidates}
    packages = "the packages for forward compatibility, which the image must bring"
    assert reasons["13.0"] == f"in range <14 of {packages}, found in: image"


def test_without_a_driver_any_release_will_do() -> None:
    site = twin(*ONLY_CUDA).site
    here = site.platforms[site.platform].stacks["cuda"]
    without = replace(here, runs=None)
    platform = replace(site.platforms[site.platform], stacks={"cuda": without})
    selection = resolve_selection(replace(site, platforms={site.platform: platform}))
    assert [one.reason for one in selection.candidates if one.chosen and one.kind == "cuda"] == [
        "no driver decides, found in: image"
    ]


def test_without_a_stack_there_is_a_platform() -> None:
    loaded = twin(*NOTHING)
    assert rendered(loaded) == ["modules/singularity-AI-bindings/2026-01.lua"]
    files = render_tree(loaded, resolve_selection(loaded.site), load_templates())
    assert parse_manifest(files[MANIFEST].text.encode(), "M").stacks == {}
    assert 'LUMISITE_STACK", "2026-01"' in files["modules/singularity-AI-bindings/2026-01.lua"].text


GPUS = ("    nics:", "    gpus: [{l3: 0, numa: 0}]\n    nics:")


def test_a_second_stack_for_gpus_is_a_fault() -> None:
    changes = (
        ("\nnode_kinds:\n", f"{CUDA_STACK}\nnode_kinds:\n"),
        ("default_for: {rocm: '>=5'}", "default_for: {rocm: '>=5', cuda: '>1'}"),
    )
    assert site_faults(*changes) == ["stacks.cuda.gpu: has `gpu` as rocm has it"]


def test_a_stack_of_gpus_has_a_driver() -> None:
    bare = DRIVER.replace('driver: "none, stands for amdgpu of ROCm 6.3", ', "")
    assert site_faults((DRIVER, bare), GPUS) == ["platforms.2026-01.stacks.rocm.driver: is missing"]
    assert load_text(site_text((DRIVER, bare)))


# ---- the wrapper


def test_without_a_path_the_next_runtime_on_path_is_the_real_one(shell: str, tmp_path: Path) -> None:
    files = render_files(lumi_like(("    executable: /usr/bin/singularity\n", "")), rocm=("6.2", "7.0"))
    lay_out(tmp_path, files)
    write_script(tmp_path / "runtime/singularity", RUNTIME)
    wrapper = Wrapper(tuple(shell_command(shell, tmp_path)), tmp_path)
    path = f"{tmp_path}/spank/bin:{tmp_path}/runtime:/usr/bin:/bin"
    assert wrapper.call("exec", "/x.sif", "true", PATH=path).arguments[0] == "exec"
