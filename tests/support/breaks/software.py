"""Planted changes of what is installed: products, defaults, ROCm, images, the release, file systems, Slurm, the system."""

from __future__ import annotations

from tests.support.breaks.libraries import FABRIC
from tests.support.breaks.row import Break, Plant
from tests.support.dict_trees import Link
from tests.support.elves import elf
from tests.support.nodes import AFTER, GTL, LATEST, MPI, NEW_KERNEL, RELEASE, lumi_node, sif_head

IMAGES = f"/appl/local/laifs/containers/lumi-multitorch-{AFTER.image}"
IMAGE, OTHER_SIF = f"{IMAGES}/lumi-multitorch-full-{AFTER.image}.sif", f"{IMAGES}/other.sif"
DEPLOYED = f"/appl/local/lumisite/releases/{RELEASE}"
HSA, ROCM_VERSION = "/opt/rocm-6.3.4/lib/libhsa-runtime64.so.1", "/opt/rocm-6.3.4/.info/version"


def renamed_libfabric() -> Plant:
    library = lumi_node()[FABRIC]
    return {FABRIC: None, FABRIC.replace("1.22.0", "2.0.1"): library, "/opt/cray/libfabric/default": Link("2.0.1")}


def _mpich(version: str, *, there: bool) -> Plant:
    files = lumi_node()
    return {
        f"/opt/cray/pe/mpich/{version}/{part}": files[f"/opt/cray/pe/mpich/8.1.32/{part}"] if there else None
        for part in (MPI, GTL)
    }


