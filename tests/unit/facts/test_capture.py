"""What a node is: read from files alone, written the same way every time, and never guessed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.errors import LumisiteError, ToolError
from lumisite.facts import libraries
from lumisite.facts.capture import capture
from lumisite.facts.compare import compare
from lumisite.facts.facts import Interface, Named, Program, Releases, format_facts, parse_facts
from lumisite.facts.init import describe_site
from lumisite.facts.report import make_report
from lumisite.findings.finding import Severity
from lumisite.site.load import load_site
from tests.support.captured import LUMI, node_with
from tests.support.dict_trees import DictTree, Link, Memory, write_tree
from tests.support.nodes import (
    AFTER,
    MPI,
    NEW_KERNEL,
    RELEASE,
    NodeFiles,
    lumi_node,
    sif_head,
)
from tests.support.sites import printed_codes

pytestmark = pytest.mark.usefixtures("at_lumi")

CXI = "/usr/lib64/libcxi.so.1.6.0"


def test_a_whole_node_is_captured() -> None:
    facts = node_with()
    assert (facts.site, facts.host, facts.os) == ("lumi", "nid005001", "SLES 15 SP6")
    assert (facts.kernel, facts.glibc, facts.slurm, facts.release) == (NEW_KERNEL, "2.38", "24.05.8", RELEASE)
    options = ("in /boot", "CONFIG_DMABUF_MOVE_NOTIFY", "CONFIG_PCI_P2PDMA")
    assert facts.texts["kernel-config"] == {"kernel configuration": options}
    assert facts.drivers["amdgpu"].version == "6.10.5"
    assert facts.stacks == {"rocm": Releases(("6.3.4",), "6.3.4"), "cpe": Releases(("25.03", "25.09"), "25.03")}
    assert facts.products["/opt/cray/libfabric"].versions == ("1.22.0",)
    assert facts.products["/opt/cray/pe/mpich"].versions == ("8.1.32", "9.0.1")
    assert facts.loads["libcxi.so.1"] == CXI
    assert facts.libraries[CXI].wants == {"GLIBC": "2.38"}
    assert "libjson-c.so.5" in facts.loads, "what a library needs belongs to it"
    assert facts.missing == {}
    assert list(facts.interfaces) == ["hsn0", "hsn1", "hsn2", "hsn3"]
    assert facts.interfaces["hsn2"] == Interface("cxi_ss1", "up", 200000, 0, "0000:d5:00.0")
    assert facts.nics["cxi2"].numa == 0
    buses = ("c1", "c6", "c9", "ce", "d1", "d6", "d9", "de")
    assert [gpu.bus for gpu in facts.gpus] == [f"0000:{bus}:00.0" for bus in buses]
    assert (facts.gpus[0].numa, facts.gpus[0].cpus) == (3, "48-55,112-119")
    assert [group.cpus for group in facts.cpus][:2] == ["0-7,64-71", "8-15,72-79"]
    assert facts.threads_per_core == 2
    containers = "/appl/local/laifs/containers"
    image = facts.images[containers]["lumi-multitorch-latest.sif"]
    folder = f"{containers}/lumi-multitorch-{AFTER.image}"
    assert (image.target, image.id) == (f"{folder}/lumi-multitorch-full-{AFTER.image}.sif", f"{1:032x}")
    assert facts.runtime.real == "/usr/bin/singularity"
    assert (facts.paths["/scratch"], facts.paths["/flash"]) == (Named("directory", "/pfs"), Named("none"))


def other_node(cuda: str = "12.8", port: str = "4: ACTIVE") -> NodeFiles:
    """A node with NVIDIA's driver and CUDA, and with an adapter of InfiniBand; no other vendor's."""
    pci = "/sys/devices/pci0000:00/0000:18:00.0"
    return {
        f"/usr/local/cuda-{cuda}/lib64/libcudart.so.12": b"",
        "/usr/local/cuda": Link("/etc/alternatives/cuda"),
        "/etc/alternatives/cuda": Link(f"/usr/local/cuda-{cuda}"),
        "/proc/driver/nvidia/version": (
            b"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.172.08  Release Build\nGCC version: gcc 13\n"
        ),
        "/sys/module/nvidia/srcversion": b"0A1B\n",
        "/sys/class/infiniband/mlx5_0": Link(f"../../..{pci}/infiniband/mlx5_0"),
        f"{pci}/infiniband/mlx5_0/device": Link("../.."),
        f"{pci}/infiniband/mlx5_0/ports/1/link_layer": b"InfiniBand\n",
        f"{pci}/infiniband/mlx5_0/ports/1/state": f"{port}\n".encode(),
        f"{pci}/numa_node": b"1\n",
    }


def test_a_node_of_other_vendors_is_captured_and_compared() -> None:
    site = load_site("university").site
    before, after = (capture(DictTree(one), site).facts for one in (other_node(), other_node("13.0", port="1: DOWN")))
    assert before.stacks == {"cuda": Releases(("12.8",), "12.8")}
    assert (before.drivers["nvidia"].version, before.drivers["nvidia"].build) == ("570.172.08", "0A1B")
    adapter = before.nics["mlx5_0"]
    assert (adapter.bus, adapter.numa, adapter.kind, adapter.link) == ("0000:18:00.0", 1, "infiniband", "InfiniBand")
    report = make_report(before, after, site)
    found = {(one.kind, one.subject): one for one in report.changes}
    assert found["stack", "CUDA"].after == found["default", "CUDA"].after == "13.0"
    assert f"stacks.{site.gpu_stack}.releases" in {touched.name for touched in found["stack", "CUDA"].touches}
    port = found["nic", "mlx5_0"]
    assert port.message == "port ACTIVE -> port DOWN"
    assert {"NCCL_IB_HCA", "fabric.adapters", "node_kinds.dgx.gpus"} <= {touched.name for touched in port.touches}
    assert not any("ROCm" in line for line in report.users)


def test_an_empty_tree_has_no_facts_and_nothing_is_guessed() -> None:
    captured = capture(DictTree({}), LUMI)
    assert {named.kind for named in captured.facts.paths.values()} == {"none"}
    rest = json.loads(format_facts(captured.facts))
    del rest["paths"], rest["texts"], rest["searched"]
    assert rest == {"lumisite_facts": 1, "site": "lumi"}
    assert "facts-incomplete" in {finding.code for finding in captured.findings}


def test_what_sysfs_answers_with_an_error_is_absent() -> None:
    """The speed of a link that is down, for one."""

    class Down(DictTree):
        def source(self, path: str) -> Memory | None:
            if path.endswith("/speed"):
                raise ToolError("cannot read: Invalid argument")
            return super().source(path)

    up, down = (capture(tree, LUMI).facts.interfaces["hsn0"] for tree in (DictTree(lumi_node()), Down(lumi_node())))
    assert up.speed_mbit is not None
    assert down == replace(up, speed_mbit=None)


def test_two_captures_are_the_same_bytes_and_say_the_same_when_they_are_read(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "node", lumi_node())
    for name in ("one", "two"):
        assert main(["facts", "--root", str(root), "-o", str(tmp_path / name)]) == 0
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert parse_facts((tmp_path / "one").read_bytes(), "x") == node_with()


@pytest.mark.parametrize(
    ("path", "content", "part"),
    [("/etc/ld.so.cache", b"nonsense" * 9, "searched by usual rules"), (CXI, b"", "library cannot be loaded")],
)
def test_what_is_damaged_is_named(path: str, content: bytes, part: str) -> None:
    captured = capture(DictTree(lumi_node(AFTER, {path: content})), LUMI)
    (finding,) = (one for one in captured.findings if part in one.message)
    assert (finding.code, finding.severity) == ("facts-incomplete", Severity.DOUBT)


def test_a_large_library_is_known_by_its_size_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    node = node_with()
    smallest = min(library.size_bytes for library in node.libraries.values())
    monkeypatch.setattr(libraries, "_LARGEST_DIGEST_BYTES", smallest)
    captured = capture(DictTree(lumi_node()), LUMI).facts
    assert {one.size_bytes for one in captured.libraries.values() if one.sha256} == {smallest}
    assert compare(node, captured) == ()


def test_two_versions_in_slurms_library_are_no_answer() -> None:
    library = "/usr/lib64/slurm/libslurmfull.so"
    assert node_with({library: b"\0" + b"24.05.8\0" + b"24.11.5\0"}).slurm is None
    assert node_with({library: b"x24.05.8y"}).slurm is None


def test_the_sites_own_folders_of_images_are_read() -> None:
    alias = "/appl/local/containers/sif-images/lumi-rocm-rocm-6.2.4.sif"
    frozen = "/appl/local/containers/tested-containers/lumi-rocm-rocm-6.2.4-dockerhash-0123456789ab.sif"
    notes = f"{alias[:-4]}.txt"
    images = node_with({alias: Link(frozen), frozen: sif_head(8), notes: b"x"}).images
    assert list(images["/appl/local/containers/sif-images"]) == ["lumi-rocm-rocm-6.2.4.sif"]
    assert images["/appl/local/containers/sif-images"]["lumi-rocm-rocm-6.2.4.sif"].target == frozen


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[1]", "file-unreadable"),
        (b'{"lumisite_facts": 2, "site": "lumi"}', "value-wrong"),
        (b'{"lumisite_facts": 1}', "site: key-missing"),
        (b'{"lumisite_facts": 1, "site": "l", "gpus": [{"numa": "x"}]}', "gpus[0].numa: value-wrong"),
    ],
)  # fmt: skip
def test_a_damaged_facts_file_is_named(content: bytes, message: str) -> None:
    with pytest.raises(LumisiteError) as caught:
        parse_facts(content, "node.json")
    assert str(caught.value).startswith("node.json:")
    assert message in printed_codes(str(caught.value))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("planted", "release"),
    [
        ({}, "8.1.32"),
        ({"/opt/cray/pe/cpe/default": Link("25.09")}, "9.0.1"),
        ({"/opt/cray/pe/cpe/default": None}, "8.1.32"),
        ({"/opt/cray/pe/cpe/default": Link("27.03"), "/opt/cray/pe/cpe/27.03/set": b""}, "10.0"),
    ],
)
def test_libraries_are_those_of_the_cpe_in_force(planted: dict[str, bytes | Link | None], release: str) -> None:
    """Of the default CPE; of the default product where that is not described; of the platform where no link is."""
    library = lumi_node()[f"/opt/cray/pe/mpich/8.1.32/{MPI}"]
    more = {f"/opt/cray/pe/mpich/{one}/{MPI}": library for one in ("10.0",)}
    default = {"/opt/cray/pe/mpich/default": Link("10.0")} if release == "10.0" else {}
    facts = node_with({**more, **default, **planted})
    assert facts.loads["libmpi_gnu_123.so.12"] == f"/opt/cray/pe/mpich/{release}/{MPI}"


def test_the_wrapper_of_lumisite_is_not_taken_for_the_runtime() -> None:
    wrapper = f"/appl/local/lumisite/releases/{RELEASE}/spank/bin/singularity"
    link = Link("/appl/local/lumisite/current/spank/bin/singularity")
    captured = capture(DictTree(lumi_node(AFTER, {"/usr/bin/singularity": link, wrapper: b"#!/bin/sh\n"})), LUMI)
    assert captured.facts.runtime == Program()
    (finding,) = (finding for finding in captured.findings if finding.subject == "/usr/bin/singularity")
    assert (finding.code, finding.message) == ("facts-incomplete", "is lumisite's wrapper and no container runtime")
    assert "executable: " not in describe_site([captured.facts], "2026-01-31")
