"""Evidence: what the ledger may set by what is known, and what must be said with it."""

from __future__ import annotations

import doctest
import re

import pytest

import lumisite.site.evidence
import lumisite.site.images
from lumisite.errors import SiteError
from lumisite.findings.catalogue import make_finding
from lumisite.site.evidence import checked, evidence_of, harms, rank, remark
from lumisite.site.images import family_by_path, holds_by_name
from lumisite.site.load import load_site
from lumisite.site.versions import parse_version
from tests.support.sites import load_text, site_faults, site_text

LUMI = load_site("lumi").site
SOURCES = "sources:\n  S: {title: t, address: 'https://example.org'}\n"
SEEN = "platform: 2026-01, nodes: 2-8, date: 2026-09"


def faults(entry: str, sources: str = SOURCES) -> list[str]:
    """Give the faults of the twin's description with one entry of the ledger more, and a table of sources."""
    twin = re.sub(r"""source: ("[^"]*"|'[^']*'|[^,}\n]+)""", "source: here", site_text())
    text = twin.replace("settings:\n", f"settings:\n  - {{name: A, why: w, {entry}}}\n")
    try:
        load_text(text.replace("\nruntimes:\n", f"\n{sources}\nruntimes:\n"))
    except SiteError as error:
        return [f"{finding.subject}: {finding.code}" for finding in error.findings]
    return []


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        (
            f"value: '1', evidence: [{{effect: harmful, by: measured, {SEEN}, source: S}}]",
            "settings[0].evidence[0]: harmful-value-set",
        ),
        (
            f"value: '1', evidence: [{{effect: harmful, by: measured, of: '[12]', {SEEN}, source: S}}]",
            "settings[0].evidence[0]: harmful-value-set",
        ),
        (
            f"value: '1', evidence: [{{effect: inert, by: measured, {SEEN}, source: S}}]",
            "settings[0].evidence[0]: inert-value-set",
        ),
        (
            (
                f"value: '1', evidence: [{{effect: inert, by: measured, {SEEN}, source: S}}, "
                "{effect: helps, by: documented, nodes: 1-4, source: S}]"
            ),
            "settings[0].evidence[0]: inert-value-set",
        ),
        (
            "leave: yes, evidence: [{effect: inert, by: measured, platform: 2026-01, source: S}]",
            "settings[0].evidence[0].nodes: key-missing",
        ),
        (
            "leave: yes, evidence: [{effect: inert, by: measured, nodes: 4, source: S}]",
            "settings[0].evidence[0].date: key-missing",
        ),
        (
            f"leave: yes, evidence: [{{effect: inert, by: measured, metric: stalls, {SEEN}, source: S}}]",
            "settings[0].evidence[0]: evidence-unfit",
        ),
        (
            f"leave: yes, evidence: [{{effect: inert, by: measured, metric: mood, {SEEN}, source: S}}]",
            "settings[0].evidence[0].metric: unknown-name",
        ),
        ("leave: yes, evidence: [{effect: inert, by: documented}]", "settings[0].evidence[0].source: key-missing"),
        (
            "leave: yes, evidence: [{effect: inert, by: documented, source: T issue 3}]",
            "settings[0].evidence[0].source: unknown-name",
        ),
        ("leave: yes, source: s issue 3", "settings[0].source: unknown-name"),
        ("leave: yes", "settings[0]: key-missing"),
        (
            "leave: yes, evidence: [{effect: useful, by: documented, source: S}]",
            "settings[0].evidence[0].effect: unknown-name",
        ),
        (
            f"leave: yes, evidence: [{{effect: inert, by: measured, {SEEN.replace('2026-01', '2031')}, source: S}}]",
            "settings[0].evidence[0].platform: unknown-name",
        ),
        (
            "leave: yes, evidence: [{effect: helps, by: inferred, when: {family: [twin-tarch]}, source: S}]",
            "settings[0].evidence[0].when.family: unknown-name",
        ),
        (
            "leave: yes, evidence: [{effect: inert, by: documented, nodes: some, source: S}]",
            "settings[0].evidence[0].nodes: wrong-type",
        ),
        (
            "computed: master-port, when: {plugin: yes}, source: S",
            "settings[0].computed: condition-unknowable",
        ),
        (
            "value: x, where: singularity-AI-bindings, when: {plugin: yes}, source: S",
            "settings[0].when.plugin: condition-unknowable",
        ),
        (
            "value: x, where: singularity-AI-bindings, when: {gpus: yes}, source: S",
            "settings[0].when.gpus: condition-unknowable",
        ),
        ("value: x, with_directories: [a], source: S", "settings[0].with_directories: key-without-effect"),
    ],
)
def test_what_evidence_forbids_is_a_fault_at_its_place(entry: str, fault: str) -> None:
    found = faults(entry)
    assert any(one.startswith(fault) for one in found), found


