"""Facts of real nodes, and every break that is planted into the twin's host libraries named with its reason."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from lumisite.facts.capture import capture
from lumisite.facts.facts import Facts, parse_facts
from lumisite.facts.report import ChangeReport, make_report
from lumisite.machine.host import DiskTree
from lumisite.site.load import load_site
from tests.support.dict_trees import write_tree
from tests.support.nodes import AFTER, BEFORE, LATEST, Versions, lumi_node
from tests.twin import faults
from tests.twin.cluster import EXCHANGE, Cluster
from tests.twin.fixtures import require_twin
from tests.twin.helper_site import GENERATIONS
from tests.twin.host_tree import host_tree
from tests.twin.login_node import copy_lumisite
from tests.twin.roots import node_root

pytestmark = [pytest.mark.root, pytest.mark.slurm]

LUMI, TWIN = load_site("lumi").site, load_site("twin").site
#: Of a made-up LUMI-G node, all but the libraries, which are the twin's.
OWN_LIBRARIES = ("/usr/lib64", "/opt", "/lib64")


@pytest.fixture(autouse=True)
def needed() -> None:
    require_twin()


def node(top: Path, platform: str, versions: Versions) -> Path:
    """Make a node of the twin's real libraries, with the kernel's files and the images of LUMI-G."""
    shutil.copytree(host_tree(platform), top, symlinks=True)
    files = {path: content for path, content in lumi_node(versions).items() if not path.startswith(OWN_LIBRARIES)}
    return write_tree(top, files)


def facts_of(top: Path) -> Facts:
    return capture(DiskTree(str(top)), LUMI).facts


def found(report: ChangeReport) -> list[tuple[str, str]]:
    return [(one.kind, one.subject) for one in report.changes]


def touched(report: ChangeReport, *change: str) -> set[tuple[str, str]]:
    changes = [one for one in report.changes if (one.kind, one.subject) == change]
    return {(touch.what, touch.name) for one in changes for touch in one.touches}


def test_january_is_told_break_by_break(tmp_path: Path) -> None:
    before = node(tmp_path / "before", "2024-08", BEFORE)
    after = node(tmp_path / "after", "2026-01", AFTER)
    # What went wrong beside what was planned.
    (after / "usr/lib64/libjansson.so.4.14.0").unlink()
    (after / "usr/lib64/libjansson.so.4").unlink()
    (after / "usr/lib64/libnl-3.so.200.26.0").unlink()
    (after / "usr/lib64/libyaml-0.so.2").rename(after / "usr/lib64/libyaml-0.so.3")
    buses = [after / f"sys/bus/pci/devices/0000:{bus}:00.0" for bus in ("c1", "d1")]
    for name in ("numa_node", "local_cpulist"):
        one, other = ((bus / name).read_bytes() for bus in buses)
        (buses[0] / name).write_bytes(other)
        (buses[1] / name).write_bytes(one)
    report = make_report(facts_of(before), facts_of(after), LUMI)
    expected = {
        ("product", "/opt/cray/libfabric"): ("site", "platforms.2024-08.libraries.libfabric"),
        ("soname", "libjson-c.so.3"): ("plan", "lumi-rocm"),
        ("library", "libfabric.so.1"): ("plan", "lumi-rocm"),
        ("library", "libcxi.so.1"): ("plan", "lumi-rocm"),
        ("library-missing", "libjansson.so.4"): ("module", "singularity-CPEbits"),
        # a link that lost its file, and one that ldconfig would make again
        ("library-missing", "libnl-3.so.200"): ("plan", "lumi-rocm"),
        ("os", "operating system"): ("site", "platforms.2024-08.os"),
        ("kernel", "kernel"): ("setting", "NCCL_DMABUF_ENABLE"),
        ("gpu-bus", "GPU bus ids"): ("mask", "lumi-g"),
        ("gpu-place", "GPU 0"): ("mask", "lumi-g"),
        ("image", LATEST): ("site", "validation.image"),
    }
    for change, touch in expected.items():
        assert change in found(report), (change, found(report))
        assert touch in touched(report, *change), change


def test_a_pair_that_did_not_change_is_silent(tmp_path: Path) -> None:
    for platform, versions in (("2024-08", BEFORE), ("2026-01", AFTER)):
        one, other = (facts_of(node(tmp_path / f"{platform}-{number}", platform, versions)) for number in range(2))
        assert found(make_report(one, other, LUMI)) == []


@pytest.mark.parametrize("generation", GENERATIONS)
def test_versions_of_a_distribution_are_those_of_its_packages(generation: str) -> None:
    root = node_root(generation)
    facts = capture(DiskTree(str(root)), TWIN).facts
    status = (root / "var/lib/dpkg/status").read_text()

    def package(name: str) -> str:
        found = re.search(rf"^Package: {name}\n(?:.+\n)*?Version: (.+)$", status, re.MULTILINE)
        assert found is not None, name
        return found[1]

    assert facts.slurm == package("slurm-client").partition("-")[0]
    assert facts.runtime.package == f"apptainer {package('apptainer')}"
    assert facts.glibc == package("libc6").partition("-")[0]


def bring_lumisite(twin: Cluster) -> str:
    """Put lumisite and what it needs where nodes see it; give the command that runs it there."""
    folder = twin.exchange / "py"
    if not folder.exists():
        copy_lumisite(folder)
    return f"cd /tmp && PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={EXCHANGE}/py python3 -m lumisite"


def captured(twin: Cluster, on: str) -> tuple[Facts, str]:
    """Capture a running node as its ordinary user."""
    done = twin.run(f"{bring_lumisite(twin)} facts --site twin", node=on).check()
    return parse_facts(done.stdout.encode(), on), done.stdout


def test_a_running_node_is_captured_by_its_ordinary_user(twin: Cluster) -> None:
    first = twin.nodes[0]
    facts, text = captured(twin, first)
    assert captured(twin, first)[1] == text
    told = {
        "host": facts.host,
        "slurm": f"slurm-wlm {facts.slurm}",
        "kernel": facts.kernel,
        "glibc": f"glibc {facts.glibc}",
        "interfaces": sorted(facts.interfaces),
        "images": sorted(facts.images["/appl/images"]),
    }
    names = ["hostname", "srun --version", "uname -r", "getconf GNU_LIBC_VERSION"]
    asked = [twin.run(command, node=first).check().stdout.strip() for command in names]
    assert list(told.values())[:4] == asked
    assert told["interfaces"] == ["eth0", "hsn0", "hsn1", "hsn2", "hsn3"]
    assert told["images"] == ["small.sif", "torch.sif"]
    version = twin.run("singularity --version", node=first).check().stdout.split()[-1]
    assert facts.runtime.package is not None
    assert version in facts.runtime.package
    assert facts.loads["libfabric.so.1"] == "/opt/cray/libfabric/1.22.0/lib64/libfabric.so.1.1.22.0"


def test_what_happens_to_a_running_node_is_told(twin: Cluster) -> None:
    first = twin.nodes[0]
    before, _ = captured(twin, first)
    with faults.library_tree_replaced(twin, first, host_tree("2024-08")), faults.interface_down(twin, first, "hsn3"):
        report = make_report(before, captured(twin, first)[0], TWIN)
    assert ("product", "/opt/cray/libfabric") in found(report)
    (down,) = (one for one in report.changes if one.subject == "hsn3")
    assert "state down" in down.come
    assert ("setting", "NCCL_SOCKET_IFNAME") in touched(report, "interface", "hsn3")
    assert found(make_report(before, captured(twin, first)[0], TWIN)) == []
