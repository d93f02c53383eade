"""Any text that a site description may hold comes out of Lmod as it went in, and runs nowhere."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import Path

import pytest

from lumisite.site.load import LoadedSite
from tests.support.sites import load_text, site_text
from tests.twin.lmod import TREE, Lmod, Session, each_lmod, render

pytestmark = [pytest.mark.lmod, pytest.mark.root]

AI, CPE, FILES = "singularity-AI-bindings", "singularity-CPEbits", "singularity-userfilesystems"

HOSTILE = (
    "a]]b",
    "a]=]b]==]c]===]",
    "[[a",
    "--[[ a",
    "'\"`",
    "\\",
    '\\\\"',
    "\\n\\065\\x41\\u{41}",
    "$(touch /tmp/owned)",
    "`touch /tmp/owned`",
    "${HOME} $HOME ~ !!",
    "; touch /tmp/owned #",
    "&& touch /tmp/owned ||",
    "%s %d %% %1 %q",
    "a\tb\t",
    "  two  spaces  ",
    "ümläut 日本語 🚀 \u00a0 e\u0301",
    "{{ module }} {% raw %} {## x ##}",
    "a=b,c=d:e;f",
    "*?[a-z]{1,2}",
    "-n",
    "@lumisite",
    "x" * 4000,
)


def yaml(text: str) -> str:
    """Write text as a YAML scalar, whatever is in it."""
    return '"' + "".join(c if c.isascii() and c.isalnum() else f"\\U{ord(c):08x}" for c in text) + '"'


def site_with_values(values: Sequence[str], file: str = "site.yaml") -> LoadedSite:
    entries = "".join(
        f"  - {{name: HOSTILE_{number}, value: {yaml(value)}, where: {AI}, exact: yes, why: test, source: here}}\n"
        for number, value in enumerate(values)
    )
    return load_text(site_text(("settings:\n", f"settings:\n{entries}")), file)


def site_with_paths(paths: Sequence[str]) -> LoadedSite:
    entries = "".join(
        f"  - {{path: {yaml(path)}, where: {CPE}, exact: yes, why: {yaml('because of ' + path)}, source: here}}\n"
        for path in paths
    )
    return load_text(site_text(("binds:\n", f"binds:\n{entries}")))


@pytest.fixture(scope="module")
def hostile_values(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return render(tmp_path_factory.mktemp("values") / "out", site_with_values(HOSTILE), rocm=["6.2"])


@each_lmod
def test_hostile_values_reach_the_environment_as_they_are(version: str, hostile_values: Path) -> None:
    lmod = Lmod(version, {TREE: hostile_values})
    commands = ["true", f"module load {AI}", f"module load {AI}", f"module unload {AI}", "! test -e /tmp/owned"]
    for before, loaded, again, after, clean in lmod.run_all([Session(commands), Session(commands, shell="sh")]):
        for number, value in enumerate(HOSTILE):
            assert loaded.environment[f"HOSTILE_{number}"] == value
        assert again.variables == loaded.variables
        assert after.variables == before.variables
        assert clean.code == 0, "something of a value was run"


def path_of(text: str) -> str:
    """A path that a site description takes, with as much of a text as can be in one."""
    whole = unicodedata.normalize("NFKC", text)
    return "/x/" + "".join(c for c in whole if c not in ',:"/' and c.isprintable()).strip() + "/y"


@each_lmod
def test_hostile_paths_reach_the_bind_variable_as_they_are(version: str, tmp_path: Path) -> None:
    paths = list(dict.fromkeys(map(path_of, HOSTILE)))
    tree = render(tmp_path / "out", site_with_paths(paths), rocm=["6.2"])
    lmod = Lmod(version, {TREE: tree})
    commands = ["true", f"module load {CPE}", f"module unload {CPE}", "! test -e /tmp/owned"]
    *runs, (told,) = lmod.run_all([Session(commands), Session(commands, shell="sh"), Session([f"module help {CPE}"])])
    for before, loaded, after, clean in runs:
        assert loaded.binds[: len(paths)] == paths
        assert after.variables == before.variables
        assert clean.code == 0
    assert ", ".join(paths[:3]) in told.words


TEXTS = tuple(text for text in HOSTILE if len(text) < 100)


def site_with_a_text(text: str) -> LoadedSite:
    """Give a site that has a text wherever one is told to users, its own file's name too."""
    words = f"[{yaml(f'key {text} x')}]"
    deprecated = f"{{successor: {yaml(f'{text} x')}, reason: {yaml(f'Since {text}')}}}"
    changes = (
        ("name: the developers of lumisite", f"name: {yaml(f'Dr {text} x')}"),
        ("keywords: [singularity, container, bind, cray", f"deprecated: {deprecated}\n    keywords: {words} #"),
    )
    return load_text(site_text(*changes), file=f"{text}.yaml")


@pytest.fixture(scope="module")
def hostile_texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A module for each text, under names of their own, so that one command can ask for all."""
    out = tmp_path_factory.mktemp("texts") / "out"  # which users can read
    for number, text in enumerate(TEXTS):
        tree = render(out / "trees" / str(number), site_with_a_text(text), rocm=["6.2"])
        (file,) = (tree / "modules" / CPE).glob("25.03*")
        (out / "modules" / f"text-{number}").mkdir(parents=True)
        file.rename(out / "modules" / f"text-{number}" / file.name)
    return out


@each_lmod
def test_hostile_texts_reach_help_and_whatis_as_they_are(version: str, hostile_texts: Path) -> None:
    names = " ".join(f"text-{number}" for number, _ in enumerate(TEXTS))
    load, told, summary, clean = Lmod(version, {TREE: hostile_texts}).run(
        f"module load {names}", f"module help {names}", f"module whatis {names}", "! test -e /tmp/owned"
    )
    assert load.code == told.code == summary.code == clean.code == 0
    assert len(load.modules) == len(TEXTS)
    for text in TEXTS:
        plain = " ".join(text.split())
        assert f"is deprecated: Since {plain} Use {plain} x instead." in load.words
        assert f"Dr {plain} x" in told.words
        assert f": Support: Dr {text} x, docs/" in summary.output
        assert f"key {text} x\n" in summary.output
