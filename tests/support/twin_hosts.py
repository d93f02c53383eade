"""A node of the twin with what its release of 2026-01 hands to containers."""

from __future__ import annotations

from tests.support.dict_trees import Link
from tests.support.elves import elf

FABRIC = "/opt/cray/libfabric/1.22.0/lib64/libfabric.so.1"
LIBCXI = "/usr/lib64/libcxi.so.1"
MPI = "/opt/cray/pe/mpich/8.1.32/lib/libmpi.so.12"
SHARED = ("scratch", "project", "projappl", "flash", "appl")
MOUNTED = tuple(f"/{name}" for name in SHARED)


def host() -> dict[str, bytes | Link]:
    """Return the files of a node that has all, and says nothing of what it is itself."""
    return {
        **{f"/{name}/.keep": b"" for name in SHARED},
        "/usr/bin/apptainer": b"#!/bin/sh\n",
        "/usr/bin/singularity": Link("apptainer"),
        MPI: elf("libmpi.so.12"),
        FABRIC: Link("libfabric.so.1.29.0"),
        f"{FABRIC}.29.0": elf("libfabric.so.1", ["libcxi.so.1", "libc.so.6"]),
        LIBCXI: Link("libcxi.so.1.6.0"),
        f"{LIBCXI}.6.0": elf("libcxi.so.1"),
    }


def compute_node() -> dict[str, bytes | Link]:
    """Return the files of a compute node called nid001, with all file systems mounted and all interfaces up."""
    return {
        **host(),
        **{f"/sys/class/net/hsn{number}/operstate": b"up\n" for number in range(4)},
        "/sys/class/net/lo/operstate": b"unknown\n",
        "/proc/self/mountinfo": mount_table(*MOUNTED),
        "/etc/hostname": b"nid001\n",
        "/var/spool/slurmd/.keep": b"",
    }


def mount_table(*points: str, read_only: str = "", more: str = "") -> bytes:
    """Return a mount table as the kernel writes it, with shared file systems at some points, and `more` lines."""
    lines = (
        f"{30 + number} 21 0:{number} / {point} {'ro' if point == read_only else 'rw'} - lustre 10.0.0.1@o2ib:/x rw\n"
        for number, point in enumerate(points)
    )
    root = "21 1 0:20 / / rw,relatime - tmpfs rootfs rw\n22 21 0:4 / /proc rw - proc proc rw\n"
    return f"{root}{''.join(lines)}{more}".encode()
