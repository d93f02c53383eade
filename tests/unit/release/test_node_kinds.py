"""`check --host` on a node that is of no kind: which facts differ, and whether this node alone can be meant."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from lumisite.findings.finding import Severity
from lumisite.machine.host import DiskTree
from lumisite.release.check_host_node import Node
from lumisite.site.load import load_site
from tests.support.kernels import CPU, DRIVER, be_node, kernel_files
from tests.unit.release.test_node_check import node
from tests.unit.release.test_node_hardware import hardware_faults

__all__ = ["node"]

LUMI = load_site("lumi").site
G, C = (kernel_files(LUMI, kind) for kind in ("lumi-g", "lumi-c"))
#: What compute nodes alone have.
SPOOL = {"/var/spool/slurmd/.keep": ""}


def without(files: Mapping[str, str], beginning: str) -> dict[str, str]:
    return {path: text for path, text in files.items() if not path.startswith(beginning)}


def found(tmp_path: Path, files: Mapping[str, str]) -> list[tuple[str, str, Severity]]:
    be_node(tmp_path, {**SPOOL, **files})
    findings = [fault.finding for fault in hardware_faults(Node(LUMI, DiskTree(str(tmp_path))))]
    return [(finding.message, finding.code, finding.severity) for finding in findings]


@pytest.mark.parametrize("files", [G, C, {}, {**G, f"{CPU}/online": "1-7,9-127\n"}])
def test_a_node_of_a_kind_and_a_copy_without_the_kernels_files_are_silent(
    tmp_path: Path, files: Mapping[str, str]
) -> None:
    assert found(tmp_path, files) == []


def test_a_login_node_is_of_no_kind(tmp_path: Path) -> None:
    be_node(tmp_path, {**G, f"{CPU}/present": "0-3\n", f"{CPU}/online": "0-3\n"})
    assert not list(hardware_faults(Node(LUMI, DiskTree(str(tmp_path)))))


def test_a_node_of_another_kind_says_what_each_kind_has_otherwise(tmp_path: Path) -> None:
    third = {path: "0-255\n" if path.startswith(CPU) else text for path, text in G.items()}
    ((what, code, severity),) = found(tmp_path, third)
    begin = "this node differs from every described kind: "
    assert what.startswith(f"{begin}lumi-g (CPUs 0-255, expected 0-127), lumi-c (GPUs 8 amd at 0000:c1:00.0 ")
    assert (code, severity) == ("node-of-no-kind", Severity.FAULT)


def test_a_lost_gpu_is_this_nodes_alone(tmp_path: Path) -> None:
    ((what, code, severity),) = found(tmp_path, without(G, f"{DRIVER}/amdgpu/0000:d1"))
    assert what == "7 of 8 GPUs of kind lumi-g can be used; not on the PCI bus: 0000:d1:00.0"
    assert (code, severity) == ("host-gpus", Severity.NODE)


def test_other_addresses_may_be_those_of_all_nodes(tmp_path: Path) -> None:
    moved = {path.replace("0000:d1", "0000:d2"): text for path, text in G.items()}
    for files in (moved, without(moved, f"{DRIVER}/amdgpu/0000:c1")):
        ((_, code, severity),) = found(tmp_path, files)
        assert (code, severity) == ("node-of-no-kind", Severity.FAULT)


def test_in_a_job_the_kinds_of_its_partition_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node without any GPU or driver is as LUMI-C is described, which has no cores to compare."""
    dead = without(G, f"{DRIVER}/amdgpu/")
    assert found(tmp_path, dead) == []
    monkeypatch.setenv("SLURM_JOB_PARTITION", "standard-g")
    assert found(tmp_path, dead) == []  # of a copy, the job that this runs in tells nothing

    class Live(DiskTree):
        def on_disk(self, path: str) -> str:
            return f"{tmp_path}{path}"

    (fault,) = hardware_faults(Node(LUMI, Live("/")))
    assert fault.finding.message.startswith("0 of 8 GPUs of kind lumi-g can be used; not on the PCI bus: ")
    assert fault.finding.severity is Severity.NODE
    monkeypatch.setenv("SLURM_JOB_PARTITION", "elsewhere")
    assert not list(hardware_faults(Node(LUMI, Live("/"))))
