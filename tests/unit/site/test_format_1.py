"""Descriptions of format 1: what they said is what format 2 says, and their faults keep key and place."""

from __future__ import annotations

from pathlib import Path

import pytest

from lumisite.errors import SiteError
from lumisite.render.manifest import MANIFEST
from lumisite.render.render import render_tree
from lumisite.render.templates import load_templates
from lumisite.site.load import LoadedSite, load_site
from lumisite.site.selection import resolve_selection
from tests.support.sites import load_text

OLD = Path(__file__).parents[2] / "data/lumi-format-1.yaml"
TEXT = OLD.read_text()
NAME = "lumi.yaml"


def tree(loaded: LoadedSite, **asked: list[str]) -> dict[str, str]:
    named = LoadedSite(loaded.site, NAME, b"")
    files = render_tree(named, resolve_selection(loaded.site, platform=None, **asked), load_templates())
    return {path: file.text for path, file in files.items() if path != MANIFEST}


@pytest.mark.parametrize("asked", [{"rocm": ["6.2"]}, {"rocm": ["all"], "cpe": ["all", "24.03"]}])
def test_an_old_description_gives_the_same_tree(asked: dict[str, list[str]]) -> None:
    assert tree(load_site(str(OLD)), **asked) == tree(load_site("lumi"), **asked)


def test_private_caches_stay_on_the_first_node_local_file_system() -> None:
    more = "  - {path: /local, kind: node-local, why: w, source: TM}\n  - {path: /tmp, kind: node-local,"
    assert load_site(str(OLD)).site.private_places[0].path == "/tmp"
    places = load_text(TEXT.replace("  - {path: /tmp, kind: node-local,", more)).site.private_places
    assert [one.path for one in places] == ["/local"]


def faults(old: str, new: str) -> list[str]:
    assert old in TEXT
    with pytest.raises(SiteError) as caught:
        load_text(TEXT.replace(old, new, 1))
    return [f"{one.line}:{one.column}: {one.key}: {one.message}" for one in caught.value.problems]


@pytest.mark.parametrize(
    ("old", "new", "key", "message"),
    [
        ("  provider: cxi\n", "  provider: [cxi]\n", "network.provider", "is a list (one value would be right)"),
        ("    cpe: 25.03\n", "    cpe: 26.01\n", "platforms.2026-01.cpe", "26.01 is not described"),
        (
            "    driver_rocm: '>=6.1,<7.1'",
            "    driver_rocm: six",
            "platforms.2026-01.driver_rocm",
            "'six' is not a range",
        ),
        ("  24.03:\n    lib", "  24.o3:\n    lib", "cpe.24.o3", "'24.o3' is not a version"),
        ("  6.2.4: {found: both", "  6.2.4: {found: here", "rocm.6.2.4.found", "'here' is not known here"),
        ("    rocm_after: '*-rocm-'", "    rocm_after: ''", "families.easybuild.rocm_after", "has no text"),
        (
            "    default_for: '>=6.3'",
            "    default_for: x",
            "families.laif-multitorch.default_for",
            "'x' is not a range",
        ),
        ("    version: cpe-rocm\n", "    version: rocmm\n", "modules.singularity-AI-bindings.version", "rocmm is not"),
        ("  executable: /usr/bin/sing", "  executable: sing", "runtime.executable", "'singularity' is not an absolute"),
        ("  prefix: SINGULARITY\n", "  prefix: SING\n", "runtime.prefix", "'SING' is not known here"),
    ],
)
def test_a_fault_has_the_key_and_the_place_of_the_old_file(old: str, new: str, key: str, message: str) -> None:
    fault, *_ = faults(old, new)
    place, found, said = fault.split(": ", 2)
    line = TEXT[: TEXT.index(old)].count("\n") + old.count("\n", 0, -1) + 1  # a value may stand below its key
    assert (int(place.split(":")[0]), found) == (line, key)
    assert said.startswith(message)


def test_what_is_missing_is_named_as_the_old_file_has_it() -> None:
    assert [one.split(": ")[1] for one in faults("  provider: cxi\n", "")] == ["network.provider"]
    assert "runtime.name" in faults("  name: singularity\n", "")[0]


def test_a_file_of_another_format_is_refused() -> None:
    assert any("lumisite: '3' is not known here" in one for one in faults("lumisite: 1\n", "lumisite: 3\n"))
