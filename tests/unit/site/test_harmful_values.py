"""What the ledger may set by what is known to do harm, and what names tell of images."""

from __future__ import annotations

import re

import pytest

from lumisite.errors import SiteError
from lumisite.site.images import family_by_path, holds_by_name, releases_by_name
from lumisite.site.load import load_site
from lumisite.site.versions import parse_version
from tests.support.sites import load_text, site_faults, site_text

LUMI = load_site("lumi").site
SOURCES = "sources:\n  S: {title: t, address: 'https://example.org'}\n"


def faults(entry: str, sources: str = SOURCES) -> list[str]:
    """Give the faults of the twin's description with one entry of the ledger more, and a table of sources."""
    twin = re.sub(r"""source: ("[^"]*"|'[^']*'|[^,}\n]+)""", "source: here", site_text())
    text = twin.replace("settings:\n", f"settings:\n  - {{name: A, why: w, {entry}}}\n")
    try:
        load_text(text.replace("\nruntimes:\n", f"\n{sources}\nruntimes:\n"))
    except SiteError as error:
        return [f"{finding.subject}: {finding.message}" for finding in error.findings]
    return []


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ("value: '1', harmful: [{value: '1'}], source: S", "settings[0]: A is harmful where always"),
        (
            "value: '1', when: {family: [twin-torch]}, harmful: [{value: '1', when: {plugin: no}}], source: S",
            "settings[0]: A does harm in some images, and no condition is of what was read",
        ),
        ("leave: yes, source: T issue 3", "settings[0].source: T is not known here"),
        ("leave: yes", "settings[0].source: is missing"),
        (
            "leave: yes, harmful: [{value: x, when: {family: [twin-tarch]}}], source: S",
            "settings[0].harmful[0].when.family: twin-tarch is not known here",
        ),
        ("leave: yes, harmful: [{when: {nodes: one}}], source: S", "settings[0].harmful[0].value: is missing"),
        (
            "computed: master-port, when: {plugin: yes}, source: S",
            "settings[0].computed: is computed before any image is known",
        ),
        (
            "value: x, where: singularity-AI-bindings, when: {plugin: yes}, source: S",
            "settings[0].when.plugin: singularity-AI-bindings is loaded before plugin is known",
        ),
        ("value: '3', harmful: [{value: '[12]'}], source: S", ""),
        ("leave: yes, evidence: 'on 4 nodes', harmful: [{value: '*'}], source: S page 4; here", ""),
        ("value: '1', when: {nodes: several}, harmful: [{value: '1', when: {nodes: one}}], source: S", ""),
        ("directory: 'a/{rank}/b', with_directories: [c], source: S", ""),
    ],
)
def test_what_evidence_forbids_is_a_fault_at_its_place(entry: str, fault: str) -> None:
    found = faults(entry)
    assert any(one.startswith(fault) for one in found) if fault else found == [], found


def test_a_site_without_a_table_says_its_sources_in_its_own_words() -> None:
    for none in ("", "sources: {}"):
        assert faults("leave: yes, source: a memo", sources=none) == []


@pytest.mark.parametrize(
    ("where", "fault"),
    [
        ("task", "binds[0].when: the task prolog binds before any image is known"),
        ("singularity-CPEbits", "binds[0].when.family: singularity-CPEbits is loaded before family is known"),
    ],
)
def test_a_bind_that_depends_on_the_image_is_a_fault(where: str, fault: str) -> None:
    bind = f"binds:\n  - {{path: /x, where: {where}, when: {{family: [twin-torch]}}, why: w, source: here}}\n"
    assert any(one.startswith(fault) for one in site_faults(("binds:\n", bind)))


# ---- what a name tells of an image


@pytest.mark.parametrize(
    ("path", "family", "rocm"),
    [
        (
            "/appl/local/laifs/containers/a/lumi-multitorch-full-u24r70f21m50t210-20260807_115122.sif",
            "laif-rocm70",
            "7.0",
        ),
        ("/x/lumi-multitorch-u24r64f21m43t29-20260124_092648.sif", "laif-multitorch", "6.4"),
        ("/x/lumi-multitorch-u24r100f21.sif", "laif-multitorch", "10.0"),
        ("/x/lumi-multitorch-u24r714f21.sif", "laif-multitorch", None),
        ("/x/lumi-pytorch-rocm-6.2.4-python-3.12-pytorch-v2.7.1.sif", "lumi-pytorch", "6.2.4"),
        ("/x/lumi-pytorch-rocm-6.10.1-python-3.12-pytorch-v2.7.1.sif", "lumi-pytorch", "6.10.1"),
        ("/x/lumi-rocm-rocm-x.sif", "lumi-rocm", None),
        ("/x/mine.sif", None, None),
    ],
)
def test_a_name_states_the_family_and_the_rocm_release(path: str, family: str | None, rocm: str | None) -> None:
    holds = holds_by_name(LUMI, path)
    assert holds.family == family
    assert holds.stacks == {}, "no setting goes by a release that only a name states"
    assert releases_by_name(LUMI, path).get("rocm") == (None if rocm is None else parse_version(rocm))
    assert holds.plugin is None, "a name does not tell whether the plugin finds a libfabric"


def test_where_a_name_leads_counts_more_than_the_name() -> None:
    laif, torch = (
        "/x/lumi-multitorch-u24r70f21m50t210-1.sif",
        "/x/lumi-pytorch-rocm-6.2.4-python-3.12-pytorch-v2.7.1.sif",
    )
    assert family_by_path(LUMI, laif, torch) == "laif-rocm70"
    assert family_by_path(LUMI, torch, laif) == "lumi-pytorch"
    assert str(releases_by_name(LUMI, laif, "/home/me/lumi-pytorch-rocm-6.1.3-x.sif")["rocm"]) == "7.0"


# ---- harm that another entry knows of

LEFT = "{name: A, leave: yes, why: w, harmful: [{value: 'x*', WHEN}], source: S}"


@pytest.mark.parametrize(
    ("entry", "harm", "is_fault"),
    [
        ("value: x", "when: {stacks: {rocm: '>=7.0'}}", True),
        ("value: x, when: {nodes: several}", "when: {nodes: several, stacks: {rocm: '>=7.0'}}", True),
        ("value: x, when: {stacks: {rocm: '<7.1'}}", "when: {stacks: {rocm: '>=7.0'}}", True),
        ("value: x, when: {stacks: {rocm: '<7'}}", "when: {stacks: {rocm: '>=7.0'}}", False),
        ("value: x, when: {stacks: {rocm: '==6.2.4'}}", "when: {stacks: {rocm: '>=6.2.5'}}", False),
        ("value: x, when: {nodes: several}", "when: {nodes: one}", False),
        ("value: x, when: {kind: [twin-gpu]}", "when: {kind: [twin-gpu]}", True),
        ("value: y", "when: {stacks: {rocm: '>=7.0'}}", False),
    ],
)
def test_no_entry_sets_what_another_knows_to_do_harm(entry: str, harm: str, is_fault: bool) -> None:
    kind = next(iter(load_site("twin").site.node_kinds))
    entries = f"{entry}, source: S}}\n  - {LEFT.replace('WHEN', harm).removesuffix('}')}".replace("twin-gpu", kind)
    harmful = [fault for fault in faults(entries) if "is harmful where" in fault or "does harm in some" in fault]
    assert [one.partition(":")[0] for one in harmful] == (["settings[0]"] if is_fault else [])
