"""Stored plans that a maintenance touches are named by their file and their image."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.facts.context import make_context
from lumisite.facts.facts import Facts, format_facts
from lumisite.facts.report import make_report
from lumisite.site.load import EMBEDDED, load_site, parse_plan, site_of
from lumisite.site.plans import LoadedPlan
from tests.support.breaks import BREAKS, facts_of, report_of
from tests.support.breaks.libraries import FABRIC, JSON
from tests.support.nodes import AFTER, BEFORE, LATEST, lumi_node

LUMI = load_site("lumi").site
PLAN = f"""\
plan: 2
site: lumi
platform: 2026-01
stacks: {{cpe: 25.03, rocm: 6.3.4}}
family: lumi-rocm
paths: [{LATEST}]
library_path: [/opt/cray/libfabric/1.22.0/lib64]
lines:
  - {{library: libcxi.so.1, decision: bind, source: /usr/lib64/libcxi.so.1, target: /lib64/libcxi.so.1, reason: r, chain: c}}
  - {{library: libfabric.so.1, decision: bind, source: {FABRIC}, target: /lib64/libfabric.so.1, reason: r, chain: c}}
  - {{library: libjson-c.so.5, decision: skip, target: {JSON}, reason: r, chain: c}}
"""
OTHER = PLAN.split("library_path")[0].replace(LATEST, "/images/small.sif")
OLD = PLAN.replace("2026-01", "2024-08")


def plans() -> tuple[LoadedPlan, ...]:
    texts = {"plans/a.yaml": PLAN, "plans/other.yaml": OTHER, "plans/old.yaml": OLD}
    return tuple(LoadedPlan(parse_plan(text.encode(), Path(file)), file, b"") for file, text in texts.items())


@pytest.fixture(name="node", scope="module")
def _node() -> Facts:
    return facts_of(lumi_node())


@pytest.mark.parametrize("name", BREAKS)
def test_a_break_names_the_plans_that_it_touches_and_no_others(name: str) -> None:
    row = BREAKS[name]
    broken = next(one for one in report_of(row, plans()).changes if (one.kind, one.subject) == row.change)
    found = [(touch.name, touch.why) for touch in broken.touches if touch.what == "plan" and ".yaml" in touch.name]
    assert [name for name, _ in found] == (["plans/a.yaml"] if row.plan else [])
    assert all(row.plan in why for _, why in found)


def test_a_directory_that_a_plan_has_under_another_path_in_the_container_is_the_hosts_that_is_gone() -> None:
    text = (
        (EMBEDDED / "lumi.yaml")
        .read_text()
        .replace("  - path: /opt/cray\n", "  - path: /opt/cray\n    target: /h\n", 1)
    )
    site = site_of(text.encode(), Path("lumi.yaml")).site
    plan = PLAN.partition("lines:")[0].replace("/opt/cray/libfabric", "/h/libfabric").encode()
    stored = LoadedPlan(parse_plan(plan, Path("a.yaml")), "a.yaml", b"")
    facts = facts_of(lumi_node())
    context = make_context(site, facts, facts, [stored])
    (touch,) = context.plans_under("/opt/cray/libfabric/1.22.0")
    assert (touch.name, touch.why) == ("a.yaml", f"plan for {LATEST}: names /opt/cray/libfabric/1.22.0/lib64")


def test_the_plans_of_the_platform_before_are_those_that_a_maintenance_breaks(node: Facts) -> None:
    report = make_report(facts_of(lumi_node(BEFORE)), node, LUMI, plans=plans())
    named = {touch.name for one in report.changes for touch in one.touches if touch.name.endswith(".yaml")}
    assert named == {"plans/old.yaml"}


def test_the_command_reads_the_plans_of_the_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node: Facts, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("before").write_text(format_facts(node))
    Path("after").write_text(format_facts(facts_of(lumi_node(AFTER, BREAKS["SONAME change"].files))))
    site = (EMBEDDED / "lumi.yaml").read_text()
    Path("site.yaml").write_text(f"{site}\nplans: [plans/a.yaml]\n")
    Path("plans").mkdir()
    Path("plans/a.yaml").write_text(PLAN)
    command = ["changes", "before", "after", "--site", "site.yaml"]
    assert main(command) == 1
    assert "  plan     plans/a.yaml: " in capsys.readouterr().out
    assert main([*command, "--json"]) == 1
    touches = [touch for one in json.loads(capsys.readouterr().out)["changes"] for touch in one["touches"]]
    (found,) = (touch for touch in touches if touch["name"] == "plans/a.yaml")
    assert found["what"] == "plan"
    assert LATEST in found["why"]
    Path("plans/a.yaml").write_text(PLAN.replace("25.03", "27.03"))
    assert main(command) == 2
    assert "plans/a.yaml:4:15: stacks.cpe: 27.03 is not known here" in capsys.readouterr().err
