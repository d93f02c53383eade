"""The sites of the package: which were never tried, their sources, and what their nodes have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from lumisite.cli import main
from lumisite.site.load import embedded_sites, load_site
from lumisite.site.node_recognition import Fingerprint, NodeFacts
from lumisite.site.scalars import source_ids


@pytest.mark.parametrize("command", ["check", "render --use cuda=all --site"])
def test_a_site_that_was_never_tried_is_shown_as_that(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    loaded = load_site("university")
    assert "Never run there" in loaded.data.decode().partition("\n\n")[0]
    assert main([*command.split(), "university"]) == 0
    assert capsys.readouterr().err.count(f"lumisite: {loaded.site.title} was never run with this") == 1


@pytest.mark.parametrize("name", embedded_sites())
def test_every_source_is_used(name: str) -> None:
    site = load_site(name).site
    used = {source for text in sources(site) for source in source_ids(text)}
    assert set(site.sources) - used == set()


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


@pytest.mark.parametrize(("name", "nics"), [("lumi", 4), ("university", None), ("twin", 4)])
def test_how_many_adapters_traffic_uses(name: str, nics: int | None) -> None:
    """Where nodes with GPUs have different ones, the node that is asked about tells."""
    site = load_site(name).site
    assert site.nics == nics
    assert {site.fabric_of(kind).nics for kind in site.node_kinds} == ({nics} if nics else {4, 8})


def test_what_a_node_has_otherwise_is_one_finding_each() -> None:
    kind = Fingerprint("0-3", "0-1", {0: 0, 2: 1}, ((0, 0), (2, 1)), "2 amd", (("0000:c1:00.0",),))
    same = NodeFacts("0-3", "0-3", "0-1", {0: 0, 2: 1}, "2 amd", ("0000:c1:00.0",))
    changes: dict[str, dict[str, Any]] = {
        "CPUs 0-1, expected 0-3": {"present": "0-1", "online": "0-1"},
        "NUMA domains 0-3, expected 0-1": {"domains": "0-3"},
        "CPU 2 outside NUMA domain 1": {"domain_of": {0: 0, 2: 0}},
        "GPUs 1 amd at 0000:c1:00.0, expected 2 amd": {"gpus": "1 amd"},
        "GPUs at 0000:d1:00.0, expected 0000:c1:00.0": {"buses": ("0000:d1:00.0",)},
    }
    assert not list(kind.differences(same))
    for text, change in changes.items():
        assert list(kind.differences(replace(same, **change))) == [text]
