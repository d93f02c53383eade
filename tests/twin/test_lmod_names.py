"""What users read: avail, spider, keyword, whatis, help, show; default versions and deprecation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from lumisite.site.load import load_site
from tests.twin.lmod import LMOD, TREE, Lmod, Session, each_lmod, lumi_with_a_setting, render, render_all

pytestmark = [pytest.mark.lmod, pytest.mark.root]

AI, CPE, FILES = "singularity-AI-bindings", "singularity-CPEbits", "singularity-userfilesystems"
LUMI = load_site("lumi")
SITE = LUMI.site


@pytest.fixture(scope="module")
def lumi(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give all that LUMI can have."""
    out = tmp_path_factory.mktemp("all") / "out"
    render_all(out, LUMI)
    return out


@each_lmod
def test_the_marked_version_is_the_default_although_others_are_higher(version: str, lumi: Path) -> None:
    lmod = Lmod(version, {TREE: lumi})
    avail, loaded = lmod.run("module avail", f"module load {AI} {CPE}")
    marked = {line.split()[0] for line in avail.output.splitlines() if "(D)" in line or "(L,D)" in line}
    assert marked == {f"{AI}/25.03-rocm6.3", f"{CPE}/25.03"}
    assert {f"{AI}/25.03-rocm6.3", f"{CPE}/25.03"} <= set(loaded.modules)


@each_lmod
def test_a_leftover_release_is_called_deprecated_and_names_its_successor(version: str, lumi: Path) -> None:
    lmod = Lmod(version, {TREE: lumi})
    leftover, supported, swapped, restored = lmod.run(
        f"module load {AI}/24.03-rocm6.2",
        f"module load {AI}/25.03-rocm6.2",
        f"module swap {AI} {AI}/24.03-rocm6.2",
        "module save mine; module restore mine",
    )
    for step in (leftover, swapped, restored):
        assert f"{AI}/24.03-rocm6.2 is deprecated: CPE 24.03 is no longer supported since 2026-01-21." in step.words
        assert f"Use {AI}/25.03-rocm6.2 instead." in step.words
        assert f"Use {CPE}/25.03 instead." in step.words
    assert "deprecated" not in supported.output


#: What stands before each module where a command has several.
HEADS = {"help": 'Module Specific Help for "{}" -', "whatis": "{} ", "show": f"   {TREE}/modules/{{}}.lua:\n"}


def parts(output: str, verb: str, names: Sequence[str]) -> dict[str, str]:
    """Give what a command said of each module, in the order of the modules, as one line of single spaces."""
    starts = [output.index(HEADS[verb].format(name)) for name in names]
    assert starts == sorted(starts), verb
    ends = [*starts[1:], len(output)]
    return {name: " ".join(output[start:end].split()) for name, start, end in zip(names, starts, ends, strict=True)}


@each_lmod
def test_each_version_shows_every_bind_and_tells_whom_to_ask(version: str, lumi: Path) -> None:
    modules = lumi / "modules"
    names = [str(path.relative_to(modules).with_suffix("")) for path in sorted(modules.rglob("[!.]*.lua"))]
    steps = Lmod(version, {TREE: lumi}).run(*(f"module {verb} {' '.join(names)}" for verb in HEADS))
    assert [step.code for step in steps] == [0, 0, 0]
    told, summary, shown = (parts(step.output, verb, names) for step, verb in zip(steps, HEADS, strict=True))
    for name in names:
        module, _, release = name.partition("/")
        for bind in binds_of(module, release.partition("-rocm")[0]):
            if module != AI:
                assert bind in shown[name]
        assert SITE.support.contact in told[name]
        assert SITE.support.name in summary[name]
        assert f": Description: {SITE.modules[module].summary}" in summary[name]
        assert f": Version: {release}" in summary[name]


def binds_of(module: str, cpe: str) -> list[str]:
    """What a module binds, by the site description alone."""
    found = [str(system.path) for system in SITE.file_systems if system.where == module]
    for bind in SITE.binds:
        older = "cpe" in bind.when.stacks and cpe >= "25.03"
        if bind.where == module and not older:
            found.append(bind.path)
    return found


