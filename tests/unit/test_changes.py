"""Each break that a maintenance can plant is named with its reason, and a pair that did not change is silent."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from lumisite.binds.capture import capture
from lumisite.cli import main
from lumisite.node.facts import Facts, Named, Releases, format_facts, parse_facts
from lumisite.release.changes import Report, make_report
from lumisite.release.changes_compare import compare
from lumisite.release.changes_site import platform_of
from lumisite.release.changes_text import report_lines, to_json
from lumisite.release.changes_touch import RULES
from lumisite.site.load import EMBEDDED, load_site
from lumisite.site.model import Site
from tests.unit.dict_trees import DictTree, Link
from tests.unit.elves import elf
from tests.unit.nodes import AFTER, BEFORE, LATEST, MODULEFILE, NEW_KERNEL, RELEASE, NodeFiles, lumi_node, sif_head
from tests.unit.sites import load_text

LUMI = load_site("lumi").site
#: Keys that a facts file cannot do without, where it has what they belong to.
REQUIRED = {"sha256", "cpus", "kind"}
FABRIC = "/opt/cray/libfabric/1.22.0/lib64/libfabric.so.1"
CXI = "/usr/lib64/libcxi.so.1"
JSON = "/usr/lib64/libjson-c.so.5"
SWAP = ("c9", "d1")


def facts_of(files: NodeFiles, site: Site = LUMI) -> Facts:
    return capture(DictTree(files), site).facts


@pytest.fixture(name="node", scope="module")
def _node() -> Facts:
    return facts_of(lumi_node())


@pytest.fixture(name="january", scope="module")
def _january(node: Facts) -> Report:
    return make_report(facts_of(lumi_node(BEFORE)), node, LUMI)


def swapped_buses() -> dict[str, bytes | Link | None]:
    """Two GPUs have changed places: each bus now answers with the other's neighbours."""
    files = lumi_node()
    one, other = (f"/sys/bus/pci/devices/0000:{bus}:00.0" for bus in SWAP)
    changes: dict[str, bytes | Link | None] = {}
    for name in ("numa_node", "local_cpulist"):
        changes |= {f"{one}/{name}": files[f"{other}/{name}"], f"{other}/{name}": files[f"{one}/{name}"]}
    return changes


def another_bus() -> dict[str, bytes | Link | None]:
    files = lumi_node()
    old = "/sys/bus/pci/devices/0000:ce:00.0"
    moved = {path: content for path, content in files.items() if path.startswith(old)}
    gone: dict[str, bytes | Link | None] = dict.fromkeys(moved)
    return gone | {path.replace(":ce:", ":cc:"): content for path, content in moved.items()}


def renamed_libfabric() -> dict[str, bytes | Link | None]:
    library = lumi_node()[FABRIC]
    return {FABRIC: None, FABRIC.replace("1.22.0", "2.0.1"): library, "/opt/cray/libfabric/default": Link("2.0.1")}


def moved_image() -> Link:
    folder = f"/appl/local/laifs/containers/lumi-multitorch-{AFTER.image}"
    return Link(f"{folder}/other.sif")


MODULE = f"/appl/local/lumisite/releases/{RELEASE}/{MODULEFILE}"
OTHER_SIF = f"/appl/local/laifs/containers/lumi-multitorch-{AFTER.image}/other.sif"

