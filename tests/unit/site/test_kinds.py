"""Node kinds of one partition: which can be told apart on a node, and what is said where two cannot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lumisite.errors import SiteError
from lumisite.site.kinds import Fingerprint, NodeFacts
from lumisite.site.load import load_site
from lumisite.site.model import Site
from tests.support.sites import load_text, site_faults, site_text

#: Changes one at a time make another kind of it.
SMALL = "memory_mib: 1, source: here, l3: [{cores: 0-1, numa: 0}, {cores: 2-3, numa: 1}]"
GPUS = "gpus: [{l3: 0, numa: 0}, {l3: 1, numa: 1}]"
HERE = "partitions.standard-g.node_kind"


def changes(one: str, other: str, *more: tuple[str, str]) -> list[tuple[str, str]]:
    kinds = f"\nnode_kinds:\n  one: {{{one}}}\n  other: {{{other}}}\n"
    return [
        ("\nnode_kinds:\n", kinds),
        ("standard-g: {node_kind: [twin],", "standard-g: {node_kind: [one, other],"),
        ("  partition: standard-g\n", "  partition: small-g\n"),
        *more,
    ]


APART = {
    "GPUs": f"{SMALL}, {GPUS}",
    "GPUs, and no cores are described": "memory_mib: 1, source: here, l3: [{cores: '9', numa: 0}], gpus: [{numa: 0}]",
    "CPUs of nodes without GPUs": SMALL.replace("2-3", "2-4"),
}


@pytest.mark.parametrize("what", APART)
def test_kinds_that_differ_may_share_a_partition(what: str) -> None:
    site = load_text(site_text(*changes(SMALL, APART[what]))).site
    assert list(site.kinds_of("standard-g")) == ["one", "other"]


@pytest.mark.parametrize("other", [SMALL, SMALL.replace("2-3", "2-4")])
def test_kinds_with_as_many_gpus_are_a_fault(other: str) -> None:
    assert site_faults(*changes(f"{SMALL}, {GPUS}", f"{other}, {GPUS}")) == [
        f"{HERE}[1]: both other and one have 2 amd GPUs, so the task prolog cannot tell them apart"
    ]


def test_the_fault_has_its_place() -> None:
    text = site_text(*changes(f"{SMALL}, {GPUS}", f"{SMALL}, {GPUS}"))
    line = text[: text.index("standard-g: {node_kind")].count("\n") + 1
    column = text.splitlines()[line - 1].index("other") + 1
    with pytest.raises(SiteError) as caught:
        load_text(text)
    (finding,) = caught.value.findings
    assert (str(finding.place), finding.subject) == (f"site.yaml:{line}:{column}", f"{HERE}[1]")


@pytest.mark.parametrize(
    ("kinds", "fault"),
    [
        ("[]", f"{HERE}: names nothing"),
        ("[twin, twin]", f"{HERE}[1]: twin is listed twice"),
        ("[twin, twim]", f"{HERE}: twim is not known here"),
        ("{twin: x}", f"{HERE}: is a mapping, expected a list"),
    ],
)
def test_a_list_of_kinds_is_checked(kinds: str, fault: str) -> None:
    moved = ("  partition: standard-g\n", "  partition: small-g\n")
    assert site_faults(("standard-g: {node_kind: [twin],", f"standard-g: {{node_kind: {kinds},"), moved) == [fault]


def test_what_is_validated_has_nodes_of_one_kind() -> None:
    given = [change for change in changes(SMALL, APART["GPUs"]) if "partition" not in change[0]]
    assert site_faults(*given) == ["validation.partition: standard-g has nodes of several kinds: one, other"]


def test_what_differs_by_kind_is_not_known_of_a_partition() -> None:
    site: Site = load_text(site_text(*changes(SMALL, APART["GPUs"]))).site
    assert site.have_gpus("standard-g") is None
    assert site.have_gpus("small-g") is False
    assert load_site("lumi").site.have_gpus("small-g") is True
    assert list(site.kinds_of("small-g", "elsewhere", "standard-g")) == ["one", "other", "twin"]


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