SOFTWARE = {
    # products
    "renamed libfabric directory": Break(
        renamed_libfabric(),
        ("product", "/opt/cray/libfabric"),
        [("site", "platforms.2026-01.libraries.libfabric"), ("plan", "lumi-rocm"), ("module", "singularity-CPEbits"), ("module", "singularity-AI-bindings")],
    ),
    "a release of MPICH has gone": Break(
        _mpich("9.0.1", there=False),
        ("product", "/opt/cray/pe/mpich"),
        [("site", "stacks.cpe.releases.25.09.libraries.cray-mpich"), ("module", "singularity-CPEbits")],
    ),
    "a release of MPICH more": Break(
        _mpich("9.1.0", there=True),
        ("product", "/opt/cray/pe/mpich"),
        [("module", "singularity-CPEbits")],
    ),
    "all of /opt/cray has gone": Break(
        {path: None for path in lumi_node() if path.startswith("/opt/cray/")},
        ("path", "/opt/cray"),
        [("site", "binds[0].path"), ("site", "platforms.2026-01.libraries.libfabric"), ("module", "singularity-CPEbits"), ("plan", "lumi-rocm")],
    ),
    # defaults
    "default CPE": Break(
        {"/opt/cray/pe/cpe/default": Link("25.09")},
        ("default", "CPE"),
        [("site", "platforms.2026-01.stacks.cpe.default"), ("module", "singularity-CPEbits")],
        also=(("library", "libmpi_gnu_123.so.12"), ("library", "libmpi_gtl_hsa.so.0"),),
    ),
    "default libfabric": Break(
        {"/opt/cray/libfabric/default": Link("2.0.1")},
        ("default", "/opt/cray/libfabric"),
        [("module", "singularity-CPEbits")],
        also=(("library", "libfabric.so.1"),),
        both={FABRIC.replace("1.22.0", "2.0.1"): lumi_node()[FABRIC]},
    ),
    "default ROCm": Break(
        {"/opt/rocm": Link("rocm-6.4.4")},
        ("default", "ROCm"),
        [("site", "platforms.2026-01.stacks.rocm.default"), ("module", "singularity-AI-bindings")],
        both={"/opt/rocm-6.4.4/.info/version": b"6.4.4-1\n"},
    ),
    # releases
    "CPE": Break(
        {"/opt/cray/pe/cpe/27.03/set": b"", "/opt/cray/pe/cpe/25.09/set": None},
        ("stack", "CPE"),
        [("site", "stacks.cpe.releases"), ("module", "singularity-CPEbits")],
    ),
    "ROCm on the host": Break(
        {"/opt/rocm-7.2.0/x": b"", HSA: None, ROCM_VERSION: None, "/opt/rocm": Link("rocm-7.2.0")},
        ("stack", "ROCm"),
        [("site", "stacks.rocm.releases")],
        also=(("default", "ROCm"), ("library-missing", "libhsa-runtime64.so.1"),),
    ),
    # images
    "retargeted image alias": Break(
        {LATEST: Link(OTHER_SIF), OTHER_SIF: sif_head(2)},
        ("image", "/appl/local/laifs/containers/lumi-multitorch-latest.sif"),
        [("family", "laif-multitorch"), ("module", "singularity-userfilesystems"), ("site", "validation.image")],
    ),
    "retargeted image alias, and the old image has gone": Break(
        {LATEST: Link(OTHER_SIF), OTHER_SIF: sif_head(2), IMAGE: None},
        ("image", LATEST),
        [("family", "laif-multitorch"), ("site", "validation.image")],
    ),
    "image replaced in place": Break(
        {IMAGE: sif_head(3)},
        ("image", IMAGE),
        [("family", "laif-rocm70")],
        also=(("image", LATEST),),
    ),
    "vanished image": Break(
        {LATEST: None},
        ("image", "/appl/local/laifs/containers/lumi-multitorch-latest.sif"),
        [("site", "validation.image")],
    ),
    "an image more": Break(
        {OTHER_SIF: sif_head(4)},
        ("image", "/appl/local/laifs/containers/lumi-multitorch-u24r70f21m50t210-20260415_130625/other.sif"),
        [("family", "laif-rocm70")],
    ),
    "no images": Break(
        {IMAGE: None, LATEST: None},
        ("path", "/appl/local/laifs/containers"),
        [("site", "validation.image"), ("module", "singularity-userfilesystems")],
    ),
    # the deployed release
    "another release": Break(
        {"/appl/local/lumisite/current": Link("releases/old"), "/appl/local/lumisite/releases/old/x": b""},
        ("release", "deployed release"),
        [("module", "singularity-AI-bindings")],
    ),
    # file systems
    "file system": Break(
        {"/scratch": None},
        ("path", "/scratch"),
        [("site", "file_systems[1].path"), ("module", "singularity-userfilesystems")],
    ),
    "dangling file system": Break(
        {"/scratch": Link("/pfs9")},
        ("dangling", "/scratch"),
        [("site", "file_systems[1].path"), ("module", "singularity-userfilesystems")],
    ),
    "file system led elsewhere": Break(
        {"/scratch": Link("/pfs2"), "/pfs2/.here": b""},
        ("path", "/scratch"),
        [("module", "singularity-userfilesystems")],
    ),
    "file system that came": Break(
        {"/flash/x": b""},
        ("path", "/flash"),
        [("site", "file_systems[4].path"), ("module", "singularity-userfilesystems")],
    ),
    "spool of Slurm": Break(
        {"/var/spool/slurmd/x": None},
        ("path", "/var/spool/slurmd"),
        [("site", "binds[3].path")],
        both={"/var/spool/slurmd/x": b""},
    ),
    # the system
    "glibc of the node": Break(
        {"/lib64/libc.so.6": elf("libc.so.6") + b"\0GNU C Library (GNU libc) stable release version 2.40.\n\0"},
        ("glibc", "glibc"),
        [("plan", "lumi-rocm")],
    ),
    "operating system": Break(
        {"/etc/os-release": b"PRETTY_NAME=x\n"},
        ("os", "operating system"),
        [("site", "platforms.2026-01.os")],
    ),
    "kernel": Break(
        {"/proc/sys/kernel/osrelease": b"6.4.1\n", f"/boot/config-{NEW_KERNEL}": None, "/boot/config-6.4.1": lumi_node()[f"/boot/config-{NEW_KERNEL}"]},
        ("kernel", "kernel"),
        [("site", "platforms.2026-01.kernel")],
    ),
    "moved kernel config": Break(
        {f"/boot/config-{NEW_KERNEL}": None, "/boot/config-6.4.0-new": b"CONFIG_64BIT=y\n"},
        ("kernel-config", "kernel configuration"),
        [("setting", "NCCL_DMABUF_ENABLE")],
    ),
    "kernel without an option": Break(
        {f"/boot/config-{NEW_KERNEL}": b"CONFIG_PCI_P2PDMA=y\n"},
        ("kernel-config", "kernel configuration"),
        [("setting", "FI_HMEM_ROCR_USE_DMABUF")],
    ),
    "Slurm": Break(
        {"/usr/lib64/slurm/libslurmfull.so": elf("libslurmfull.so") + b"\0" + b"25.05.1\0"},
        ("slurm", "Slurm"),
        [("site", "platforms.2026-01.slurm"), ("helper", "spank/task_prolog")],
    ),
    "container runtime": Break(
        {"/usr/bin/singularity": b"another one"},
        ("runtime", "container runtime"),
        [("site", "runtimes.singularity.variant")],
    ),
    "no container runtime": Break(
        {"/usr/bin/singularity": None},
        ("runtime", "container runtime"),
        [("site", "runtimes.singularity.variant"), ("helper", "spank/bin")],
    ),
}  # fmt: skip
