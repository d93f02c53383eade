"""What is reported of January 2026: the platforms, whom it hits, the paragraph for users, and the JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
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

PLAN = """\
{plan: 2, site: lumi, platform: 2024-08, stacks: {cpe: 24.03, rocm: 6.0.3}, family: lumi-rocm, paths: [%s], lines: [
  {library: libcxi.so.1, decision: bind, source: /usr/lib64/libcxi.so.1, target: /lib64/libcxi.so.1, reason: r, chain: c},
  {library: other, decision: bind, source: /opt/cray/libfabric/1.15.2.0/x, target: /lib64/x, reason: r, chain: c}]}
"""
#: Each change of January 2026, and what it touches.
JANUARY: Mapping[tuple[str, str], str] = {
    ("product", "/opt/cray/libfabric"): "site platforms.2024-08.libraries.libfabric",
    ("product", "/opt/cray/pe/mpich"): "site stacks.cpe.releases.24.03.libraries.cray-mpich",
    ("stack", "CPE"): "site platforms.2024-08.stacks.cpe",
    ("stack", "ROCm"): "site stacks.rocm.releases",
    ("default", "CPE"): "module singularity-CPEbits",
    ("default", "ROCm"): "site platforms.2024-08.stacks.rocm.default",
    ("soname", "libjson-c.so.3"): "plan lumi-rocm",
    ("library", "libcxi.so.1"): "plan lumi-rocm",
    ("library", "libfabric.so.1"): "plan tykky",
    ("driver", "amdgpu"): "site platforms.2026-01.stacks.rocm.runs",
    ("gpu-bus", "GPU bus ids"): "mask lumi-g",
    ("image", LATEST): "family laif-multitorch",
    ("os", "operating system"): "site platforms.2024-08.os",
    ("kernel", "kernel"): "setting NCCL_DMABUF_ENABLE",
    ("glibc", "glibc"): "plan lumi-rocm",
    ("slurm", "Slurm"): "helper spank/task_prolog",
}


@pytest.fixture(name="january", scope="module")
def _january() -> ChangeReport:
    return make_report(facts_of(lumi_node(BEFORE)), node_with(), LUMI)


def test_january_is_recognised_with_all_that_it_touches(january: ChangeReport) -> None:
    assert (january.was, january.now) == ("2024-08", "2026-01")
    changes = {(one.kind, one.subject): one for one in january.changes}
    assert changes.keys() == JANUARY.keys()
    for subject, touched in JANUARY.items():
        assert touched in {f"{touch.what} {touch.name}" for touch in changes[subject].touches}, subject
    assert changes["soname", "libjson-c.so.3"].after == "libjson-c.so.5"
    assert changes["product", "/opt/cray/libfabric"].after == "1.22.0"
    assert "needs GLIBC_2.38 now" in changes["library", "libcxi.so.1"].message
    moved = "GPU 3 at 0000:cc:00.0, GPU 7 at 0000:dc:00.0 -> GPU 3 at 0000:ce:00.0, GPU 7 at 0000:de:00.0"
    assert changes["gpu-bus", "GPU bus ids"].message == moved


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
        "The default release of CPE is 25.03 now.",
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


def test_the_stored_plans_of_the_platform_are_touched_by_their_image_libraries_and_folders() -> None:
    texts = {
        "a.yaml": PLAN % LATEST,
        "other.yaml": (PLAN % "/images/small.sif").partition("\n")[0] + "]}",
        "later.yaml": PLAN.replace("2024-08", "2026-01").replace("24.03", "25.03") % LATEST,
    }
    plans = [LoadedPlan(parse_plan(text.encode(), Path(file)), file, b"") for file, text in texts.items()]
    report = make_report(facts_of(lumi_node(BEFORE)), node_with(), LUMI, plans)
    touched = {(touch.name, one.kind) for one in report.changes for touch in one.touches if ".yaml" in touch.name}
    assert touched == {("a.yaml", kind) for kind in ("product", "library", "image")}


def test_a_node_that_fits_no_platform_is_compared_all_the_same() -> None:
    assert platform_of(LUMI, Facts(site="lumi")) is None
    assert platform_of(LUMI, replace(node_with(), slurm="99.1.1")) is None
    assert make_report(Facts(site="lumi"), Facts(site="lumi", slurm="99.1.1"), LUMI).was == LUMI.platform


def test_gpus_are_not_compared_where_a_capture_lacks_the_topology() -> None:
    """Without it GPUs have no places, so a capture has none of them; the capture has said why."""
    node, lacking = node_with(), node_with({"/sys/devices/system/cpu/online": None})
    for pair in ((node, lacking), (lacking, node)):
        assert [change.kind for change in compare(*pair)] == ["cpus"]
