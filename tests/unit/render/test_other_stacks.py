"""Sites with other stacks than the two of a Cray with AMD's GPUs: one, several of several vendors, none."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import pytest

from lumisite.render.manifest import MANIFEST, parse_manifest
from lumisite.render.render import render_tree
from lumisite.render.templates import load_templates
from lumisite.site.load import LoadedSite
from lumisite.site.selection import resolve_selection
from tests.support.prologs import ROOT, SHELLS, lay_out, lumi_like, render_files, shell_command, write_script
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
    values = {"platform": "2026-01", "range": "<14", "default": "12.8", "found": "image"}
    assert (reasons["13.0"].code, reasons["13.0"].values) == ("release-forward-compatible", values)


def test_without_a_driver_any_release_will_do() -> None:
    site = twin(*ONLY_CUDA).site
    here = site.platforms[site.platform].stacks["cuda"]
    without = replace(here, runs=None)
    platform = replace(site.platforms[site.platform], stacks={"cuda": without})
    selection = resolve_selection(replace(site, platforms={site.platform: platform}))
    assert {one.reason.code for one in selection.candidates if one.chosen} == {
        "platform-chosen",
        "release-without-driver",
    }


def test_without_a_stack_there_is_a_platform() -> None:
    loaded = twin(*NOTHING)
    assert rendered(loaded) == ["modules/singularity-AI-bindings/2026-01.lua"]
    files = render_tree(loaded, resolve_selection(loaded.site), load_templates())
    assert parse_manifest(files[MANIFEST].text.encode(), "M").stacks == {}
    assert 'LUMISITE_STACK", "2026-01"' in files["modules/singularity-AI-bindings/2026-01.lua"].text


def test_a_platform_may_lack_a_stack_that_no_module_names() -> None:
    loaded = twin(
        ("\nnode_kinds:\n", f"{CUDA_STACK}\nnode_kinds:\n"),
        ("default_for: {rocm: '>=5'}", "default_for: {rocm: '>=5', cuda: '>1'}"),
    )
    assert rendered(loaded) == ["modules/singularity-AI-bindings/25.03-rocm6.2.lua"]


GPUS = ("    nics:", "    gpus: [{l3: 0, numa: 0}]\n    nics:")


def test_gpus_of_two_vendors_are_a_fault() -> None:
    more = "default_for: {rocm: '>=5', cuda: '>1'}"
    changes = (
        (DRIVER, f"{DRIVER}\n      {CUDA}"),
        ("\nnode_kinds:\n", f"{CUDA_STACK}\nnode_kinds:\n"),
        ("default_for: {rocm: '>=5'}", more),
        GPUS,
    )
    assert site_faults(*changes) == [("platforms.2026-01.stacks.cuda.kinds: several-gpu-vendors")]


def test_a_stack_of_gpus_has_a_driver() -> None:
    bare = DRIVER.replace('driver: "none, stands for amdgpu of ROCm 6.3", ', "")
    assert site_faults((DRIVER, bare), GPUS) == ["platforms.2026-01.stacks.rocm.driver: key-missing"]
    assert load_text(site_text((DRIVER, bare)))


# ---- the wrapper

BOTH = (
    ("executable: /usr/bin/singularity", f"executable: {ROOT}/runtime/singularity"),
    ("\n# ---------------------------------------------------------------- nodes\n", f"\n{CUDA_STACK}\n"),
    (
        "    release_after: {rocm: '*-u[0-9][0-9]r'}\n    mpi: pmi2\n    why: b",
        "    release_after: {cuda: '*-cuda-'}\n    why: b",
    ),
    ("default_for: {rocm: '>=6.3'}", "default_for: {rocm: '>=6.3', cuda: '>1'}"),
    (
        "settings:\n",
        (
            "settings:\n"
            "  - {name: BY_STACK, value: rocm, when: {rocm: '>=6'}, why: w, source: here}\n"
            "  - {name: BY_STACK, value: cuda, when: {cuda: '<13'}, why: w, source: here}\n"
        ),
    ),
)


@functools.cache
def both() -> dict[str, str]:
    return render_files(lumi_like(*BOTH), rocm=("6.2", "7.0"))


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("image", "value", "said"),
    [
        ("lumi-rocm-rocm-6.2.4.sif", "rocm", ", stack 6.2.4"),
        ("lumi-multitorch-cuda-12.8.sif", "cuda", ", stack 12.8"),
        ("lumi-multitorch-cuda-13.0.sif", None, ", stack 13.0"),
        ("lumi-multitorch-x.sif", None, ": family laif-multitorch"),
    ],
)
def test_releases_of_one_stack_are_not_those_of_another(
    shell: str, image: str, value: str | None, said: str, tmp_path: Path
) -> None:
    lay_out(tmp_path, both())
    write_script(tmp_path / "runtime/singularity", RUNTIME)
    (tmp_path / image).touch()
    wrapper = Wrapper(tuple(shell_command(shell, tmp_path)), tmp_path)
    call = wrapper.call("exec", f"{tmp_path}/{image}", "true", LUMISITE_VERBOSE="all")
    assert call.environment.get("BY_STACK") == value
    assert said in call.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_without_a_path_the_next_runtime_on_path_is_the_real_one(shell: str, tmp_path: Path) -> None:
    files = render_files(lumi_like(("    executable: /usr/bin/singularity\n", "")), rocm=("6.2", "7.0"))
    lay_out(tmp_path, files)
    write_script(tmp_path / "runtime/singularity", RUNTIME)
    wrapper = Wrapper(tuple(shell_command(shell, tmp_path)), tmp_path)
    path = f"{tmp_path}/spank/bin:{tmp_path}/runtime:/usr/bin:/bin"
    assert wrapper.call("exec", "/x.sif", "true", PATH=path).arguments[0] == "exec"
