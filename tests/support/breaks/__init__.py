"""Each change of a LUMI-G node that a test plants: one row says what is planted, and what the report must say of it."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from lumisite.facts.capture import capture
from lumisite.facts.facts import Facts
from lumisite.facts.report import ChangeReport, make_report
from lumisite.site.load import load_site
from lumisite.site.model import Site
from lumisite.site.plans import LoadedPlan
from tests.support.breaks.hardware import HARDWARE
from tests.support.breaks.harmless import Quiet
from tests.support.breaks.libraries import LIBRARIES
from tests.support.breaks.row import Break
from tests.support.breaks.software import SOFTWARE
from tests.support.dict_trees import DictTree
from tests.support.nodes import AFTER, NodeFiles, lumi_node

LUMI = load_site("lumi").site
#: A row more in one of these is a test more.
BREAKS: Mapping[str, Break] = {**LIBRARIES, **SOFTWARE, **HARDWARE}


#: What was captured of files, by the hash of them, and the site.
_CAPTURED: dict[tuple[bytes, Site], Facts] = {}


def facts_of(files: NodeFiles, site: Site = LUMI) -> Facts:
    """Capture a node; of the same files, in the same order, there is one capture."""
    known = sha256(repr(files).encode()).digest(), site
    if known not in _CAPTURED:
        _CAPTURED[known] = capture(DictTree(files), site).facts
    return _CAPTURED[known]


def report_of(row: Break | Quiet, plans: tuple[LoadedPlan, ...] = ()) -> ChangeReport:
    """Capture a node before and after a change, and compare."""
    before, after = (facts_of(lumi_node(AFTER, files)) for files in (row.both, {**row.both, **row.files}))
    return make_report(before, after, LUMI, plans=plans)
