"""Node kinds of one partition: which can be told apart on a node, and what is said where two cannot."""

from __future__ import annotations

from dataclasses import replace

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
    "CPUs": SMALL.replace("2-3", "2-4"),
    "domains": SMALL.replace("numa: 1", "numa: 2"),
    "numbers of CPUs": SMALL.replace("0-1", "'0,2'").replace("2-3", "'1,3'"),
    "GPUs": f"{SMALL}, {GPUS}",
    "GPUs, and no cores are described": "memory_mib: 1, source: here, l3: [{cores: '9', numa: 0}], gpus: [{numa: 0}]",
}


@pytest.mark.parametrize("what", APART)
def test_kinds_that_differ_may_share_a_partition(what: str) -> None:
    site = load_text(site_text(*changes(SMALL, APART[what]))).site
    assert list(site.kinds_of("standard-g")) == ["one", "other"]


BUSES = "    os: Debian\n    gpu_bus_ids: {{one: [c1, c6], other: [{}]}}\n"


def test_addresses_of_gpus_tell_kinds_apart() -> None:
    both = f"{SMALL}, {GPUS}"
    for ids, fine in (("c1, c9", True), ("c6, c1", False), ("'00000000:C1:00.0', c6", False)):
        # The platform in force is the second.
        old, new = "    since: 2026-01-21\n    os: Debian\n", f"    since: 2026-01-21\n{BUSES.format(ids)}"
        given = changes(both, both, (old, new))
        if fine:
            assert load_text(site_text(*given)).site.have_gpus("standard-g") is True
        else:
            assert len(site_faults(*given)) == 1


ALIKE = {
    "all": SMALL,
    "memory and reserved cores": (SMALL.replace("mib: 1", "mib: 2") + ", reserved: '0'"),
    "nothing is described": "memory_mib: 1, source: here, l3: []",
    # No node of the first kind has CPU 3 in domain 0; one of this kind has all that is looked at of the first.
    "numbers that are looked at for one kind alone": (
        SMALL.replace(
            "{cores: 0-1, numa: 0}, {cores: 2-3, numa: 1}",
            "{cores: '0', numa: 0}, {cores: '3', numa: 0}, {cores: '2,1', numa: 1}",
        )
    ),
    # Its first cores are where the other kind has them too: a node of the other kind would be taken for both.
    "L3 groups": (SMALL.replace("{cores: 0-1, numa: 0}", "{cores: '0', numa: 0}, {cores: '1', numa: 0}")),
}


@pytest.mark.parametrize("what", ALIKE)
def test_kinds_that_a_node_cannot_tell_apart_are_a_fault(what: str) -> None:
    assert site_faults(*changes(SMALL, ALIKE[what])) == [f"{HERE}[1]: kinds-not-distinct"]


def test_the_fault_has_its_place() -> None:
    text = site_text(*changes(SMALL, SMALL))
    line = text[: text.index("standard-g: {node_kind")].count("\n") + 1
    column = text.splitlines()[line - 1].index("other") + 1
    with pytest.raises(SiteError) as caught:
        load_text(text)
    (finding,) = caught.value.findings
    assert (str(finding.place), finding.subject) == (f"site.yaml:{line}:{column}", f"{HERE}[1]")


@pytest.mark.parametrize(
    ("kinds", "fault"),
    [
        ("[]", f"{HERE}: list-empty"),
        ("[twin, twin]", f"{HERE}[1]: named-twice"),
        ("[twin, twim]", f"{HERE}: unknown-name"),
        ("{twin: x}", f"{HERE}: wrong-shape"),
    ],
)
def test_a_list_of_kinds_is_checked(kinds: str, fault: str) -> None:
    moved = ("  partition: standard-g\n", "  partition: small-g\n")
    assert site_faults(("standard-g: {node_kind: [twin],", f"standard-g: {{node_kind: {kinds},"), moved) == [fault]


def test_what_is_validated_has_nodes_of_one_kind() -> None:
    given = [change for change in changes(SMALL, APART["GPUs"]) if "partition" not in change[0]]
    assert site_faults(*given) == ["validation.partition: validation-of-several-kinds"]


def test_what_differs_by_kind_is_not_known_of_a_partition() -> None:
    site: Site = load_text(site_text(*changes(SMALL, APART["GPUs"]))).site
    assert site.have_gpus("standard-g") is None
    assert site.have_gpus("small-g") is False
    assert load_site("lumi").site.have_gpus("small-g") is True
    assert list(site.kinds_of("small-g", "elsewhere", "standard-g")) == ["one", "other", "twin"]


def test_what_a_node_has_otherwise_is_one_finding_each() -> None:
    kind = Fingerprint("0-3", "0-1", {0: 0, 2: 1}, ((0, 0), (2, 1)), "2 amd", (("0000:c1:00.0",),))
    same = NodeFacts("0-3", "0-3", "0-1", {0: 0, 2: 1}, "2 amd", ("0000:c1:00.0",))
    changes = {
        "node-cpus": {"present": "0-1", "online": "0-1"},
        "node-domains": {"domains": "0-3"},
        "node-cpu-domain": {"domain_of": {0: 0, 2: 0}},
        "node-gpus": {"gpus": "1 amd"},
        "node-gpu-buses": {"buses": ("0000:d1:00.0",)},
    }
    assert not list(kind.differences(same))
    for code, change in changes.items():
        assert [finding.code for finding in kind.differences(replace(same, **change))] == [code]  # type: ignore[arg-type]
