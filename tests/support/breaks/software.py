"""Planted changes of what is installed: products, defaults, ROCm, images, the release, file systems, Slurm, the system."""

from __future__ import annotations

from tests.support.breaks.libraries import FABRIC
from tests.support.breaks.row import Break, Plant
from tests.support.dict_trees import Link
from tests.support.elves import elf
from tests.support.nodes import AFTER, GTL, LATEST, MODULEFILE, MPI, NEW_KERNEL, RELEASE, lumi_node, sif_head

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
        "libfabric: directory renamed, /opt/cray/libfabric/1.22.0 -> /opt/cray/libfabric/2.0.1",
        [
            ("site", "platforms.2026-01.libraries.libfabric", "names /opt/cray/libfabric/1.22.0, which is gone"),
            ("site", "platforms", "no platform or CPE release names /opt/cray/libfabric/2.0.1 yet"),
            ("family", "tykky", "LD_LIBRARY_PATH"),
            ("plan", "lumi-pytorch", "libfabric.so.1 came from a directory that is gone"),
            ("module", "singularity-CPEbits", "binds /opt/cray"),
            ("module", "singularity-AI-bindings", "loads singularity-CPEbits"),
        ],
        "Images and job scripts that name /opt/cray/libfabric/1.22.0 (now /opt/cray/libfabric/2.0.1): the directory is gone.",
        plan=f"names /opt/cray/libfabric/1.22.0/lib64, {FABRIC}",
    ),
    "a release of MPICH has gone": Break(
        _mpich("9.0.1", there=False),
        "mpich: directory gone, /opt/cray/pe/mpich/9.0.1",
        [("site", "stacks.cpe.releases.25.09.libraries.cray-mpich", "is gone"), ("module", "singularity-CPEbits", "binds /opt/cray")],
        "Images and job scripts that name /opt/cray/pe/mpich/9.0.1: the directory is gone.",
    ),
    "all of MPICH has gone": Break(
        {**_mpich("9.0.1", there=False), **_mpich("8.1.32", there=False)},
        "mpich: directory gone, /opt/cray/pe/mpich/8.1.32",
        [("site", "stacks.cpe.releases.25.03.libraries.cray-mpich", "is gone"), ("plan", "lumi-mpi4py", "came from a directory that is gone")],
        "Images and job scripts that name /opt/cray/pe/mpich/8.1.32: the directory is gone.",
        also=("mpich: directory gone, /opt/cray/pe/mpich/9.0.1",),
    ),
    "a release of MPICH more": Break(
        _mpich("9.1.0", there=True),
        "mpich: new directory, /opt/cray/pe/mpich/9.1.0",
        [("module", "singularity-CPEbits", "binds /opt/cray")],
        "mpich: new directory, /opt/cray/pe/mpich/9.1.0.",
    ),
    "all of /opt/cray has gone": Break(
        {path: None for path in lumi_node() if path.startswith("/opt/cray/")},
        "/opt/cray: was a directory, is not there",
        [
            ("site", "binds[0].path", "names /opt/cray, which is not there"),
            ("site", "platforms.2026-01.libraries.libfabric", "names /opt/cray, which is not there"),
            ("module", "singularity-CPEbits", "binds /opt/cray"),
            ("plan", "lumi-pytorch", "libfabric.so.1 came from /opt/cray"),
        ],
        "/opt/cray: was a directory, is not there.",
        plan=f"names /opt/cray/libfabric/1.22.0/lib64, {FABRIC}",
    ),
    # defaults
    "default CPE": Break(
        {"/opt/cray/pe/cpe/default": Link("25.09")},
        "default CPE: 25.03 -> 25.09",
        [
            ("site", "platforms.2026-01.stacks.cpe.default", "says 25.03"),
            ("module", "singularity-CPEbits", "default"),
            ("plan", "lumi-mpi4py", "libmpi_gnu_123.so.12"),
        ],
        "default CPE: 25.03 -> 25.09.",
    ),
    "default CPE that leads nowhere": Break(
        {"/opt/cray/pe/cpe/default": Link("27.09")},
        "default CPE: 25.03 -> none",
        [("site", "platforms.2026-01.stacks.cpe.default", "says 25.03"), ("module", "singularity-CPEbits", "default")],
        "default CPE: 25.03 -> none.",
    ),
    "default libfabric": Break(
        {"/opt/cray/libfabric/default": Link("2.0.1")},
        "/opt/cray/libfabric/default: 1.22.0 -> 2.0.1",
        [("module", "singularity-CPEbits", "binds /opt/cray")],
        "/opt/cray/libfabric/default: 1.22.0 -> 2.0.1.",
        both={FABRIC.replace("1.22.0", "2.0.1"): lumi_node()[FABRIC]},
        plan="decides about libfabric.so.1",
    ),
    "default libfabric that leads nowhere": Break(
        {"/opt/cray/libfabric/default": Link("9.9.9")},
        "dangling link: /opt/cray/libfabric/default",
        [("module", "singularity-CPEbits", "binds /opt/cray")],
        "dangling link: /opt/cray/libfabric/default",
    ),
    "default ROCm": Break(
        {"/opt/rocm": Link("rocm-6.4.4")},
        "default ROCm: 6.3.4 -> 6.4.4",
        [("site", "platforms.2026-01.stacks.rocm.default", "says 6.3.4"), ("module", "singularity-AI-bindings", "default ROCm")],
        "default ROCm: 6.3.4 -> 6.4.4.",
        both={"/opt/rocm-6.4.4/.info/version": b"6.4.4-1\n"},
    ),
    # releases
    "CPE": Break(
        {"/opt/cray/pe/cpe/27.03/set": b"", "/opt/cray/pe/cpe/25.09/set": None},
        "CPE on the host: 25.03, 25.09 -> 25.03, 27.03",
        [("site", "stacks.cpe.releases", "27.03 is not described"), ("module", "singularity-CPEbits/25.09*", "is gone")],
        "Cray programming environment: 25.03, 25.09 -> 25.03, 27.03.",
    ),
    "ROCm on the host": Break(
        {"/opt/rocm-7.2.0/x": b"", HSA: None, ROCM_VERSION: None, "/opt/rocm": Link("rocm-7.2.0")},
        "ROCm on the host: 6.3.4 -> 7.2.0",
        [("site", "stacks.rocm.releases.6.3.4", "the host has it no more"), ("site", "stacks.rocm.releases", "7.2.0 is not described")],
        "ROCm on the host: 6.3.4 -> 7.2.0.",
        also=("default ROCm: 6.3.4 -> 7.2.0", "libhsa-runtime64.so.1 is needed by"),
    ),
    "ROCm beside the other": Break(
        {"/opt/rocm-6.4.4/.info/version": b"6.4.4-1\n"},
        "ROCm on the host: 6.3.4 -> 6.3.4, 6.4.4",
        [],
        "ROCm on the host: 6.3.4 -> 6.3.4, 6.4.4.",
    ),
    # images
    "retargeted image alias": Break(
        {LATEST: Link(OTHER_SIF), OTHER_SIF: sif_head(2)},
        f"image alias {LATEST} leads elsewhere",
        [
            ("family", "laif-multitorch", f"recognises {LATEST}"),
            ("module", "singularity-userfilesystems", "images of laif-multitorch"),
            ("site", "validation.image", "the probes run in"),
        ],
        f"{LATEST} now leads to {OTHER_SIF}.",
        also=(f"new image: {OTHER_SIF}",),
        plan=f"another file is behind {LATEST} now",
    ),
    "image replaced in place": Break(
        {IMAGE: sif_head(3)},
        f"image replaced under its name: {LATEST}",
        [("family", "laif-multitorch", "")],
        f"{LATEST} was replaced by another image.",
        also=(f"image replaced under its name: {IMAGE}",),
        plan=f"another file is behind {LATEST} now",
    ),
    "vanished image": Break(
        {LATEST: None},
        f"image gone: {LATEST}",
        [("site", "validation.image", "leads nowhere")],
        f"{LATEST} is gone.",
        plan=f"no file is behind {LATEST} now",
    ),
    "an image more": Break(
        {OTHER_SIF: sif_head(4)},
        f"new image: {OTHER_SIF}",
        [("family", "laif-multitorch", "recognises")],
        f"new image: {OTHER_SIF}.",
    ),
    "no images": Break(
        {IMAGE: None, LATEST: None},
        "/appl/local/laifs/containers: was a directory, is not there",
        [("site", "validation.image", "names /appl/local/laifs/containers"), ("module", "singularity-userfilesystems", "binds /appl")],
        "/appl/local/laifs/containers: was a directory, is not there.",
    ),
    # the deployed release
    "hand-edited modulefile": Break(
        {f"{DEPLOYED}/{MODULEFILE}": b"edited\n"},
        f"{MODULEFILE} was edited by hand in the deployed release {RELEASE}",
        [("module", "singularity-CPEbits/25.03", "is not what was rendered")],
        f"{MODULEFILE} was edited by hand",
    ),
    "hand-edited helper": Break(
        {f"{DEPLOYED}/spank/task_prolog": b"#!/bin/sh\nexit 1\n"},
        f"spank/task_prolog was edited by hand in the deployed release {RELEASE}",
        [("helper", "spank/task_prolog", "is not what was rendered")],
        "spank/task_prolog was edited by hand",
    ),
    "another release": Break(
        {"/appl/local/lumisite/current": Link("releases/old"), "/appl/local/lumisite/releases/old/x": b""},
        f"deployed release: {RELEASE} -> old",
        [("module", "singularity-AI-bindings", "users load it")],
        f"deployed release: {RELEASE} -> old.",
    ),
    # file systems
    "file system": Break(
        {"/scratch": None},
        "/scratch: was a directory at /pfs, is not there",
        [("site", "file_systems[1].path", "is not there"), ("module", "singularity-userfilesystems", "binds /scratch")],
        "/scratch: was a directory at /pfs, is not there.",
    ),
    "dangling file system": Break(
        {"/scratch": Link("/pfs9")},
        "/scratch: was a directory at /pfs, is a link that leads to /pfs9, which is not there",
        [("site", "file_systems[1].path", "is not what it was"), ("module", "singularity-userfilesystems", "binds /scratch")],
        "/scratch: was a directory at /pfs, is a link that leads to /pfs9",
    ),
    "file system led elsewhere": Break(
        {"/scratch": Link("/pfs2"), "/pfs2/.here": b""},
        "/scratch: was a directory at /pfs, is a directory at /pfs2",
        [("module", "singularity-userfilesystems", "binds /scratch")],
        "/scratch: was a directory at /pfs, is a directory at /pfs2.",
    ),
    "file system that is a file": Break(
        {"/flash": b""},
        "/flash: was a directory, is a file",
        [("site", "file_systems[4].path", "is not what it was"), ("module", "singularity-userfilesystems", "binds /flash")],
        "/flash: was a directory, is a file.",
        both={"/flash/x": b""},
    ),
    "file system gone": Break(
        {"/flash/x": None},
        "/flash: was a directory, is not there",
        [("site", "file_systems[4].path", "is not there"), ("module", "singularity-userfilesystems", "binds /flash")],
        "/flash: was a directory, is not there.",
        both={"/flash/x": b""},
    ),
    "file system that came": Break(
        {"/flash/x": b""},
        "/flash: was not there, is a directory",
        [("site", "file_systems[4].path", ""), ("module", "singularity-userfilesystems", "binds /flash")],
        "/flash: was not there, is a directory.",
    ),
    "spool of Slurm": Break(
        {"/var/spool/slurmd/x": None},
        "/var/spool/slurmd: was a directory, is not there",
        [("site", "binds[3].path", "is not there")],
        "/var/spool/slurmd: was a directory, is not there.",
        both={"/var/spool/slurmd/x": b""},
    ),
    # the system
    "glibc of the node": Break(
        {"/lib64/libc.so.6": elf("libc.so.6") + b"\0GNU C Library (GNU libc) stable release version 2.40.\n\0"},
        "glibc: 2.38 -> 2.40",
        [("plan", "lumi-pytorch", "what images need of glibc")],
        "glibc: 2.38 -> 2.40.",
        plan="binds libraries that were built with another glibc, or may be now",
    ),
    "operating system": Break(
        {"/etc/os-release": b"PRETTY_NAME=x\n"},
        "operating system: SLES 15 SP6 -> x",
        [("site", "platforms.2026-01.os", "says SLES 15 SP6")],
        "Operating system: SLES 15 SP6 -> x.",
    ),
    "kernel": Break(
        {"/proc/sys/kernel/osrelease": b"6.4.1\n", f"/boot/config-{NEW_KERNEL}": None, "/boot/config-6.4.1": lumi_node()[f"/boot/config-{NEW_KERNEL}"]},
        f"kernel: {NEW_KERNEL} -> 6.4.1",
        [("site", "platforms.2026-01.kernel", "says nothing")],
        f"Kernel: {NEW_KERNEL} -> 6.4.1.",
        also=("kernel configuration moved",),
    ),
    "moved kernel config": Break(
        {f"/boot/config-{NEW_KERNEL}": None, "/boot/config-6.4.0-new": b"CONFIG_64BIT=y\n"},
        f"kernel configuration: /boot/config-{NEW_KERNEL} -> /boot/config-{NEW_KERNEL}, which is not there (/boot/config-6.4.0-new)",
        [("setting", "NCCL_DMABUF_ENABLE", "RCCL reads /boot/config-RELEASE")],
        "kernel configuration:",
    ),
    "kernel without an option": Break(
        {f"/boot/config-{NEW_KERNEL}": b"CONFIG_PCI_P2PDMA=y\n"},
        "CONFIG_DMABUF_MOVE_NOTIFY=y, CONFIG_PCI_P2PDMA=y -> CONFIG_PCI_P2PDMA=y",
        [("setting", "FI_HMEM_ROCR_USE_DMABUF", "DMA-BUF")],
        "kernel options for DMA-BUF",
    ),
    "Slurm": Break(
        {"/usr/lib64/slurm/libslurmfull.so": elf("libslurmfull.so") + b"\0" + b"25.05.1\0"},
        "Slurm: 24.05.8 -> 25.05.1",
        [("site", "platforms.2026-01.slurm", "says 24.05.8"), ("helper", "spank/task_prolog", "")],
        "Slurm: 24.05.8 -> 25.05.1.",
    ),
    "container runtime": Break(
        {"/usr/bin/singularity": b"another one"},
        "container runtime: /usr/bin/singularity",
        [("site", "runtimes.singularity.variant", "SingularityCE")],
        "Container runtime: /usr/bin/singularity",
    ),
    "no container runtime": Break(
        {"/usr/bin/singularity": None},
        "container runtime: /usr/bin/singularity",
        [("site", "runtimes.singularity.variant", "SingularityCE"), ("helper", "spank/bin", "hands over to it")],
        "Container runtime: /usr/bin/singularity",
    ),
}  # fmt: skip