#: What is planted; what is said of it; what it touches and a word of the reason.
BREAKS: Mapping[str, tuple[Mapping[str, bytes | Link | None], str, list[tuple[str, str, str]]]] = {
    "renamed libfabric directory": (
        renamed_libfabric(),
        "libfabric: directory renamed, /opt/cray/libfabric/1.22.0 -> /opt/cray/libfabric/2.0.1",
        [
            ("site", "platforms.2026-01.libraries.libfabric", "names /opt/cray/libfabric/1.22.0, which is gone"),
            ("site", "platforms", "no platform or CPE release names /opt/cray/libfabric/2.0.1 yet"),
            ("family", "tykky", "LD_LIBRARY_PATH"),
            ("plan", "lumi-pytorch", "libfabric.so.1 came from a directory that is gone"),
            ("module", "singularity-CPEbits", "binds /opt/cray"),
            ("module", "singularity-AI-bindings", "loads singularity-CPEbits"),
        ],
    ),
    "SONAME change": (
        {CXI: None, "/usr/lib64/libcxi.so.1.6.0": None, "/usr/lib64/libcxi.so.2": elf("libcxi.so.2", ["libc.so.6"])},
        "libcxi: SONAME changed, libcxi.so.1 -> libcxi.so.2",
        [
            ("plan", "lumi-pytorch", "borrow libcxi.so.1 from the host, which is now libcxi.so.2"),
            ("site", "binds[1].path", "/usr/lib64/libcxi.so.1 is bound by its name"),
            ("module", "singularity-CPEbits", "binds /usr/lib64/libcxi.so.1"),
        ],
    ),
    "json-c mismatch": (
        {JSON: None, "/usr/lib64/libjson-c.so.3": elf("libjson-c.so.3", ["libc.so.6"])},
        f"libjson-c.so.5 is needed by {FABRIC}, and the node has none",
        [("plan", "lumi-pytorch", "cannot be loaded, since libjson-c.so.5 is nowhere")],
    ),
    "another need": (
        {FABRIC: elf("libfabric.so.1", ["libcxi.so.1", "libc.so.6"], verneed={"libc.so.6": ["GLIBC_2.38"]})},
        "libfabric.so.1 needs - libjson-c.so.5",
        [("plan", "lumi-pytorch", "needs libjson-c.so.5 no more")],
    ),
    "glibc of the node": (
        {"/lib64/libc.so.6": elf("libc.so.6") + b"\0GNU C Library (GNU libc) stable release version 2.40.\n\0"},
        "glibc: 2.38 -> 2.40",
        [("plan", "lumi-pytorch", "what images need of glibc")],
    ),
    "glibc too old in images": (
        {FABRIC: elf("libfabric.so.1", ["libcxi.so.1", "libjson-c.so.5", "libc.so.6"], verneed={"libc.so.6": ["GLIBC_2.41"]})},
        "libfabric.so.1 wants GLIBC_2.41 (before: 2.38)",
        [("plan", "lumi-pytorch", "an image that lacks GLIBC_2.41 cannot load the host's libfabric.so.1")],
    ),
    "dangling link": (
        {"/usr/lib64/libcxi.so.1.6.0": None},
        f"dangling link: {CXI} leads to /usr/lib64/libcxi.so.1.6.0, which is not there",
        [
            ("site", "binds[1].path", f"names {CXI}"),
            ("module", "singularity-CPEbits", f"binds {CXI}"),
            ("plan", "lumi-pytorch", "leads nowhere"),
        ],
    ),
    "vanished library": (
        {"/usr/lib64/libjansson.so.4": None},
        "library gone: libjansson.so.4 (was /usr/lib64/libjansson.so.4)",
        [("site", "binds[2].path", "is bound by its name"), ("module", "singularity-CPEbits", "libjansson")],
    ),
    "rebuilt library": (
        {JSON: elf("libjson-c.so.5", ["libc.so.6"], verdef=["JSONC_0.14"])},
        "libjson-c.so.5: another file under the same name",
        [("plan", "lumi-pytorch", "libjson-c.so.5")],
    ),
    "moved kernel config": (
        {f"/boot/config-{NEW_KERNEL}": None, "/boot/config-6.4.0-new": b"CONFIG_64BIT=y\n"},
        f"kernel configuration: /boot/config-{NEW_KERNEL} -> /boot/config-{NEW_KERNEL}, which is not there (/boot/config-6.4.0-new)",
        [("setting", "NCCL_DMABUF_ENABLE", "RCCL reads /boot/config-RELEASE")],
    ),
    "kernel without an option": (
        {f"/boot/config-{NEW_KERNEL}": b"CONFIG_PCI_P2PDMA=y\n"},
        "CONFIG_DMABUF_MOVE_NOTIFY=y, CONFIG_PCI_P2PDMA=y -> CONFIG_PCI_P2PDMA=y",
        [("setting", "FI_HMEM_ROCR_USE_DMABUF", "DMA-BUF")],
    ),
    "swapped bus ids": (
        swapped_buses(),
        "GPU 2: NUMA domain 1, CPUs 16-23,80-87 -> NUMA domain 0, CPUs 0-7,64-71",
        [("site", "node_kinds.lumi-g.gpus", "GPU 2"), ("mask", "lumi-g", "the place of its GPU")],
    ),
    "another bus id": (
        another_bus(),
        "GPU bus ids: GPU 3 0000:ce:00.0 -> 0000:cc:00.0",
        [("site", "platforms.2026-01.gpu_bus_ids.lumi-g", "0000:ce:00.0"), ("mask", "lumi-g", "recognised by its bus ids")],
    ),
    "a GPU less": (
        {f"/sys/bus/pci/devices/0000:de:00.0/{name}": None for name in ("class", "vendor", "local_cpulist", "numa_node")},
        "GPUs: 8 -> 7",
        [("mask", "lumi-g", "")],
    ),
    "retargeted image alias": (
        {LATEST: moved_image(), OTHER_SIF: sif_head(2)},
        f"image alias {LATEST} leads elsewhere",
        [
            ("family", "laif-multitorch", f"recognises {LATEST}"),
            ("module", "singularity-userfilesystems", "images of laif-multitorch"),
            ("site", "validation.image", "the probes run in"),
        ],
    ),
    "image replaced in place": (
        {f"/appl/local/laifs/containers/lumi-multitorch-{AFTER.image}/lumi-multitorch-full-{AFTER.image}.sif": sif_head(3)},
        f"image replaced under its name: {LATEST}",
        [("family", "laif-multitorch", "")],
    ),
    "vanished image": ({LATEST: None}, f"image gone: {LATEST}", [("site", "validation.image", "leads nowhere")]),
    "hand-edited modulefile": (
        {MODULE: b"edited\n"},
        f"{MODULEFILE} was edited by hand in the deployed release {RELEASE}",
        [("module", "singularity-CPEbits/25.03", "is not what was rendered")],
    ),
    "another release": (
        {"/appl/local/lumisite/current": Link("releases/old"), "/appl/local/lumisite/releases/old/x": b""},
        f"deployed release: {RELEASE} -> old",
        [("module", "singularity-AI-bindings", "users load it")],
    ),
    "vanished interface": (
        {"/sys/class/net/hsn3": None},
        "interface hsn3 is gone",
        [
            ("site", "network.interfaces", "names hsn3, which is gone"),
            ("setting", "NCCL_SOCKET_IFNAME", "its value names hsn3"),
            ("site", "node_kinds.lumi-g.nics", "places hsn3"),
        ],
    ),
    "slower interface": (
        {"/sys/devices/pci0000:00/0000:00:01.1/0000:c2:00.0/net/hsn0/speed": b"100000\n"},
        "interface hsn0: speed_mbit 200000 -> 100000",
        [("site", "network.interfaces", "is not what it was")],
    ),
    "moved adapter": (
        {"/sys/devices/pci0000:00/0000:00:01.1/0000:c2:00.0/numa_node": b"0\n"},
        "network adapter cxi0: numa 3 -> 0",
        [("site", "node_kinds.lumi-g.nics", "cxi0")],
    ),
    "driver": (
        {"/sys/module/amdgpu/version": b"6.12.1\n"},
        "GPU driver: amdgpu 6.10.5 -> amdgpu 6.12.1",
        [("site", "platforms.2026-01.driver_rocm", "in no file of the node")],
    ),
    "driver built anew": ({"/sys/module/amdgpu/srcversion": b"CD34\n"}, "amdgpu 6.10.5; built anew", []),
    "ROCm on the host": (
        {"/opt/rocm-7.2.0/x": b"", "/opt/rocm-6.3.4/lib/libhsa-runtime64.so.1": None, "/opt/rocm-6.3.4/.info/version": None},
        "ROCm on the host: 6.3.4 -> 7.2.0",
        [("site", "rocm.6.3.4", "the host has it no more"), ("site", "rocm", "7.2.0 is not described")],
    ),
    "CPE": (
        {"/opt/cray/pe/cpe/26.03/set": b"", "/opt/cray/pe/cpe/25.09/set": None},
        "CPE on the host: 25.03, 25.09 -> 25.03, 26.03",
        [("site", "cpe", "26.03 is not described"), ("module", "singularity-CPEbits/25.09*", "is gone")],
    ),
    "default CPE": (
        {"/opt/cray/pe/cpe/default": Link("25.09")},
        "default CPE: 25.03 -> 25.09",
        [("site", "platforms.2026-01.cpe", "says 25.03"), ("module", "singularity-CPEbits", "default")],
    ),
    "Slurm": (
        {"/usr/lib64/slurm/libslurmfull.so": elf("libslurmfull.so") + b"\0" + b"25.05.1\0"},
        "Slurm: 24.05.8 -> 25.05.1",
        [("site", "platforms.2026-01.slurm", "says 24.05.8"), ("helper", "spank/task_prolog", "")],
    ),
    "container runtime": (
        {"/usr/bin/singularity": b"another one"},
        "container runtime: /usr/bin/singularity",
        [("site", "runtime.variant", "SingularityCE")],
    ),
    "file system": (
        {"/scratch": None},
        "/scratch: was a directory at /pfs, is not there",
        [("site", "file_systems[1].path", "is not there"), ("module", "singularity-userfilesystems", "binds /scratch")],
    ),
    "CPUs": (
        {f"/sys/devices/system/cpu/cpu{cpu}/cache/index1/level": b"2\n" for cpu in range(128)},
        "CPUs by L3@NUMA",
        [("site", "node_kinds.lumi-g.l3", ""), ("mask", "lumi-g", "")],
    ),
    "operating system": ({"/etc/os-release": b"PRETTY_NAME=x\n"}, "operating system", [("site", "platforms.2026-01.os", "says SLES 15 SP6")]),
    "kernel": ({"/proc/sys/kernel/osrelease": b"6.4.1\n"}, f"kernel: {NEW_KERNEL} -> 6.4.1", [("site", "platforms.2026-01.kernel", "says nothing")]),
}  # fmt: skip