@pytest.mark.parametrize(
    "entry",
    [
        f"value: '3', evidence: [{{effect: harmful, by: measured, of: '[12]', {SEEN}, source: S}}]",
        f"leave: yes, evidence: [{{effect: harmful, by: measured, {SEEN}, source: S page 4; here}}]",
        f"value: '3', evidence: [{{effect: unknown, by: measured, metric: stalls, {SEEN}, source: S}}]",
        (
            f"value: '1', evidence: [{{effect: inert, by: measured, {SEEN}, source: S}}, "
            "{effect: needed, by: documented, nodes: 9+, source: S}]"
        ),
        (
            f"value: '1', evidence: [{{effect: inert, by: measured, {SEEN}, source: S}}, "
            "{effect: helps, by: documented, source: S}]"
        ),
        "directory: 'a/{rank}/b', with_directories: [c], source: S",
    ],
)
def test_what_evidence_allows_is_none(entry: str) -> None:
    assert faults(entry) == []


def test_a_bind_that_depends_on_the_image_is_a_fault() -> None:
    bind = "binds:\n  - {path: /x, where: WHERE, when: {family: [twin-torch]}, why: w, source: here}\n"
    assert any(
        one.startswith("binds[0].when: condition-unknowable")
        for one in site_faults(("binds:\n", bind.replace("WHERE", "task")))
    )
    assert any(
        one.startswith("binds[0].when.family: condition-unknowable")
        for one in site_faults(("binds:\n", bind.replace("WHERE", "singularity-CPEbits")))
    )


def test_a_site_without_a_table_says_its_sources_in_its_own_words() -> None:
    site = load_text(site_text(("settings:\n", "settings:\n  - {name: A, leave: yes, why: w, source: a memo}\n"))).site
    (known,) = evidence_of(site.settings[0])
    assert (known.effect, known.by, known.source) == ("unknown", "documented", "a memo")
    for none in ("", "sources: {}"):
        (fault,) = faults("leave: yes, evidence: [{effect: inert, by: documented, source: a memo}]", sources=none)
        assert fault == "settings[0].evidence: sources-undescribed"


def test_no_value_of_lumis_ledger_is_known_to_do_harm() -> None:
    bad = {(harm.setting.name, pattern) for harm in harms(LUMI) for pattern in harm.patterns}
    assert {("NCCL_NET_GDR_LEVEL", "PHB"), ("NCCL_PROTO", "LL128*"), ("FI_MR_CACHE_MONITOR", "kdreg2")} <= bad
    assert all(setting.evidence for setting in LUMI.settings)


def test_what_was_measured_inert_and_is_set_says_so() -> None:
    remarks = {str(setting.name): remark(setting) for setting in LUMI.settings if remark(setting)}
    assert remarks["NCCL_CROSS_NIC"] == make_finding("inert-where-measured", "NCCL_CROSS_NIC", size="4", metric="speed")
    assert {found.code for found in remarks.values() if found} <= {"inert-where-measured", "inert-on-fewer-nodes"}
    assert "FI_MR_CACHE_MONITOR" not in remarks
    assert "HSA_NO_SCRATCH_RECLAIM" not in remarks  # left alone


def test_what_is_needed_stands_before_what_helps() -> None:
    by_name = {str(setting.name): setting for setting in LUMI.settings}
    assert rank(by_name["FI_MR_CACHE_MONITOR"]) < rank(by_name["NCCL_CROSS_NIC"]) < rank(by_name["OMP_NUM_THREADS"])


def test_the_day_of_the_last_check_follows_from_evidence() -> None:
    by_name = {str(setting.name): setting for setting in LUMI.settings}
    assert checked(by_name["FI_MR_CACHE_MONITOR"]) == "2026-09 on platform 2026-01"
    assert checked(by_name["FI_CXI_DISABLE_HOST_REGISTER"]) == "never"


