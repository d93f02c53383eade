"""Each break that a maintenance can plant in a LUMI-G node: what is said of it and what it touches."""

from __future__ import annotations

from collections.abc import Mapping

from lumisite.facts.capture import capture
from lumisite.facts.facts import Facts
from lumisite.site.load import EMBEDDED, load_site
from lumisite.site.model import Site
from tests.support.dict_trees import DictTree, Link
from tests.support.elves import elf
from tests.support.nodes import AFTER, LATEST, MODULEFILE, NEW_KERNEL, RELEASE, NodeFiles, lumi_node, sif_head
from tests.support.sites import load_text

LUMI = load_site("lumi").site
#: Keys that a facts file cannot do without, where it has what they belong to.
REQUIRED = {"sha256", "cpus", "kind"}
FABRIC = "/opt/cray/libfabric/1.22.0/lib64/libfabric.so.1"
CXI = "/usr/lib64/libcxi.so.1"
JSON = "/usr/lib64/libjson-c.so.5"
SWAP = ("c9", "d1")


def facts_of(files: NodeFiles, site: Site = LUMI) -> Facts:
    return capture(DictTree(files), site).facts


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
        {"/opt/cray/pe/cpe/27.03/set": b"", "/opt/cray/pe/cpe/25.09/set": None},
        "CPE on the host: 25.03, 25.09 -> 25.03, 27.03",
        [("site", "cpe", "27.03 is not described"), ("module", "singularity-CPEbits/25.09*", "is gone")],
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