@pytest.mark.parametrize("name", BREAKS)
def test_a_planted_break_is_named_with_its_reason(name: str, node: Facts) -> None:
    planted, said, touched = BREAKS[name]
    report = make_report(node, facts_of(lumi_node(AFTER, planted)), LUMI)
    named = [one for one in report.changes if said in one.change.what]
    assert len(named) == 1, [one.change.what for one in report.changes]
    found: dict[tuple[str, str], str] = {(touch.what, touch.name): touch.why for touch in named[0].touches}
    for what, part, why in touched:
        assert why in found[what, part]


def test_what_is_told_is_not_repeated_for_each_path(node: Facts, january: Report) -> None:
    subjects = [one.change.subject for one in january.changes if one.change.kind in ("path", "library")]
    assert subjects == ["libcxi.so.1", "libhsa-runtime64.so.1"], "libfabric and the MPI are told by their directories"
    for name in ("vanished library", "dangling link", "retargeted image alias"):
        report = make_report(node, facts_of(lumi_node(AFTER, BREAKS[name][0])), LUMI)
        assert "path" not in [one.change.kind for one in report.changes], name


def test_every_kind_of_change_has_a_planted_break(node: Facts, january: Report) -> None:
    seen = {one.change.kind for one in january.changes}
    for planted, _, _ in BREAKS.values():
        seen |= {change.kind for change in compare(node, facts_of(lumi_node(AFTER, planted)))}
    assert seen >= RULES.keys()