# ---- what a name tells of an image


@pytest.mark.parametrize(
    ("path", "family", "rocm"),
    [
        ("/appl/local/laifs/containers/a/lumi-multitorch-full-u24r70f21m50t210-20260807_115122.sif", 0, "7.0"),
        ("/x/lumi-multitorch-u24r64f21m43t29-20260124_092648.sif", 0, "6.4"),
        ("/x/lumi-multitorch-latest.sif", 0, None),
        ("/x/lumi-multitorch-u24r7f21.sif", 0, None),
        ("/x/lumi-multitorch-u24r100f21.sif", 0, "10.0"),
        ("/x/lumi-multitorch-u24r714f21.sif", 0, None),
        ("/x/lumi-pytorch-rocm-6.2.4-python-3.12-pytorch-v2.7.1.sif", 1, "6.2.4"),
        ("/x/lumi-pytorch-rocm-6.10.1-python-3.12-pytorch-v2.7.1.sif", 1, "6.10.1"),
        ("/x/lumi-rocm-rocm-6.2.4.sif", 2, "6.2.4"),
        ("/x/lumi-rocm-rocm-x.sif", 2, None),
        ("/x/mine.sif", 3, None),
    ],
)
def test_a_name_tells_the_family_and_the_rocm_release(path: str, family: int, rocm: str | None) -> None:
    name = ("laif-multitorch", "lumi-pytorch", "lumi-rocm", None)[family]
    holds = holds_by_name(LUMI, path)
    assert holds.family == name
    assert holds.stacks.get("rocm") == (None if rocm is None else parse_version(rocm))
    assert holds.plugin is (None if name is None else True)


def test_where_a_name_leads_counts_more_than_the_name() -> None:
    laif, torch = (
        "/x/lumi-multitorch-u24r70f21m50t210-1.sif",
        "/x/lumi-pytorch-rocm-6.2.4-python-3.12-pytorch-v2.7.1.sif",
    )
    assert family_by_path(LUMI, laif, torch) == "laif-multitorch"
    assert family_by_path(LUMI, torch, laif) == "lumi-pytorch"
    assert str(holds_by_name(LUMI, laif, "/home/me/lumi-pytorch-rocm-6.1.3-x.sif").stacks["rocm"]) == "7.0"


def test_examples_in_docstrings() -> None:
    for module in (lumisite.site.evidence, lumisite.site.images):
        assert doctest.testmod(module).failed == 0


# ---------------------------------------------------------------- harm that another entry knows of

LEFT = "{name: A, leave: yes, why: w, evidence: [{effect: harmful, by: documented, of: 'x*', WHEN, source: S}]}"


@pytest.mark.parametrize(
    ("entry", "harm", "is_fault"),
    [
        ("value: x", "when: {rocm: '>=7.0'}", True),
        ("value: x, when: {nodes: several}", "when: {nodes: several, rocm: '>=7.0'}", True),
        ("value: x, when: {rocm: '<7.1'}", "when: {rocm: '>=7.0'}", True),
        ("value: x, when: {plugin: yes}", "when: {rocm: '>=7.0'}", True),
        ("value: x, when: {rocm: '<7'}", "when: {rocm: '>=7.0'}", False),
        ("value: x, when: {rocm: '==6.2.4'}", "when: {rocm: '>=6.2.5'}", False),
        ("value: x, when: {plugin: yes}", "when: {plugin: no}", False),
        ("value: x, when: {nodes: several}", "when: {nodes: one}", False),
        ("value: x, when: {kind: [twin-gpu]}", "when: {kind: [twin-gpu]}", True),
        ("value: y", "when: {rocm: '>=7.0'}", False),
        ("directory: a", "when: {rocm: '>=7.0'}", False),
        ("unset: yes", "when: {rocm: '>=7.0'}", False),
    ],
)
def test_no_entry_sets_what_another_knows_to_do_harm(entry: str, harm: str, is_fault: bool) -> None:
    kind = next(iter(load_site("twin").site.node_kinds))
    entries = f"{entry}, source: S}}\n  - {LEFT.replace('WHEN', harm).removesuffix('}')}".replace("twin-gpu", kind)
    harmful = [fault for fault in faults(entries) if "harmful-value-set" in fault]
    assert harmful == (["settings[0]: harmful-value-set"] if is_fault else [])
