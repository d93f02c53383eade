"""`check --host` names what a node has less of than its kind: CPUs, GPUs, adapters, memory, speed of its interfaces."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest

from lumisite.findings.finding import Severity
from lumisite.machine.host import DiskTree
from lumisite.release.host.cpus_and_gpus import gpu_devices, kind_of_node
from lumisite.release.host.network import adapter_devices, interfaces, missing_network
from lumisite.release.host.node import HostFinding, Node
from lumisite.release.host.system import clock, kernel, memory
from lumisite.site.load import EMBEDDED
from lumisite.site.model import Site
from tests.support.captured import LUMI, Plant
from tests.support.dict_trees import DictTree
from tests.support.kernels import CPU, DRIVER, be_node, kernel_files
from tests.support.nodes import AFTER, lumi_node
from tests.support.sites import load_text

BUSES = ("c2", "ca", "d5", "da")
GPU = "/sys/bus/pci/devices/0000:{}:00.0"
SPOOL: Plant = {"/var/spool/slurmd/x": b""}


def interface(number: int, file: str) -> str:
    return f"/sys/devices/pci0000:00/0000:00:01.1/0000:{BUSES[number]}:00.0/net/hsn{number}/{file}"


def set_on(file: str, *values: int) -> Plant:
    return {interface(number, file): f"{value}\n".encode() for number, value in enumerate(values)}


def without(*beginnings: str) -> Plant:
    return dict.fromkeys(path for path in lumi_node() if path.startswith(beginnings))


def described(keys: str) -> Site:
    """The site with more keys of its network."""
    text = (EMBEDDED / "lumi.yaml").read_text()
    assert "  carrier: cxi\n" in text
    return load_text(text.replace("  carrier: cxi\n", f"  carrier: cxi\n{keys}", 1)).site


CHECKS = (kind_of_node, gpu_devices, missing_network, adapter_devices, interfaces, memory, kernel, clock)


def hardware(node: Node) -> list[HostFinding]:
    return [finding for check in CHECKS for finding in check(node)]


def found(plant: Plant, site: Site = LUMI) -> list[tuple[str, str, str]]:
    host = cast("DiskTree", DictTree(lumi_node(AFTER, {**SPOOL, **plant})))  # of which only what both have is asked
    findings = hardware(Node(site, host))
    assert all(finding.severity is Severity.NODE for finding in findings)
    return [(finding.code, finding.subject, finding.message) for finding in findings]


FULL = {"speed": (200000,) * 4, "mtu": (9000,) * 4}
DRIVEN = "/sys/bus/pci/drivers/amdgpu/"
GPUS = ("c1", "c6", "c9", "ce", "d1", "d6", "d9", "de")
NO_DRIVER = without(DRIVEN)
#: Of a CPU node: no GPU, no driver of one, and one interface.
CPU_NODE = {
    **without(*map(GPU.format, GPUS), DRIVEN, "/sys/class/net/hsn1", "/sys/class/net/hsn2", "/sys/class/net/hsn3"),
    **without("/sys/class/cxi/cxi1/", "/sys/class/cxi/cxi2/", "/sys/class/cxi/cxi3/"),
}
DEVICES: Plant = {
    **{f"/dev/{name}": b"" for name in ("null", "kfd", *(f"dri/renderD{128 + number}" for number in range(8)))},
    **{f"/dev/cxi{number}": b"" for number in range(4)},
}


def slurm(gres: str) -> Plant:
    lines = f"NodeName=DEFAULT CPUs=128\nNodeName=nid[005000-005999] RealMemory=503000{gres}\n"
    return {"/etc/slurm/slurm.conf": f"{lines}PartitionName=a Nodes=ALL\n".encode()}


FAULTS: Mapping[str, tuple[Plant, str, str, str]] = {
    "slow": (
        set_on("speed", 200000, 200000, 100000, 200000),
        *("host-interface", "hsn2", "100000 Mbit/s, expected 200000 Mbit/s"),
    ),
    "MTU": (set_on("mtu", 9000, 1500, 9000, 9000), "host-interface", "hsn1", "MTU 1500, expected MTU 9000"),
    "an adapter": (
        without("/sys/class/cxi/cxi1/"),
        *("host-device", "adapters", "3 adapters, expected 4 (this node has cxi0, cxi2, cxi3)"),
    ),
    "an interface with its adapter": (
        without("/sys/class/cxi/cxi3/", "/sys/class/net/hsn3"),
        *("host-interface", "hsn3", "missing (this node has hsn0, hsn1, hsn2, lo)"),
    ),
    "all adapters, and so their interfaces": (
        without("/sys/class/cxi/", "/sys/class/net/hsn"),
        *("host-device", "adapters", "none of Slingshot in /sys/class/cxi, expected 4: no driver has them"),
    ),
    "GPUs that fell off the bus or off their driver": (
        {**without(GPU.format("c1"), GPU.format("de")), f"{DRIVEN}0000:d6:00.0": None},
        "host-gpus",
        "GPUs",
        "5 of 8 GPUs of kind lumi-g can be used; not on the PCI bus: 0000:c1:00.0 0000:de:00.0; without a driver: 0000:d6:00.0",
    ),
    "the driver": (NO_DRIVER, "host-gpus", "GPUs", "0 of 8 GPUs of kind lumi-g can be used; amdgpu is not loaded"),
    "all GPUs and their driver, where Slurm counts them": (
        {**NO_DRIVER, **without(*map(GPU.format, GPUS)), **slurm(" Gres=gpu:mi250:8(S:0-3),nic:4")},
        "host-gpus",
        "GPUs",
        f"0 of 8 GPUs of kind lumi-g can be used; not on the PCI bus: {' '.join(f'0000:{bus}:00.0' for bus in GPUS)}",
    ),
    "the control device": (
        {**DEVICES, "/dev/kfd": None},
        *("host-device", "/dev/kfd", "missing; no program can use the GPUs"),
    ),
    "render nodes": (
        {**DEVICES, "/dev/dri/renderD131": None, "/dev/dri/renderD130": None},
        *("host-device", "/dev/dri/render*", "6 files for 8 GPUs"),
    ),
    "devices of adapters": (
        {**DEVICES, "/dev/cxi0": None, "/dev/cxi1": None, "/dev/cxi2": None, "/dev/cxi3": None},
        *("host-device", "/dev/cxi[0-9]*", "0 files for 4 adapters; libraries cannot open them"),
    ),
    "memory": (
        {"/proc/meminfo": b"MemTotal:       461373440 kB\nMemFree: 1 kB\n"},
        *("host-memory", "memory", "450560 MiB, and jobs can be given 491520 MiB on nodes of this kind"),
    ),
    "the counter of the processor": (
        {"/sys/devices/system/clocksource/clocksource0/current_clocksource": b"hpet\n"},
        *("host-clock", "current_clocksource", "hpet: reading the time takes a microsecond or more"),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_a_node_lacks_is_one_finding(name: str) -> None:
    plant, *expected = FAULTS[name]
    assert found(plant) == [tuple(expected)]


HEALTHY: Mapping[str, Plant] = {
    "as described": {},
    "as described, with devices and memory": {
        **DEVICES,
        "/proc/meminfo": b"MemTotal:       527433728 kB\n",
        "/sys/devices/system/clocksource/clocksource0/current_clocksource": b"tsc\n",
    },
    "as described, and in Slurm": slurm(" Gres=gpu:mi250:8"),
    "another node in Slurm": {"/etc/slurm/slurm.conf": b"NodeName=nid[001000-001999] CPUs=256\n"},
    "all alike": {**set_on("speed", *FULL["speed"]), **set_on("mtu", *FULL["mtu"])},
    "unknown speed": set_on("speed", -1, 0, 200000, 200000),
    "half and half": set_on("mtu", 9000, 9000, 1500, 1500),
    "more of it": set_on("speed", 200000, 200000, 200000, 400000),
    "a CPU node": CPU_NODE,
    "a CPU node in Slurm, with the memory of its smallest partition": {
        **CPU_NODE,
        **slurm(""),
        "/proc/meminfo": b"MemTotal:       263716864 kB\n",
    },
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_node_is_silent(name: str) -> None:
    assert found(HEALTHY[name]) == []


def test_what_the_site_describes_is_expected_of_all_interfaces() -> None:
    plant = {**set_on("mtu", 1500, 1500, 1500, 1500), **set_on("speed", *FULL["speed"])}
    site = described("  speed_mbit: 200000\n  mtu: 9000\n")
    assert [(code, subject) for code, subject, _ in found(plant, site)] == [
        ("host-interface", f"hsn{number}") for number in range(4)
    ]
    assert found({**plant, **set_on("mtu", *FULL["mtu"])}, site) == []


def test_adapters_are_known_by_their_names() -> None:
    site = described("  adapters: [cxi0, cxi1, cxi2, cxi3]\n")
    ((code, _, message),) = found(without("/sys/class/cxi/cxi0/"), site)
    assert (code, message) == ("host-device", "3 adapters, expected 4 (this node has cxi1, cxi2, cxi3)")


def test_the_kernel_is_the_platforms() -> None:
    described_kernel = ("    slurm: 24.05.8\n", "    slurm: 24.05.8\n    kernel: 6.4.0-x\n")
    site = load_text((EMBEDDED / "lumi.yaml").read_text().replace(*described_kernel)).site
    (finding,) = hardware(Node(site, cast("DiskTree", DictTree(lumi_node(AFTER, SPOOL)))))
    assert (finding.code, finding.severity) == ("host-kernel", Severity.FAULT)
    assert finding.message == f"{AFTER.kernel}, expected 6.4.0-x (platform 2026-01)"


def test_a_login_node_has_fewer_of_all() -> None:
    """Also one that Slurm knows, but not one that is in a partition."""
    gone = without("/sys/class/cxi/cxi1/", "/sys/class/cxi/cxi2/", "/sys/class/cxi/cxi3/", GPU.format("c1"))
    gone = {**gone, "/var/spool/slurmd/x": None, **without("/sys/class/net/hsn")}
    assert found(gone) == []
    alone = "NodeName=nid005001 Gres=gpu:8\nPartitionName=a Nodes=nid[005002-005009]\n"
    assert found({**gone, "/etc/slurm/slurm.conf": alone.encode()}) == []
    assert [code for code, _, _ in found({**gone, **slurm(" Gres=gpu:8")})] == ["host-gpus", *["host-interface"] * 4]


# ---------------------------------------------------------------- nodes of no kind

G, C = (kernel_files(LUMI, kind) for kind in ("lumi-g", "lumi-c"))


def of_kernel(folder: Path, files: Mapping[str, str]) -> list[tuple[str, str, Severity]]:
    """What is said of a compute node by the kernel's files alone."""
    be_node(folder, {"/var/spool/slurmd/.keep": "", **files})
    findings = hardware(Node(LUMI, DiskTree(str(folder))))
    return [(finding.message, finding.code, finding.severity) for finding in findings]