def test_an_unchanged_pair_is_silent(node: Facts) -> None:
    report = make_report(node, facts_of(lumi_node()), LUMI)
    assert report.changes == ()
    assert report_lines(report) == ["nothing changed"]
    assert report.users[0] == "Nothing changed on LUMI that containers depend on."


def test_what_comes_back_is_told_too(node: Facts) -> None:
    for name in ("json-c mismatch", "dangling link", "vanished interface", "vanished image"):
        planted, said, _ = BREAKS[name]
        back = make_report(facts_of(lumi_node(AFTER, planted)), node, LUMI)
        assert back.changes, name
        assert all(said not in one.change.what for one in back.changes), name


def test_january_is_recognised_by_the_platforms_of_the_site(january: Report) -> None:
    assert (january.was, january.now) == ("2024-08", "2026-01")
    said = "\n".join(report_lines(january))
    assert "libfabric: directory renamed, /opt/cray/libfabric/1.15.2.0 -> /opt/cray/libfabric/1.22.0" in said
    assert "libjson-c: SONAME changed, libjson-c.so.3 -> libjson-c.so.5" in said
    assert "libcxi.so.1 wants GLIBC_2.38 (before: 2.14)" in said
    assert "GPU 3 0000:cc:00.0 -> 0000:ce:00.0, GPU 7 0000:dc:00.0 -> 0000:de:00.0" in said
    assert "kernel configuration moved" in said


