"""Any text that a site description may hold comes out of Lmod as it went in, and runs nowhere."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lumisite.errors import UnfitError
from lumisite.site.load import LoadedSite
from lumisite.site.scalars import read_value
from tests.support.sites import load_text, site_text
from tests.twin.lmod import TREE, VERSIONS, Lmod, Session, Step, each_lmod, render

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


def check_help_of_paths(told: Step, paths: Sequence[str]) -> None:
    """Look for the first paths on the screen of `module help`."""
    assert ", ".join(paths[:3]) in told.words


@pytest.fixture(scope="module")
def hostile_values(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return render(tmp_path_factory.mktemp("values") / "out", site_with_values(HOSTILE), rocm=["6.2"])


def check_values(version: str, tree: Path, values: Sequence[str]) -> None:
    lmod = Lmod(version, {TREE: tree})
    commands = ["true", f"module load {AI}", f"module load {AI}", f"module unload {AI}", "! test -e /tmp/owned"]
    for before, loaded, again, after, clean in lmod.run_all([Session(commands), Session(commands, shell="sh")]):
        for number, value in enumerate(values):
            assert loaded.environment[f"HOSTILE_{number}"] == value
        assert again.variables == loaded.variables
        assert after.variables == before.variables
        assert clean.code == 0, "something of a value was run"


@each_lmod
def test_hostile_values_reach_the_environment_as_they_are(version: str, hostile_values: Path) -> None:
    check_values(version, hostile_values, HOSTILE)


def may_be_a_value(text: str) -> bool:
    """Tell whether a site description may hold it; what a reviewer cannot see it may not."""
    try:
        return text == read_value(text)
    except UnfitError:
        return False


VALUES = st.text(
    st.one_of(
        st.sampled_from("\\\"'`$]=[%,:;&|<>(){}!#~*? \t-"),
        st.characters(codec="utf-8", categories=["L", "M", "N", "P", "S", "Z", "Co", "Cn"]),
    ).filter(may_be_a_value),
    max_size=30,
).filter(may_be_a_value)


@settings(
    max_examples=2,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(values=st.lists(VALUES, min_size=60, max_size=60))
def test_any_value_reaches_the_environment_as_it_is(values: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    render(out, site_with_values(values), rocm=["6.2"])
    for version in VERSIONS:
        check_values(version, out, values)


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
    check_help_of_paths(told, paths)


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


def render_texts(out: Path, below: str, change: Callable[[LoadedSite], LoadedSite]) -> Path:
    """Write a module for each text, under names of their own, so that one command can ask for all."""
    for number, text in enumerate(TEXTS):
        tree = render(out / "trees" / str(number), change(site_with_a_text(text)), rocm=["6.2"])
        (file,) = (tree / below / CPE).glob("25.03*")
        (out / below / f"text-{number}").mkdir(parents=True)
        file.rename(out / below / f"text-{number}" / file.name)
    return out


def check_texts(system: Lmod) -> None:
    """Check what a module system tells of them."""
    names = " ".join(f"text-{number}" for number, _ in enumerate(TEXTS))
    load, told, summary, clean = system.run(
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


@pytest.fixture(scope="module")
def hostile_texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return render_texts(tmp_path_factory.mktemp("texts") / "out", "modules", lambda site: site)


@each_lmod
def test_hostile_texts_reach_help_and_whatis_as_they_are(version: str, hostile_texts: Path) -> None:
    check_texts(Lmod(version, {TREE: hostile_texts}))


@each_lmod
def test_the_python_output_of_lmod_gives_the_same_values_but_for_tabs(version: str, hostile_values: Path) -> None:
    """As Python programs use Lmod. It writes a tab as \\9, which Python reads as two characters."""
    lmod = Lmod(version, {TREE: hostile_values})
    program = (
        "import json, os, subprocess; "
        f"code = subprocess.run([os.environ['LMOD_CMD'], 'python', 'load', '{AI}'], capture_output=True).stdout; "
        "exec(code); print(json.dumps({k: v for k, v in os.environ.items() if k.startswith('HOSTILE')}))"
    )
    (step,) = lmod.run(f'python3 -W ignore -c "{program}"')
    assert step.code == 0, step.output
    found = json.loads(step.output)
    for number, value in enumerate(HOSTILE):
        assert found[f"HOSTILE_{number}"] == value.replace("\t", "\\9")
