"""Each break that a maintenance can plant is named with its reason, and a pair that did not change is silent."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from lumisite.facts.capture import capture
from lumisite.facts.change import Change
from lumisite.facts.context import platform_of
from lumisite.facts.facts import Deployed, Facts, Releases, format_facts, parse_facts
from lumisite.facts.kinds import CLOSED, KINDS
from lumisite.facts.report import ChangeReport, compare, make_report, report_json
from lumisite.findings.finding import Severity
from tests.support.breaks import BREAKS, LUMI, facts_of, report_of
from tests.support.dict_trees import DictTree, Link
from tests.support.nodes import AFTER, BEFORE, LATEST, lumi_node, sif_head


@pytest.fixture(name="node", scope="module")
def _node() -> Facts:
    return facts_of(lumi_node())


@pytest.fixture(name="january", scope="module")
def _january(node: Facts) -> ChangeReport:
    return make_report(facts_of(lumi_node(BEFORE)), node, LUMI)


def texts_of(change: Change) -> tuple[str | None, str | None]:
    return change.before, change.after


def found(before: Facts, after: Facts) -> list[tuple[str, str]]:
    return [(one.kind, one.subject) for one in compare(before, after)]


def test_every_kind_of_change_has_a_planted_break(january: ChangeReport) -> None:
    seen = {one.kind for report in (january, *map(report_of, BREAKS.values())) for one in report.changes}
    on_disk = {CLOSED.name, "library-rights"}
    assert seen >= {kind.name for kind in KINDS if kind.read is None} - on_disk


def test_an_unchanged_pair_is_silent(node: Facts) -> None:
    again = capture(DictTree(lumi_node()), LUMI).facts
    report = make_report(node, again, LUMI)
    assert report.changes == ()
    assert " ".join(report.users).startswith("Nothing changed on LUMI that containers depend on. Support: ")


@pytest.mark.parametrize(
    ("name", "back"),
    [
        ("json-c mismatch", "missing"),
        ("dangling link", "dangling"),
        ("vanished interface", "interface"),
        ("vanished image", "image"),
    ],
)
def test_what_comes_back_is_told_too(name: str, back: str, node: Facts) -> None:
    row = BREAKS[name]
    report = make_report(facts_of(lumi_node(AFTER, row.files)), node, LUMI)
    assert (back, row.change[1]) in [(one.kind, one.subject) for one in report.changes]


def test_january_is_recognised_by_the_platforms_of_the_site(january: ChangeReport) -> None:
    assert (january.was, january.now) == ("2024-08", "2026-01")
    changes = {(one.kind, one.subject): one for one in january.changes}
    assert changes["soname", "libjson-c.so.3"].after == "libjson-c.so.5"
    assert changes["product", "/opt/cray/libfabric"].after == "/opt/cray/libfabric/1.22.0"
    assert changes["wants", "libcxi.so.1"].after == "GLIBC_2.38"
    moved = ("GPU 3 0000:cc:00.0 -> 0000:ce:00.0", "GPU 7 0000:dc:00.0 -> 0000:de:00.0")
    assert changes["gpu-bus", "GPU bus ids"].values["moved"] == moved
    parts = (f"kernel {BEFORE.kernel} -> {AFTER.kernel}", "glibc 2.31 -> 2.38")
    assert changes["os", "operating system"].values["parts"] == parts


def test_releases_that_leave_the_drivers_range_are_named_with_their_modules(january: ChangeReport) -> None:
    driver = next(one for one in january.changes if one.kind == "driver")
    modules = {touch.name for touch in driver.touches if touch.what == "module"}
    assert "singularity-AI-bindings/24.03-rocm6.0" in modules
    assert all("rocm6.2" not in name for name in modules)


@pytest.mark.parametrize(
    ("name", "rocm"),
    [
        ("containers/easybuild-sif-images/lumi-pytorch-rocm-6.0.3-python-3.12-pytorch-v2.3.1.sif", "6.0.3"),
        ("containers/easybuild-sif-images/mine_rocm6.0_ubuntu22.04.sif", "6.0"),
        ("laifs/containers/lumi-multitorch-u24r60f21m43t29.sif", "6.0"),
        ("laifs/containers/lumi-multitorch-u24r62f21m43t29.sif", None),
    ],
)
def test_images_that_leave_the_drivers_range_are_named(name: str, rocm: str | None) -> None:
    path = f"/appl/local/{name}"
    planted = {path: sif_head(9)}
    report = make_report(facts_of(lumi_node(BEFORE, planted)), facts_of(lumi_node(AFTER, planted)), LUMI)
    driver = next(one for one in report.changes if one.kind == "driver")
    named = [(touch.name, touch.why.split()[1]) for touch in driver.touches if touch.what == "image"]
    assert named == ([] if rocm is None else [(path, rocm)])


def test_users_read_what_changed_and_what_to_rebuild(january: ChangeReport) -> None:
    text = " ".join(january.users)
    for part in (
        "libfabric: 1.15.2.0 -> 1.22.0.",
        "Rebuild images with ROCm 5.6.1, 5.7.3, 6.0.3: the new GPU driver supports >=6.1,<7.1.",
        "Images without GLIBC_2.38 cannot load libraries of the host: rebuild them",
        "Rebuild images that take libjson-c.so.3 from the host",
        f"{LATEST} now leads to",
        "Support: LUMI User Support Team",
    ):
        assert part in text, part


def test_users_read_whom_each_soname_concerns_that_went(node: Facts) -> None:
    path = node.loads["libcxi.so.1"]
    others = {name: at for name, at in node.loads.items() if name != "libcxi.so.1"}
    before = replace(node, loads=others | {"libcxi.so.0": path, "libcxi.so.1": path})
    site = replace(LUMI, families={**LUMI.families, "one-more": LUMI.families["lumi-rocm"]})
    users = make_report(before, replace(node, loads=others | {"libcxi.so.2": path}), site).users
    said = " ".join(" ".join(users).split())
    assert "take libcxi.so.0, libcxi.so.1 from the host: the host has libcxi.so.2 instead. This concerns" in said
    families = [name for name, family in site.families.items() if family.libraries]
    assert len(families) > 8
    assert all(name in said for name in families), "none is cut off"


def test_users_can_stay_with_an_image_that_is_still_there() -> None:
    users = " ".join(" ".join(report_of(BREAKS["retargeted image alias"]).users).split())
    assert f"name /appl/local/laifs/containers/lumi-multitorch-{AFTER.image}/lumi-multitorch-full" in users


def test_json_has_codes_and_values(january: ChangeReport) -> None:
    document = json.loads(json.dumps(report_json(january)))
    assert [one["code"] for one in document["changes"]] == [one.kind for one in january.changes]
    keys = {"code", "subject", "before", "after", "severity", "what", "advice", "touches"}
    assert all(one.keys() == keys for one in document["changes"])
    touches = [touch for one in document["changes"] for touch in one["touches"]]
    assert all(touch.keys() == {"what", "name", "why"} and touch["why"] for touch in touches)
    assert document["users"].splitlines() == list(january.users)


def test_every_change_and_every_touch_has_words(january: ChangeReport) -> None:
    reports = (january, *map(report_of, BREAKS.values()))
    changes = [one for report in reports for one in report.changes]
    assert all(one.message and one.severity for one in changes)
    assert all(one.advice for one in changes if one.severity is not Severity.INFO and one.kind != "unreadable")
    assert all(touched.why for one in changes for touched in one.touches)


def test_a_node_that_fits_no_platform_is_compared_all_the_same(node: Facts) -> None:
    assert platform_of(LUMI, Facts(site="lumi")) is None
    assert platform_of(LUMI, replace(node, slurm="99.1.1")) is None
    assert make_report(Facts(site="lumi"), Facts(site="lumi", slurm="99.1.1"), LUMI).was == LUMI.platform


def test_releases_of_a_product_without_default_are_compared() -> None:
    one, two = (Facts(site="l", products={"/opt/x": Releases((v,), d)}) for v, d in (("1.0", "1.0"), ("1.0", None)))
    (change,) = compare(one, two)
    assert (change.kind, change.subject, change.before, change.after) == ("default", "/opt/x", "1.0", None)


def test_users_read_which_versions_of_modules_are_gone_and_what_has_their_place(node: Facts) -> None:
    old, new = "2024-08-aaaaaaaaaaaa", "2026-01-bbbbbbbbbbbb"
    before = Deployed(old, names={"ai": "ai/24", "ai/24": "ai/24", "ai/23": "ai/24", "gone/1": "gone/1", "x/1": "x/1"})
    after = Deployed(new, names={"ai": "ai/25", "ai/25": "ai/25", "ai/24": "ai/25", "gone/1": "", "x/1": "x/1"})
    report = make_report(replace(node, deployed=before), replace(node, deployed=after), LUMI)
    assert "ai/24 is gone: ai/25 has its place. gone/1 is gone: nothing has its place. Load" in " ".join(report.users)


def test_what_an_interface_lies_on_is_compared_too() -> None:
    """A bond over a device, a VLAN on it, and the networks that they are in."""
    net, device = "/sys/class/net", "/sys/devices/pci0000:00/0000:21:00.0"
    stack = {f"{net}/ens1/device": Link(device), f"{net}/bond0/lower_ens1": Link(f"{net}/ens1")}
    stack |= {f"{net}/bond0.7/lower_bond0": Link(f"{net}/bond0"), f"{net}/docker0/lower_veth1": Link("/gone")}
    table = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n{} 0002010A 00000000 1 0 0 0 00FFFFFF\n"
    files = {**lumi_node(), **stack, f"{device}/numa_node": b"0\n"}
    now = facts_of({**files, "/proc/net/route": table.format("bond0.7").encode()})
    found = {name: (now.interfaces[name].lower, now.interfaces[name].networks) for name in ("ens1", "bond0", "bond0.7")}
    assert found == {"ens1": (None, ()), "bond0": (("ens1",), ()), "bond0.7": (("bond0",), ("10.1.2.0/24",))}
    assert "docker0" not in now.interfaces
    assert parse_facts(format_facts(now).encode(), "facts") == now

    moved = facts_of({**files, "/proc/net/route": table.format("bond0").encode()})
    lost = replace(now, interfaces={name: one for name, one in now.interfaces.items() if name != "bond0.7"})
    assert [(one.subject, one.values["fields"]) for one in compare(now, moved)] == [
        ("bond0", ("networks none -> 10.1.2.0/24",)),
        ("bond0.7", ("networks 10.1.2.0/24 -> none",)),
    ]
    assert [(one.kind, one.subject) for one in compare(now, lost)] == [("interface", "bond0.7")]


def test_what_a_capture_did_not_know_is_no_part_of_a_change() -> None:
    before, after = facts_of(lumi_node()), facts_of(lumi_node())
    hsn0 = before.interfaces["hsn0"]
    before = replace(before, interfaces={**before.interfaces, "hsn0": replace(hsn0, mtu=None, state="up")})
    after = replace(after, interfaces={**after.interfaces, "hsn0": replace(hsn0, mtu=9000, state="down")})
    (one,) = make_report(before, after, LUMI).changes
    assert one.values["fields"] == ("state up -> down",)


def test_gpus_are_not_compared_where_a_capture_lacks_the_topology() -> None:
    """Without it GPUs have no places, so a capture has none of them; the capture has said why."""
    files = lumi_node(changes={"/sys/devices/system/cpu/online": None})
    before, after = facts_of(lumi_node()), facts_of(files)
    for pair in ((before, after), (after, before)):
        assert [one.kind for one in make_report(*pair, LUMI).changes] == ["cpus"]