def test_releases_that_leave_the_drivers_range_are_named_with_their_modules(january: Report) -> None:
    driver = next(one for one in january.changes if one.change.kind == "driver")
    modules = {touch.name for touch in driver.touches if touch.what == "module"}
    assert "singularity-AI-bindings/24.03-rocm6.0" in modules
    assert all("rocm6.2" not in name for name in modules)


def test_images_that_leave_the_drivers_range_are_named() -> None:
    name = "/appl/local/containers/easybuild-sif-images/lumi-pytorch-rocm-6.0.3-python-3.12-pytorch-v2.3.1.sif"
    planted = {name: sif_head(9)}
    report = make_report(facts_of(lumi_node(BEFORE, planted)), facts_of(lumi_node(AFTER, planted)), LUMI)
    driver = next(one for one in report.changes if one.change.kind == "driver")
    assert [touch.name for touch in driver.touches if touch.what == "image"] == [name]


def test_users_read_what_changed_and_what_to_rebuild(january: Report) -> None:
    text = " ".join(" ".join(january.users).split())
    for part in (
        "libfabric: 1.15.2.0 -> 1.22.0.",
        "Images with ROCm 5.6.1, 5.7.3, 6.0.3: the new GPU driver supports >=6.1,<7.1.",
        "Images without GLIBC_2.38 that take libraries from the host",
        "Images that take libjson-c.so.3 from the host",
        f"{LATEST} now leads to",
        "nothing is left",
        "Support: LUMI User Support Team",
    ):
        assert part in text, part


def test_users_can_stay_with_an_image_that_is_still_there(node: Facts) -> None:
    planted, _, _ = BREAKS["retargeted image alias"]
    users = " ".join(" ".join(make_report(node, facts_of(lumi_node(AFTER, planted)), LUMI).users).split())
    assert f"name /appl/local/laifs/containers/lumi-multitorch-{AFTER.image}/lumi-multitorch-full" in users


# The draft


def pasted(site: str, draft: tuple[str, ...]) -> Site:
    """Put each entry of a draft below the key of the same name, as its first line says, and load the description."""
    text = (EMBEDDED / f"{site}.yaml").read_text()
    key, entries = "", dict[str, list[str]]()
    for line in draft:
        if line and line[0] not in " #":
            key = line
        elif key:
            entries.setdefault(key, []).append(line)
    for key, lines in entries.items():
        assert text.count(f"\n{key}\n") == 1
        text = text.replace(f"\n{key}\n", "\n".join(["", key, *lines, ""]))
    return load_text(text).site


def test_the_draft_of_january_is_the_platform_of_january(january: Report) -> None:
    drafted = pasted("lumi", january.draft).platforms["draft"]
    known = LUMI.platforms["2026-01"]
    assert (drafted.os, drafted.slurm, drafted.cpe, drafted.rocm) == (known.os, known.slurm, known.cpe, known.rocm)
    assert drafted.gpu_bus_ids == known.gpu_bus_ids
    assert drafted.libraries == known.libraries
    assert str(drafted.driver_rocm) == str(known.driver_rocm)
    assert not drafted.confirmed


