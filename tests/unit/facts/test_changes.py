"""What is reported of January 2026: the platforms, whom it hits, the paragraph for users, and the JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lumisite.facts.compare import compare
from lumisite.facts.facts import Facts
from lumisite.facts.report import ChangeReport, make_report, report_json
from lumisite.facts.touches import platform_of
from lumisite.site.load import parse_plan
from lumisite.site.plans import LoadedPlan
from tests.support.captured import LUMI, facts_of, node_with
from tests.support.nodes import AFTER, BEFORE, LATEST, lumi_node, sif_head
from tests.unit.facts.test_planted_changes import BREAKS, FABRIC, report_of

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
"""
OTHER = PLAN.split("library_path")[0].replace(LATEST, "/images/small.sif")


@pytest.fixture(name="january", scope="module")
def _january() -> ChangeReport:
    return make_report(facts_of(lumi_node(BEFORE)), node_with(), LUMI)


def test_january_is_recognised_by_the_platforms_of_the_site(january: ChangeReport) -> None:
    assert (january.was, january.now) == ("2024-08", "2026-01")
    changes = {(one.kind, one.subject): one for one in january.changes}
    assert changes["soname", "libjson-c.so.3"].after == "libjson-c.so.5"
    assert changes["product", "/opt/cray/libfabric"].after == "1.22.0"
    assert "needs GLIBC_2.38 now" in changes["library", "libcxi.so.1"].message
    moved = "GPU 3 at 0000:cc:00.0, GPU 7 at 0000:dc:00.0 -> GPU 3 at 0000:ce:00.0, GPU 7 at 0000:de:00.0"
    assert changes["gpu-bus", "GPU bus ids"].message == moved
    assert {"os", "kernel", "glibc", "driver", "slurm", "image"} <= {kind for kind, _ in changes}
    assert len(changes) == 16


@pytest.mark.parametrize(
    ("name", "is_lost"),
    [
        ("containers/easybuild-sif-images/lumi-pytorch-rocm-6.0.3-python-3.12-pytorch-v2.3.1.sif", True),
        ("laifs/containers/lumi-multitorch-u24r60f21m43t29.sif", True),
        ("laifs/containers/lumi-multitorch-u24r62f21m43t29.sif", False),
    ],
)
def test_images_and_modules_that_leave_the_drivers_range_are_named(name: str, is_lost: bool) -> None:
    path = f"/appl/local/{name}"
    planted = {path: sif_head(9)}
    report = make_report(facts_of(lumi_node(BEFORE, planted)), facts_of(lumi_node(AFTER, planted)), LUMI)
    driver = next(one for one in report.changes if one.kind == "driver")
    assert [touch.name for touch in driver.touches if touch.what == "image"] == ([path] if is_lost else [])
    modules = {touch.name for touch in driver.touches if touch.what == "module"}
    assert "singularity-AI-bindings/24.03-rocm6.0" in modules
    assert all("rocm6.2" not in name for name in modules)


def test_users_read_what_changed_and_what_to_rebuild(january: ChangeReport) -> None:
    text = " ".join(january.users)
    for part in (
        "name /opt/cray/libfabric/1.15.2.0: it is /opt/cray/libfabric/1.22.0 now.",
        "Rebuild images with ROCm 5.6.1, 5.7.3, 6.0.3: the new GPU driver supports >=6.1,<7.1.",
        "Images without GLIBC_2.38 cannot load libraries of the host: rebuild them",
        "Rebuild images that take libjson-c.so.3 from the host",
        f"{LATEST} now leads to",
        "Support: LUMI User Support Team",
    ):
        assert part in text, part


def test_users_read_whom_each_soname_concerns_that_went() -> None:
    node = node_with()
    path = node.loads["libcxi.so.1"]
    others = {name: at for name, at in node.loads.items() if name != "libcxi.so.1"}
    before = replace(node, loads=others | {"libcxi.so.0": path, "libcxi.so.1": path})
    users = make_report(before, replace(node, loads=others | {"libcxi.so.2": path}), LUMI).users
    text = " ".join(" ".join(users).split())
    assert "take libcxi.so.0, libcxi.so.1 from the host: the host has libcxi.so.2 instead. This concerns" in text
    assert all(name in text for name, family in LUMI.families.items() if family.libraries), "none is cut off"


def test_json_has_codes_and_values(january: ChangeReport) -> None:
    document = json.loads(json.dumps(report_json(january)))
    assert [one["code"] for one in document["changes"]] == [one.kind for one in january.changes]
    keys = {"code", "subject", "before", "after", "severity", "what", "advice", "touches"}
    assert all(one.keys() == keys for one in document["changes"])
    assert all(touch.keys() == {"what", "name"} for one in document["changes"] for touch in one["touches"])
    assert document["users"].splitlines() == list(january.users)


@pytest.mark.parametrize(
    "name", ["SONAME change", "library from another folder", "renamed libfabric", "alias of an image led elsewhere"]
)
def test_the_stored_plans_that_a_change_touches_are_named(name: str) -> None:
    texts = {"a.yaml": PLAN, "other.yaml": OTHER, "old.yaml": PLAN.replace("2026-01", "2024-08")}
    plans = tuple(LoadedPlan(parse_plan(text.encode(), Path(file)), file, b"") for file, text in texts.items())
    changes = report_of(BREAKS[name], plans).changes
    assert {touch.name for one in changes for touch in one.touches if ".yaml" in touch.name} == {"a.yaml"}


def test_a_node_that_fits_no_platform_is_compared_all_the_same() -> None:
    assert platform_of(LUMI, Facts(site="lumi")) is None
    assert platform_of(LUMI, replace(node_with(), slurm="99.1.1")) is None
    assert make_report(Facts(site="lumi"), Facts(site="lumi", slurm="99.1.1"), LUMI).was == LUMI.platform


def test_gpus_are_not_compared_where_a_capture_lacks_the_topology() -> None:
    """Without it GPUs have no places, so a capture has none of them; the capture has said why."""
    node, lacking = node_with(), node_with({"/sys/devices/system/cpu/online": None})
    for pair in ((node, lacking), (lacking, node)):
        assert [change.kind for change in compare(*pair)] == ["cpus"]
