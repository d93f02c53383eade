"""What the twin's release of 2026-01 hands to containers, on a node."""

from __future__ import annotations

from tests.support.dict_trees import Link
from tests.support.elves import elf

FABRIC = "/opt/cray/libfabric/1.22.0/lib64/libfabric.so.1"
LIBCXI = "/usr/lib64/libcxi.so.1"
MPI = "/opt/cray/pe/mpich/8.1.32/lib/libmpi.so.12"
SHARED = ("scratch", "project", "projappl", "flash", "appl")


def host() -> dict[str, bytes | Link]:
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
