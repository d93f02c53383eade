"""Planted changes of what is installed: products, defaults, ROCm, images, the release, file systems, Slurm, the system."""

from __future__ import annotations

from tests.support.breaks.libraries import FABRIC
from tests.support.breaks.row import TOLD, Break, Plant
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
        ("product", "/opt/cray/libfabric"),
        [("site", "platforms.2026-01.libraries.libfabric"), ("site", "platforms"), ("family", "tykky"), ("plan", "lumi-rocm"), ("module", "singularity-CPEbits"), ("module", "singularity-AI-bindings")],
        TOLD,
        plan="names",
    ),
    "a release of MPICH has gone": Break(
        _mpich("9.0.1", there=False),
        ("product", "/opt/cray/pe/mpich"),
        [("site", "stacks.cpe.releases.25.09.libraries.cray-mpich"), ("module", "singularity-CPEbits")],
        TOLD,
    ),
    "all of MPICH has gone": Break(
        {**_mpich("9.0.1", there=False), **_mpich("8.1.32", there=False)},
        ("product", "/opt/cray/pe/mpich"),
        [("site", "stacks.cpe.releases.25.03.libraries.cray-mpich"), ("plan", "lumi-mpi4py")],
        TOLD,
        also=(("product", "/opt/cray/pe/mpich"),),
    ),
    "a release of MPICH more": Break(
        _mpich("9.1.0", there=True),
        ("product", "/opt/cray/pe/mpich"),
        [("module", "singularity-CPEbits")],
        TOLD,
    ),
    "all of /opt/cray has gone": Break(
        {path: None for path in lumi_node() if path.startswith("/opt/cray/")},
        ("path", "/opt/cray"),
        [("site", "binds[0].path"), ("site", "platforms.2026-01.libraries.libfabric"), ("module", "singularity-CPEbits"), ("plan", "lumi-rocm")],
        TOLD,
        plan="names",
    ),
    # defaults
    "default CPE": Break(
        {"/opt/cray/pe/cpe/default": Link("25.09")},
        ("default", "CPE"),
        [("site", "platforms.2026-01.stacks.cpe.default"), ("module", "singularity-CPEbits"), ("plan", "lumi-mpi4py")],
        TOLD,
    ),
    "default CPE that leads nowhere": Break(
        {"/opt/cray/pe/cpe/default": Link("27.09")},
        ("default", "CPE"),
        [("site", "platforms.2026-01.stacks.cpe.default"), ("module", "singularity-CPEbits")],
        TOLD,
    ),
    "default libfabric": Break(
        {"/opt/cray/libfabric/default": Link("2.0.1")},
        ("default", "/opt/cray/libfabric"),
        [("module", "singularity-CPEbits")],
        TOLD,
        both={FABRIC.replace("1.22.0", "2.0.1"): lumi_node()[FABRIC]},
        plan="decides about",
    ),
    "default libfabric that leads nowhere": Break(
        {"/opt/cray/libfabric/default": Link("9.9.9")},
        ("dangling", "/opt/cray/libfabric/default"),
        [("module", "singularity-CPEbits")],
        TOLD,
    ),
    "default ROCm": Break(
        {"/opt/rocm": Link("rocm-6.4.4")},
        ("default", "ROCm"),
        [("site", "platforms.2026-01.stacks.rocm.default"), ("module", "singularity-AI-bindings")],
        TOLD,
        both={"/opt/rocm-6.4.4/.info/version": b"6.4.4-1\n"},
    ),
    # releases
    "CPE": Break(
        {"/opt/cray/pe/cpe/27.03/set": b"", "/opt/cray/pe/cpe/25.09/set": None},
        ("stack", "CPE"),
        [("site", "stacks.cpe.releases"), ("module", "singularity-CPEbits/25.09*")],
        TOLD,
    ),
    "ROCm on the host": Break(
        {"/opt/rocm-7.2.0/x": b"", HSA: None, ROCM_VERSION: None, "/opt/rocm": Link("rocm-7.2.0")},
        ("stack", "ROCm"),
        [("site", "stacks.rocm.releases.6.3.4"), ("site", "stacks.rocm.releases")],
        TOLD,
        also=(("default", "ROCm"), ("library-gone", "libhsa-runtime64.so.1"),),
    ),
    "ROCm beside the other": Break(
        {"/opt/rocm-6.4.4/.info/version": b"6.4.4-1\n"},
        ("stack", "ROCm"),
        [],
        TOLD,
    ),
    # images
    "retargeted image alias": Break(
        {LATEST: Link(OTHER_SIF), OTHER_SIF: sif_head(2)},
        ("image", "/appl/local/laifs/containers/lumi-multitorch-latest.sif"),
        [("family", "laif-multitorch"), ("module", "singularity-userfilesystems"), ("site", "validation.image")],
        TOLD,
        plan="was made for another file",
    ),
    "retargeted image alias, and the old image has gone": Break(
        {LATEST: Link(OTHER_SIF), OTHER_SIF: sif_head(2), IMAGE: None},
        ("image", LATEST),
        [("family", "laif-multitorch"), ("site", "validation.image")],
        TOLD,
        plan="was made for another file",
    ),
    "a release of several images, and the one before has gone": Break(
        {IMAGE: None, OTHER_SIF: None, **{f"/appl/local/laifs/containers/next/{name}.sif": sif_head(50 + len(name)) for name in ("a", "bb", "ccc")}, LATEST: Link("/appl/local/laifs/containers/next/a.sif"), LATEST.replace("latest", "other"): Link("/appl/local/laifs/containers/next/bb.sif")},
        ("image", LATEST),
        [("family", "laif-multitorch"), ("site", "validation.image")],
        TOLD,
        both={OTHER_SIF: sif_head(5), LATEST.replace("latest", "other"): Link(OTHER_SIF)},
        plan="was made for another file",
    ),
    "several images more in one folder": Break(
        {OTHER_SIF: sif_head(4), OTHER_SIF.replace("other", "third"): sif_head(6)},
        ("image", OTHER_SIF),
        [("family", "laif-multitorch")],
        TOLD,
    ),
    "image moved out, with a link in its place": Break(
        {IMAGE: Link("/pfs/archive/x.sif"), "/pfs/archive/x.sif": sif_head(1)},
        ("image", IMAGE),
        [("family", "laif-multitorch"), ("site", "validation.image")],
        TOLD,
        plan="was made for another file",
    ),
    "image without an identity in a folder that moved, with a link in its place": Break(
        {f"{IMAGES}/plain.sqsh": None, IMAGE: None, IMAGES: Link("/pfs/archive"), "/pfs/archive/plain.sqsh": b"hsqs" * 9, f"/pfs/archive/{IMAGE.rpartition('/')[2]}": sif_head(1)},
        ("image", IMAGE),
        [("family", "laif-multitorch")],
        TOLD,
        both={f"{IMAGES}/plain.sqsh": b"hsqs" * 9},
        plan="was made for another file",
    ),
    "all images moved, with a link in the place of their folder": Break(
        {IMAGE: None, LATEST: None, "/appl/local/laifs/containers": Link("/pfs/c"), IMAGE.replace("/appl/local/laifs/containers", "/pfs/c"): sif_head(1), "/pfs/c/lumi-multitorch-latest.sif": Link(IMAGE)},
        ("path", "/appl/local/laifs/containers"),
        [("module", "singularity-userfilesystems")],
        TOLD,
    ),
    "image moved, and its alias left behind": Break(
        {IMAGE: None, OTHER_SIF: sif_head(1)},
        ("image", LATEST),
        [("family", "laif-multitorch"), ("site", "validation.image")],
        TOLD,
        plan="was made for another file",
    ),
    "image replaced in place": Break(
        {IMAGE: sif_head(3)},
        ("image", IMAGE),
        [("family", "laif-multitorch"), ("site", "validation.image")],
        TOLD,
        both={"/appl/local/laifs/containers/other-alias.sif": Link(LATEST)},
        plan="was made for another file",
    ),
    "vanished image": Break(
        {LATEST: None},
        ("image", "/appl/local/laifs/containers/lumi-multitorch-latest.sif"),
        [("site", "validation.image")],
        TOLD,
        plan="was made for another file",
    ),
    "an image more": Break(
        {OTHER_SIF: sif_head(4)},
        ("image", "/appl/local/laifs/containers/lumi-multitorch-u24r70f21m50t210-20260415_130625/other.sif"),
        [("family", "laif-multitorch")],
        TOLD,
    ),
    "no images": Break(
        {IMAGE: None, LATEST: None},
        ("path", "/appl/local/laifs/containers"),
        [("site", "validation.image"), ("module", "singularity-userfilesystems")],
        TOLD,
    ),
    # the deployed release
    "hand-edited modulefile": Break(
        {f"{DEPLOYED}/{MODULEFILE}": b"edited\n"},
        ("edited", "modules/singularity-CPEbits/25.03.lua"),
        [("module", "singularity-CPEbits/25.03")],
        TOLD,
    ),
    "hand-edited helper": Break(
        {f"{DEPLOYED}/spank/task_prolog": b"#!/bin/sh\nexit 1\n"},
        ("edited", "spank/task_prolog"),
        [("helper", "spank/task_prolog")],
        TOLD,
    ),
    "another release": Break(
        {"/appl/local/lumisite/current": Link("releases/old"), "/appl/local/lumisite/releases/old/x": b""},
        ("release", "deployed release"),
        [("module", "singularity-AI-bindings")],
        TOLD,
    ),
    # file systems
    "file system": Break(
        {"/scratch": None},
        ("path", "/scratch"),
        [("site", "file_systems[1].path"), ("module", "singularity-userfilesystems")],
        TOLD,
    ),
    "dangling file system": Break(
        {"/scratch": Link("/pfs9")},
        ("dangling", "/scratch"),
        [("site", "file_systems[1].path"), ("module", "singularity-userfilesystems")],
        TOLD,
    ),
    "file system led elsewhere": Break(
        {"/scratch": Link("/pfs2"), "/pfs2/.here": b""},
        ("path", "/scratch"),
        [("module", "singularity-userfilesystems")],
        TOLD,
    ),
    "file system that is a file": Break(
        {"/flash": b""},
        ("path", "/flash"),
        [("site", "file_systems[4].path"), ("module", "singularity-userfilesystems")],
        TOLD,
        both={"/flash/x": b""},
    ),
    "file system gone": Break(
        {"/flash/x": None},
        ("path", "/flash"),
        [("site", "file_systems[4].path"), ("module", "singularity-userfilesystems")],
        TOLD,
        both={"/flash/x": b""},
    ),
    "file system that came": Break(
        {"/flash/x": b""},
        ("path", "/flash"),
        [("site", "file_systems[4].path"), ("module", "singularity-userfilesystems")],
        TOLD,
    ),
    "spool of Slurm": Break(
        {"/var/spool/slurmd/x": None},
        ("path", "/var/spool/slurmd"),
        [("site", "binds[3].path")],
        TOLD,
        both={"/var/spool/slurmd/x": b""},
    ),
    # the system
    "glibc of the node": Break(
        {"/lib64/libc.so.6": elf("libc.so.6") + b"\0GNU C Library (GNU libc) stable release version 2.40.\n\0"},
        ("glibc", "glibc"),
        [("plan", "lumi-rocm")],
        TOLD,
        plan="decides about",
    ),
    "operating system": Break(
        {"/etc/os-release": b"PRETTY_NAME=x\n"},
        ("os", "operating system"),
        [("site", "platforms.2026-01.os")],
        TOLD,
    ),
    "kernel": Break(
        {"/proc/sys/kernel/osrelease": b"6.4.1\n", f"/boot/config-{NEW_KERNEL}": None, "/boot/config-6.4.1": lumi_node()[f"/boot/config-{NEW_KERNEL}"]},
        ("kernel", "kernel"),
        [("site", "platforms.2026-01.kernel")],
        TOLD,
    ),
    "moved kernel config": Break(
        {f"/boot/config-{NEW_KERNEL}": None, "/boot/config-6.4.0-new": b"CONFIG_64BIT=y\n"},
        ("kernel-config", "kernel configuration"),
        [("setting", "NCCL_DMABUF_ENABLE")],
        TOLD,
    ),
    "kernel without an option": Break(
        {f"/boot/config-{NEW_KERNEL}": b"CONFIG_PCI_P2PDMA=y\n"},
        ("kernel-config", "kernel configuration"),
        [("setting", "FI_HMEM_ROCR_USE_DMABUF")],
        TOLD,
    ),
    "Slurm": Break(
        {"/usr/lib64/slurm/libslurmfull.so": elf("libslurmfull.so") + b"\0" + b"25.05.1\0"},
        ("slurm", "Slurm"),
        [("site", "platforms.2026-01.slurm"), ("helper", "spank/task_prolog")],
        TOLD,
    ),
    "container runtime": Break(
        {"/usr/bin/singularity": b"another one"},
        ("runtime", "/usr/bin/singularity"),
        [("site", "runtimes.singularity.variant")],
        TOLD,
    ),
    "no container runtime": Break(
        {"/usr/bin/singularity": None},
        ("runtime", "/usr/bin/singularity"),
        [("site", "runtimes.singularity.variant"), ("helper", "spank/bin")],
        TOLD,
    ),
}  # fmt: skip