@pytest.mark.parametrize("name", BREAKS)
def test_the_draft_passes_check_after_every_break(name: str, node: Facts) -> None:
    report = make_report(node, facts_of(lumi_node(AFTER, BREAKS[name][0])), LUMI)
    assert "draft" in pasted("lumi", report.draft).platforms


def test_the_draft_of_new_releases_describes_them() -> None:
    planted: dict[str, bytes | Link | None] = {
        "/opt/cray/pe/cpe/27.03/set": b"",
        "/opt/cray/pe/cpe/25.03/set": None,
        "/opt/cray/pe/cpe/25.09/set": None,
        "/opt/cray/pe/cpe/default": Link("27.03"),
        "/opt/cray/pe/pmi/7.0.0/lib/x": b"",
        "/opt/rocm-7.2.1/lib/x": b"",
        "/opt/rocm": Link("rocm-7.2.1"),
    }
    report = make_report(facts_of(lumi_node()), facts_of(lumi_node(AFTER, planted)), LUMI, "2027-03")
    site = pasted("lumi", report.draft)
    platform = site.platforms["2027-03"]
    assert (str(platform.cpe), str(platform.rocm), str(platform.driver_rocm)) == ("27.03", "7.2.1", ">=7.2,<7.3")
    assert site.cpe["27.03"].libraries == {"cray-pmi": "/opt/cray/pe/pmi/7.0.0"}
    assert site.rocm["7.2.1"].found == "host"
    unknown = [line for line in report.draft if "# unknown" in line]
    assert any("outside >=6.1,<7.1; this is its series alone" in line for line in unknown)
    assert any("libraries.cray-mpich: which of 8.1.32, 9.0.1 belongs to it" in line for line in unknown)


def test_a_rocm_release_that_no_family_stands_for_is_not_drafted() -> None:
    text = (EMBEDDED / "lumi.yaml").read_text()
    site = load_text(text.replace("default_for: '>=6.3'", "default_for: '>=6.3,<7.1'")).site
    planted: dict[str, bytes | Link | None] = {"/opt/rocm-7.2.1/lib/x": b"", "/opt/rocm": Link("rocm-7.2.1")}
    report = make_report(facts_of(lumi_node()), facts_of(lumi_node(AFTER, planted)), site)
    assert "    rocm: 6.3.4" in report.draft
    assert any("the host has 7.2.1, for which no family is the default" in line for line in report.draft)
    narrow = load_text(
        text.replace("default_for: '>=6.3'", "default_for: '>=6.3,!=6.3.4'")
        .replace("rocm: 6.3.4\n", "rocm: 6.4.4\n")
        .replace("  6.3.4: {found", "  6.3.5: {found")
    ).site
    report = make_report(facts_of(lumi_node()), facts_of(lumi_node()), narrow)
    assert "    rocm: 6.4.4" in report.draft


def test_the_draft_of_a_bare_node_keeps_what_it_cannot_know_and_says_so(node: Facts) -> None:
    report = make_report(node, Facts(site="lumi"), LUMI)
    platform = pasted("lumi", report.draft).platforms["draft"]
    assert platform.os == "SLES 15 SP6"
    text = "\n".join(report.draft)
    for key in ("os", "slurm", "kernel", "driver", "driver_rocm", "rocm", "cpe", "libraries.libfabric", "gpu_bus_ids"):
        assert f"# unknown: {key}" in text, key


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


# One code path, bad input


def test_text_and_json_say_the_same(january: Report) -> None:
    document = json.loads(json.dumps(to_json(january)))
    text = "\n".join(report_lines(january))
    assert [one["what"] for one in document["changes"]] == [one.change.what for one in january.changes]
    for one in document["changes"]:
        assert one["what"] in text
        for touch in one["touches"]:
            assert touch["name"] in text
            assert touch["why"] in text
    assert document["draft"].splitlines() == list(january.draft)


def test_a_node_that_fits_no_platform_is_compared_all_the_same(node: Facts) -> None:
    assert platform_of(LUMI, Facts(site="lumi")) is None
    assert platform_of(LUMI, replace(node, slurm="99.1.1")) is None
    assert make_report(Facts(site="lumi"), Facts(site="lumi", slurm="99.1.1"), LUMI).was == LUMI.platform


