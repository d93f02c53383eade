"""The draft of the platform: it passes `check` after every break."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from lumisite.facts.facts import Facts
from lumisite.facts.report import ChangeReport, make_report
from lumisite.site.load import EMBEDDED, load_site
from tests.support.breaks import BREAKS, LUMI, facts_of, pasted, report_of
from tests.support.breaks.software import renamed_libfabric
from tests.support.dict_trees import Link
from tests.support.nodes import AFTER, BEFORE, lumi_node
from tests.support.sites import load_text


@pytest.fixture(name="node", scope="module")
def _node() -> Facts:
    return facts_of(lumi_node())


@pytest.fixture(name="january", scope="module")
def _january(node: Facts) -> ChangeReport:
    return make_report(facts_of(lumi_node(BEFORE)), node, LUMI)


def test_the_draft_of_january_is_the_platform_of_january(january: ChangeReport) -> None:
    drafted = pasted("lumi", january.draft).platforms["draft"]
    known = LUMI.platforms["2026-01"]
    assert (drafted.os, drafted.slurm, drafted.defaults) == (known.os, known.slurm, known.defaults)
    assert drafted.gpu_bus_ids == known.gpu_bus_ids
    assert drafted.libraries == known.libraries
    assert str(drafted.stacks["rocm"].runs) == str(known.stacks["rocm"].runs)
    assert not drafted.confirmed


@pytest.mark.parametrize("name", BREAKS)
def test_the_draft_passes_check_after_every_break(name: str) -> None:
    assert "draft" in pasted("lumi", report_of(BREAKS[name]).draft).platforms


def test_the_draft_of_new_releases_describes_them() -> None:
    planted: dict[str, bytes | Link | None] = {
        "/opt/cray/pe/cpe/27.03/set": b"",
        "/opt/cray/pe/cpe/25.03/set": None,
        "/opt/cray/pe/cpe/25.09/set": None,
        "/opt/cray/pe/cpe/default": Link("27.03"),
        "/opt/rocm-7.2.1/lib/x": b"",
        "/opt/rocm": Link("rocm-7.2.1"),
    }
    report = make_report(facts_of(lumi_node()), facts_of(lumi_node(AFTER, planted)), LUMI)
    site = pasted("lumi", report.draft)
    platform = site.platforms["draft"]
    assert list(map(str, platform.defaults.values())) == ["27.03", "7.2.1"]
    assert str(platform.stacks["rocm"].runs) == ">=7.2,<7.3"
    assert site.releases("cpe")["27.03"].libraries == {}
    assert site.releases("rocm")["7.2.1"].found == "host"
    assert any("# guessed: " in line and ">=6.1,<7.1" in line for line in report.draft)
    assert any("# QUESTION: " in line and "libraries" in line for line in report.draft)


def test_the_draft_takes_the_newest_release_where_no_link_names_the_default() -> None:
    planted: dict[str, bytes | Link | None] = {
        "/opt/cray/libfabric/1.9.0/lib64/x": b"",
        "/opt/cray/libfabric/default": None,
        "/opt/cray/pe/cpe/default": None,
    }
    draft = make_report(facts_of(lumi_node()), facts_of(lumi_node(AFTER, planted)), LUMI).draft
    assert pasted("lumi", draft).platforms["draft"].libraries == {"libfabric": "/opt/cray/libfabric/1.22.0"}
    assert any("# guessed: libraries.libfabric: " in line and "1.9.0, 1.22.0" in line for line in draft)


def test_a_rocm_release_that_no_family_stands_for_is_not_drafted() -> None:
    text = (EMBEDDED / "lumi.yaml").read_text()
    site = load_text(text.replace("default_for: {rocm: '>=6.3'}", "default_for: {rocm: '>=6.3,<7.3'}")).site
    planted: dict[str, bytes | Link | None] = {"/opt/rocm-7.4.1/lib/x": b"", "/opt/rocm": Link("rocm-7.4.1")}
    report = make_report(facts_of(lumi_node()), facts_of(lumi_node(AFTER, planted)), site)
    assert "        default: 6.3.4" in report.draft
    assert any("# guessed: " in line and "7.4.1" in line for line in report.draft)
    narrow = load_text(
        text.replace("default_for: {rocm: '>=6.3'}", "default_for: {rocm: '>=6.3,!=6.3.4'}")
        .replace("rocm: {default: 6.3.4", "rocm: {default: 6.4.4")
        .replace("  6.3.4: {found", "  6.3.5: {found")
    ).site
    report = make_report(facts_of(lumi_node()), facts_of(lumi_node()), narrow)
    assert "        default: 6.4.4" in report.draft


def test_the_draft_of_a_bare_node_keeps_what_it_cannot_know_and_says_so(node: Facts) -> None:
    report = make_report(node, Facts(site="lumi"), LUMI)
    platform = pasted("lumi", report.draft).platforms["draft"]
    assert platform.os == "SLES 15 SP6"
    text = "\n".join(report.draft)
    for key in ("os", "driver", "runs", "default", "libraries"):
        assert re.search(rf"# guessed: .*\n +{key}: ", text), key
    assert text.count("# QUESTION: ") == 4, "since, Slurm, kernel, GPUs"


def test_the_draft_holds_hostile_facts_as_text(node: Facts) -> None:
    for text in (
        "a: b",
        "- x",
        "#no",
        "{a",
        "'",
        '"',
        "no",
        "a\u2028b",
        "5",
        "\x7f",
        "\udc80",
        "&a",
        "*a",
        "!!x",
        "|",
        "ä",
    ):
        hostile = replace(node, os=replace(node.os, name=text), host=text)
        report = make_report(node, hostile, LUMI)
        assert "draft" in pasted("lumi", report.draft).platforms, text


def test_the_draft_of_the_twin_passes_check() -> None:
    twin = load_site("twin").site
    facts = facts_of(lumi_node(AFTER, renamed_libfabric()), twin)
    platform = pasted("twin", make_report(facts_of(lumi_node(), twin), facts, twin).draft).platforms["draft"]
    assert platform.libraries == {"libfabric": "/opt/cray/libfabric/2.0.1"}
