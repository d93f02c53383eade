"""A LUMI-G node in files, before and after January 2026: kernel, libraries, products, images and a deployed release."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from tests.support.dict_trees import Link
from tests.support.elves import elf
from tests.support.lumi_g import LUMI_G, lumi_g_files

NodeFiles = dict[str, bytes | Link]

#: As /proc/sys/kernel/osrelease said it, and as the file in /boot is called.
OLD_KERNEL, NEW_KERNEL = "5.14.21-150500.55.49_13.0.56-cray_shasta_c", "6.4.0-150600.23.17_14.0.1-cray_shasta_c"
RELEASE = "2026-01-ba9876543210"
MODULEFILE = "modules/singularity-CPEbits/25.03.lua"
#: Where a release of Cray MPICH has its library and its GPU transport layer.
MPI, GTL = "ofi/gnu/12.3/lib/libmpi_gnu_123.so.12", "gtl/lib/libmpi_gtl_hsa.so.0"
#: Symbol versions of the newest libraries.
CXI_VERSIONS, FABRIC_VERSIONS = ("LIBCXI_1.0", "LIBCXI_1.5"), ("FABRIC_1.0", "FABRIC_1.7", "FABRIC_1.8")
LATEST = "/appl/local/laifs/containers/lumi-multitorch-latest.sif"


@dataclass(frozen=True)
class Versions:
    """What a maintenance changed."""

    os: str
    kernel: str
    slurm: str
    glibc: str
    driver: str
    rocm: str
    cpe: tuple[str, ...]
    libfabric: str
    libcxi: str
    mpich: tuple[str, ...]
    json: str
    wants: str
    buses: Mapping[str, str] = field(hash=False)
    image: str


BEFORE = Versions("SLES 15 SP5", OLD_KERNEL, "23.02.7", "2.31", "6.3.6", "6.0.3", ("24.03", "23.09"), "1.15.2.0", "1.5.0", ("8.1.27", "8.1.29"), "3", "GLIBC_2.14", {"ce": "cc", "de": "dc"}, "u24r64f21m43t29-20260124_092648")  # fmt: skip
AFTER = Versions("SLES 15 SP6", NEW_KERNEL, "24.05.8", "2.38", "6.10.5", "6.3.4", ("25.03", "25.09"), "1.22.0", "1.6.0", ("8.1.32", "9.0.1"), "5", "GLIBC_2.38", {}, "u24r70f21m50t210-20260415_130625")  # fmt: skip


def lumi_node(versions: Versions = AFTER, changes: Mapping[str, bytes | Link | None] | None = None) -> NodeFiles:
    """Give all files of a node by path; in `changes`, `None` takes a file away."""
    files = {**_usual(versions)}
    for path, content in (changes or {}).items():
        if content is None:
            files.pop(path, None)
        else:
            files[path] = content
    return files


@cache
def _usual(versions: Versions) -> Mapping[str, bytes | Link]:
    return {**_kernel(versions), **_libraries(versions), **_software(versions)}


def _kernel(versions: Versions) -> NodeFiles:
    files: NodeFiles = {}
    for path, content in lumi_g_files().items():
        for new, old in versions.buses.items():
            path = path.replace(f"0000:{new}:00.0", f"0000:{old}:00.0")
        files[path] = content
    config = b"CONFIG_64BIT=y\nCONFIG_DMABUF_MOVE_NOTIFY=y\nCONFIG_PCI_P2PDMA=y\n"
    buses = {
        path.split("/")[5] for path in files if path.startswith("/sys/bus/pci/devices/0000:") and ":02:" not in path
    }
    files |= {f"/sys/bus/pci/drivers/amdgpu/{bus}": Link(f"/sys/bus/pci/devices/{bus}") for bus in buses}
    domains = {pu: core.numa for core in LUMI_G.cores for pu in core.pu_os}
    files |= {f"/sys/devices/system/node/node{numa}/cpu{pu}/online": b"1\n" for pu, numa in domains.items()}
    files["/sys/devices/system/node/has_cpu"] = b"0-3\n"
    files |= {
        "/proc/sys/kernel/osrelease": f"{versions.kernel}\n".encode(),
        "/proc/sys/kernel/hostname": b"nid005001\n",
        f"/boot/config-{versions.kernel}": config,
        "/proc/config.gz": gzip.compress(config, mtime=0),
        "/etc/os-release": f'NAME="SLES"\nPRETTY_NAME="{versions.os}"\nID="sles"\nVERSION_ID="15"\n'.encode(),
        "/sys/module/amdgpu/version": f"{versions.driver}\n".encode(),
        "/sys/module/amdgpu/srcversion": b"AB12\n",
    }
    for number, bus in enumerate(("c2", "ca", "d5", "da")):
        device = f"/sys/devices/pci0000:00/0000:00:01.1/0000:{bus}:00.0"
        files |= {
            f"{device}/numa_node": f"{(3, 1, 0, 2)[number]}\n".encode(),
            f"{device}/local_cpulist": b"0-127\n",
            f"{device}/driver": Link("/sys/bus/pci/drivers/cxi_ss1"),
            f"{device}/net/hsn{number}/device": Link("../.."),
            f"{device}/net/hsn{number}/operstate": b"up\n",
            f"{device}/net/hsn{number}/speed": b"200000\n",
            f"/sys/class/net/hsn{number}": Link(
                f"../../devices/pci0000:00/0000:00:01.1/0000:{bus}:00.0/net/hsn{number}"
            ),
            f"/sys/class/cxi/cxi{number}/device": Link(f"../../../devices/pci0000:00/0000:00:01.1/0000:{bus}:00.0"),
        }
    return {**files, "/sys/bus/pci/drivers/cxi_ss1/bind": b"", "/sys/class/net/lo/operstate": b"unknown\n"}


def _libraries(versions: Versions) -> NodeFiles:
    wants = {"libc.so.6": [versions.wants]}
    fabric = f"/opt/cray/libfabric/{versions.libfabric}/lib64"
    json = f"libjson-c.so.{versions.json}"
    libc = elf("libc.so.6", verdef=["GLIBC_2.2.5"]) + (
        f"\0GNU C Library (GNU libc) stable release version {versions.glibc}.\n\0".encode()
    )
    files: NodeFiles = {
        "/lib64/libc.so.6": libc,
        f"/usr/lib64/libcxi.so.{versions.libcxi}": elf(
            "libcxi.so.1", ["libc.so.6"], verneed=wants, verdef=CXI_VERSIONS
        ),
        "/usr/lib64/libcxi.so.1": Link(f"libcxi.so.{versions.libcxi}"),
        f"/usr/lib64/{json}": elf(json, ["libc.so.6"]),
        "/usr/lib64/libjansson.so.4": elf("libjansson.so.4", ["libc.so.6"]),
        f"{fabric}/libfabric.so.1": elf(
            "libfabric.so.1", ["libcxi.so.1", json, "libc.so.6"], verneed=wants, verdef=FABRIC_VERSIONS
        ),
        "/opt/cray/aws-ofi-rccl/lib/librccl-net.so": elf("librccl-net.so", ["libfabric.so.1"]),
        f"/opt/rocm-{versions.rocm}/lib/libhsa-runtime64.so.1": elf("libhsa-runtime64.so.1"),
        f"/opt/rocm-{versions.rocm}/.info/version": f"{versions.rocm}-1\n".encode(),
        "/opt/rocm": Link(f"rocm-{versions.rocm}"),
        "/usr/lib64/slurm/libslurmfull.so": elf("libslurmfull.so") + f"\0{versions.slurm}\0".encode(),
        "/opt/cray/libfabric/default": Link(versions.libfabric),
    }
    for version in versions.mpich:
        mpich = f"/opt/cray/pe/mpich/{version}"
        files[f"{mpich}/{GTL}"] = elf("libmpi_gtl_hsa.so.0", ["libhsa-runtime64.so.1"])
        files[f"{mpich}/{MPI}"] = elf("libmpi_gnu_123.so.12", ["libfabric.so.1"])
    return files


def _software(versions: Versions) -> NodeFiles:
    files: NodeFiles = {f"/opt/cray/pe/cpe/{version}/set": b"" for version in versions.cpe}
    files["/opt/cray/pe/cpe/default"] = Link(versions.cpe[0])
    folder = f"/appl/local/laifs/containers/lumi-multitorch-{versions.image}"
    image = f"{folder}/lumi-multitorch-full-{versions.image}.sif"
    return files | {
        image: sif_head(1 if versions.image == AFTER.image else 11),
        LATEST: Link(image),
        "/usr/bin/singularity": elf(None, interpreter="/lib64/ld-linux-x86-64.so.2"),
        "/appl/local/lumisite/current": Link(f"releases/{RELEASE}"),
        f"/appl/local/lumisite/releases/{RELEASE}/{MODULEFILE}": b'help("x")\n',
        f"/appl/local/lumisite/releases/{RELEASE}/spank/task_prolog": b"#!/bin/sh\n",
        "/pfs/.here": b"",
        "/scratch": Link("/pfs"),
    }


def sif_head(number: int) -> bytes:
    """The first bytes of a SIF, with an identity of its own."""
    return b"#!/usr/bin/env run-singularity\n\0" + b"SIF_MAGIC\0" + b"01\0" + b"02\0" + number.to_bytes(16, "big")
