"""The sites of the package: each is sound and renders, says that it was never run, and is itself alone."""

from __future__ import annotations

import contextlib
import functools
import io
import re
import subprocess
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from lumisite.cli import main
from lumisite.site.load import LoadedSite, embedded_sites, load_site
from lumisite.site.model import Site
from lumisite.site.scalars import source_ids

TRIED = ("lumi", "twin")
SITES = [name for name in embedded_sites() if name not in TRIED]


@functools.cache
def site_of(name: str) -> LoadedSite:
    return load_site(name)


class Rendered(NamedTuple):
    """Every release that a site can be rendered for, in one tree, and what the command told beside it."""

    loaded: LoadedSite
    tree: dict[str, str]
    said: str

    @property
    def site(self) -> Site:
        return self.loaded.site


@pytest.fixture(scope="module", params=SITES)
def rendered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    loaded, out = site_of(request.param), tmp_path_factory.mktemp("site") / "tree"
    every = [word for stack in loaded.site.stacks for word in ("--use", f"{stack}=all")]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        assert main(["render", "--site", request.param, *every, "--out", str(out)]) == 0
    tree = {str(path.relative_to(out)): path.read_text() for path in out.rglob("*") if path.is_file()}
    return Rendered(loaded, tree, said.getvalue())


def test_each_is_shown_as_never_run(rendered: Rendered, capsys: pytest.CaptureFixture[str]) -> None:
    name, words = rendered.site.name, f"lumisite: {rendered.site.title} was never run with this"
    head = re.match("(#.*\n)+", rendered.loaded.data.decode())
    assert head is not None
    assert "Never run there" in head[0]
    assert main(["check", name]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"{name}.yaml: no faults")
    assert (err.count(words), rendered.said.count(words)) == (1, 1)


def test_every_source_has_its_entry(rendered: Rendered) -> None:
    used = {name for text in sources(rendered.site) for name in source_ids(text)}
    assert set(rendered.site.sources) - used == set()


def sources(value: object) -> list[str]:
    """Every `source` of a description."""
    if isinstance(value, tuple):
        return [text for one in value for text in sources(one)]
    if isinstance(value, Mapping):
        return [text for one in value.values() for text in sources(one)]
    if not is_dataclass(value):
        return []
    mine = getattr(value, "source", None)
    return [text for one in fields(value) for text in sources(getattr(value, one.name))] + ([mine] if mine else [])


def test_what_is_rendered_is_sound(rendered: Rendered, tmp_path: Path) -> None:
    scripts = [text for text in rendered.tree.values() if text.startswith("#!/bin/sh")]
    modules = [text for path, text in rendered.tree.items() if path.endswith(".lua")]
    for kind, texts in (("sh", scripts), ("lua", modules)):
        for number, text in enumerate(texts):
            (tmp_path / f"{number}.{kind}").write_text(text)
    for script in tmp_path.glob("*.sh"):
        subprocess.run(["dash", "-n", script], check=True)
    for module in tmp_path.glob("*.lua"):
        subprocess.run(["luac", "-p", module], check=True)
    assert scripts


@pytest.mark.parametrize(("name", "nics"), [("lumi", 4), ("university", None), ("twin", 4)])
def test_how_many_adapters_traffic_uses(name: str, nics: int | None) -> None:
    """Where nodes with GPUs have different ones, the node that is asked about tells."""
    site = site_of(name).site
    assert site.nics == nics
    assert {site.fabric_of(kind).nics for kind in site.node_kinds} == ({nics} if nics else {4, 8})


@pytest.mark.parametrize(
    ("site", "kind", "right"),
    [
        ("university", "h100", ["0-23", "24-47", "48-71", "72-95"]),
        ("university", "dgx", ["0-12", "13-25", "26-38", "39-51", "52-64", "65-77", "78-90", "91-103"]),
    ],
)
def test_masks_are_those_of_the_node(
    site: str, kind: str, right: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["masks", "--site", site, "--node", kind]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[2] for row in rows[1 : len(right) + 1]] == right
