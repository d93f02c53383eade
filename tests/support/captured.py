"""Facts of a LUMI-G node in files, in which changes are planted."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from lumisite.facts.capture import capture
from lumisite.facts.facts import Facts
from lumisite.site.load import load_site
from tests.support.dict_trees import DictTree, Link
from tests.support.nodes import AFTER, NodeFiles, lumi_node

LUMI = load_site("lumi").site
#: What is put into a node's files by path; `None` takes a file away.
Plant = Mapping[str, bytes | Link | None]
#: What was captured of files, by the hash of them.
_CAPTURED: dict[bytes, Facts] = {}


def facts_of(files: NodeFiles) -> Facts:
    """Capture a node of LUMI; of the same files, in the same order, there is one capture."""
    known = sha256(repr(files).encode()).digest()
    if known not in _CAPTURED:
        _CAPTURED[known] = capture(DictTree(files), LUMI).facts
    return _CAPTURED[known]


def node_with(*plants: Plant) -> Facts:
    """Capture a node after January 2026 with some changes, the last of which count."""
    changes: dict[str, bytes | Link | None] = {}
    for plant in plants:
        changes |= plant
    return facts_of(lumi_node(AFTER, changes))


def together(plants: Mapping[str, Plant]) -> Plant:
    """Merge plants of which no two are of one file."""
    merged: dict[str, bytes | Link | None] = {}
    for name, plant in plants.items():
        assert not merged.keys() & plant.keys(), f"{name}: {merged.keys() & plant.keys()}"
        merged |= plant
    return merged