def without_beginning(files: Mapping[str, str], beginning: str) -> dict[str, str]:
    return {path: text for path, text in files.items() if not path.startswith(beginning)}


@pytest.mark.parametrize("files", [G, C, {}, {**G, f"{CPU}/online": "1-7,9-127\n"}])
def test_a_node_of_a_kind_and_a_copy_without_the_kernels_files_are_silent(
    tmp_path: Path, files: Mapping[str, str]
) -> None:
    assert of_kernel(tmp_path, files) == []


def test_a_node_of_another_kind_says_what_each_kind_has_otherwise(tmp_path: Path) -> None:
    third = {path: "0-255\n" if path.startswith(CPU) else text for path, text in G.items()}
    ((message, code, severity),) = of_kernel(tmp_path, third)
    begin = "this node differs from every described kind: "
    assert message.startswith(f"{begin}lumi-g (CPUs 0-255, expected 0-127), lumi-c (GPUs 8 amd at 0000:c1:00.0 ")
    assert (code, severity) == ("node-of-no-kind", Severity.FAULT)


def test_other_addresses_may_be_those_of_all_nodes(tmp_path: Path) -> None:
    moved = {path.replace("0000:d1", "0000:d2"): text for path, text in G.items()}
    for files in (moved, without_beginning(moved, f"{DRIVER}/amdgpu/0000:c1")):
        ((_, code, severity),) = of_kernel(tmp_path, files)
        assert (code, severity) == ("node-of-no-kind", Severity.FAULT)


def test_in_a_job_the_kinds_of_its_partition_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node without any GPU or driver is as LUMI-C is described, which has no cores to compare."""
    dead = without_beginning(G, f"{DRIVER}/amdgpu/")
    assert of_kernel(tmp_path, dead) == []
    monkeypatch.setenv("SLURM_JOB_PARTITION", "standard-g")
    assert of_kernel(tmp_path, dead) == []  # of a copy, the job that this runs in tells nothing

    class Live(DiskTree):
        def on_disk(self, path: str) -> str:
            return f"{tmp_path}{path}"

    (finding,) = hardware(Node(LUMI, Live("/")))
    assert finding.message.startswith("0 of 8 GPUs of kind lumi-g can be used; not on the PCI bus: ")
    assert finding.severity is Severity.NODE
    monkeypatch.setenv("SLURM_JOB_PARTITION", "elsewhere")
    assert not hardware(Node(LUMI, Live("/")))