def test_paths_that_only_one_capture_asked_for_are_no_change(node: Facts) -> None:
    assert compare(node, replace(node, paths={**node.paths, "/new": Named("directory")})) == ()


def test_releases_of_a_product_without_default_are_compared() -> None:
    one, two = (Facts(site="l", products={"/opt/x": Releases((v,), d)}) for v, d in (("1.0", "1.0"), ("1.0", None)))
    assert [change.what for change in compare(one, two)] == ["/opt/x/default: 1.0 -> none"]


def test_any_two_facts_files_give_a_report(node: Facts, january: Report) -> None:
    """Values of the two files are mixed at random, and some are replaced by rubbish of the right type."""
    choose = random.Random(5)
    documents = [json.loads(format_facts(facts)) for facts in (node, facts_of(lumi_node(BEFORE)))]
    rubbish = ["", " ", "../..", "{}", "0" * 300, "-1", "a, b", "1.0.0", "1!2", "a:b", "\u00e4", "#", '"']

    def mixed(one: object, other: object) -> object:
        if isinstance(one, dict) and isinstance(other, dict):
            keys = [key for key in {**one, **other} if key in REQUIRED or choose.random() < 0.9]
            return {key: mixed(one.get(key, other.get(key)), other.get(key, one.get(key))) for key in keys}
        if isinstance(one, str) and choose.random() < 0.1:
            return choose.choice(rubbish)
        return choose.choice([one, other])

    for _ in range(30):
        pair = []
        for _ in range(2):
            document = mixed(*documents)
            assert isinstance(document, dict)
            document |= {"lumisite_facts": 1, "site": "lumi"}
            pair.append(parse_facts(json.dumps(document).encode(), "x"))
        report = make_report(pair[0], pair[1], LUMI)
        assert all(line.isprintable() for line in report_lines(report))
        assert "draft" in pasted("lumi", report.draft).platforms


def written(path: Path, facts: Facts) -> str:
    path.write_text(format_facts(facts))
    return str(path)


def test_the_command_says_by_its_exit_code_whether_something_changed(
    tmp_path: Path, node: Facts, capsys: pytest.CaptureFixture[str]
) -> None:
    same, other = (
        written(tmp_path / "same", node),
        written(tmp_path / "other", replace(node, slurm="25.05.1", host="nid9")),
    )
    assert main(["changes", same, same]) == 0
    assert capsys.readouterr() == ("nothing changed\n", "")
    assert main(["changes", same, other]) == 1
    said = capsys.readouterr()
    assert "Slurm: 24.05.8 -> 25.05.1" in said.out
    assert "is of nid005001" in said.err
    for option, first in (("--draft", "# Put each entry"), ("--users", "LUMI was updated"), ("--json", "{")):
        assert main(["changes", same, other, option]) == 1
        assert capsys.readouterr().out.startswith(first)
    assert main(["changes", same, other, "--draft", "--users"]) == 2


@pytest.mark.parametrize(
    ("before", "after", "more", "message"),
    [
        ("node", "nowhere", [], "nowhere: cannot be read: No such file or directory"),
        ("node", ".", [], ".: is not a file"),
        ("node", "a\0b", [], "cannot be read"),
        ("node", "broken", [], "is not JSON"),
        ("node", "twin", [], "nothing can be compared"),
        ("node", "node", ["--site", "twin"], "the facts are of site 'lumi', this is twin"),
        ("skerry", "skerry", [], "is of site '../../etc/passwd', which is not embedded"),
        ("node", "node", ["--name", "a b"], "--name: 'a b' is not a name"),
        ("node", "node", ["--name", "2026-01"], "--name: lumi has a platform 2026-01 already"),
    ],
)
def test_bad_input_is_named(
    before: str, after: str, more: list[str], message: str,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node: Facts, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "node", node)
    written(tmp_path / "twin", Facts(site="twin"))
    written(tmp_path / "skerry", Facts(site="../../etc/passwd"))
    (tmp_path / "broken").write_text(format_facts(node)[:500])
    assert main(["changes", before, after, *more]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert "\n" not in said.err.strip()
    assert said.out == ""