@each_lmod
def test_help_fits_on_a_terminal_of_60_lines_and_80_columns(version: str, lumi: Path) -> None:
    """Lmod prints the text as it is."""
    lmod = Lmod(version, {TREE: lumi})
    (told,) = lmod.run(f"module help {AI}")
    text = told.output
    assert len(text.splitlines()) <= 60
    order = ("Type:", "What it does", "wrappers", "To switch it off:", "To read on:", "Support:")
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert [line for line in text.splitlines() if len(line) > 80] == []


@each_lmod
def test_spider_and_keyword_find_each_module(version: str, lumi: Path) -> None:
    lmod = Lmod(version, {TREE: lumi})
    keywords = [(name, word) for name, module in SITE.modules.items() for word in module.keywords]
    words = sorted({word for _, word in keywords})
    *steps, full = lmod.run(
        *(f"module keyword {word}" for word in words),
        *(f"module spider {name}" for name in SITE.modules),
        f"module spider {AI}/25.03-rocm6.2",
    )
    found = {str(word): step.words for word, step in zip(words, steps, strict=False)}
    for name, word in keywords:
        assert f"{name}:" in found[word], f"keyword {word}"
    for name, step in zip(SITE.modules, steps[len(words) :], strict=True):
        assert SITE.modules[name].summary in step.words
    assert f"{CPE}:" not in found["lustre"]
    assert "can be loaded directly" in full.words


@each_lmod
def test_show_tells_the_whole_list_also_of_a_loaded_module(version: str, tmp_path: Path) -> None:
    lmod = Lmod(version, {TREE: render(tmp_path / "out", lumi_with_a_setting(), rocm=["6.4"])})
    fresh, _, *loaded = lmod.run(f"module show {CPE}", f"module load {AI}", f"module show {CPE}", f"module show {AI}")
    assert loaded[0].output == fresh.output
    assert '"/opt/cray,/usr/lib64/libcxi.so.1"' in fresh.output
    for line in ('setenv("SITE_SETTING","of the site")', f'setenv("SLURM_TASK_PROLOG","{TREE}/spank/task_prolog")'):
        assert line in loaded[1].output


@each_lmod
def test_looking_changes_nothing(version: str, tmp_path: Path) -> None:
    lmod = Lmod(version, {TREE: render(tmp_path / "out", rocm=["6.4"])})
    looks = [
        f"module {words}"
        for words in (
            "avail",
            "list",
            f"show {AI}",
            f"help {AI}",
            f"whatis {AI}",
            f"spider {AI}",
            "spider",
            "keyword cray",
            f"is-loaded {AI}",
            f"is-avail {AI}",
            "overview",
        )
    ]
    for first, *steps in lmod.run_all([Session([start, *looks]) for start in ("true", f"module load {AI}")]):
        for step in steps:
            assert step.variables == first.variables, step.command


@each_lmod
def test_lmods_own_check_of_the_tree_passes(version: str, lumi: Path, tmp_path: Path) -> None:
    bad = render(tmp_path / "bad", rocm=["6.2"])
    broken = bad / "modules" / CPE / "25.03.lua"
    broken.write_text(broken.read_text() + 'setenv("X")\n')
    check = f"{LMOD}/libexec/check_module_tree_syntax"
    good, red = Lmod(version, {TREE: lumi, "/bad": bad}).run(
        f"{check} {TREE}/modules", f"{check} /bad/modules", MODULEPATH=""
    )
    assert good.code == 0, good.output
    assert "No errors found" in good.output
    assert red.code != 0, "the check finds a fault where one is"


@each_lmod
def test_who_builds_the_spider_cache_leaves_no_trace_in_it(version: str, lumi: Path) -> None:
    lmod = Lmod(version, {TREE: lumi})
    spider = f"{LMOD}/libexec/spider -o spider-json {TREE}/modules"
    users = {"SINGULARITY_BINDPATH": "/opt/cray,/mine", "SLURM_TASK_PROLOG": "/home/me/prolog"}
    (clean,), (_, own) = lmod.run_all([Session([spider]), Session([f"module load {AI}", spider], users)])
    found = json.loads(clean.output)
    assert f"{TREE}/modules/{CPE}/25.03.lua" in found[CPE]
    assert json.loads(own.output) == found
