"""The container image of the twin: Debian's PyTorch for the CPU (gloo and MPI), in one SIF.

Observed on trixie: PyTorch 2.6, 1.2 GB unpacked, about 416 MB as a SIF with zstd at its lowest level.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.twin.cache import build_tool, cached, remove_tree
from tests.twin.roots import bootstrap, node_root

RECIPE_VERSION = 1
"""Counts the changes of the steps below, which the key of an image cannot see."""

SUITE = "trixie"
TORCH_PACKAGES = ("python3-torch", "python3-numpy", "iproute2")
SMALL_PACKAGES = ("python3-minimal",)

# Debian's torch has no libuv, and its TCPStore asks for it unless told otherwise.
ENVIRONMENT = "export USE_LIBUV=0\n"


def torch_image() -> Path:
    """Give the SIF with PyTorch, built if need be (two minutes, needs root and the network)."""
    return _image("torch", TORCH_PACKAGES) / "image.sif"


def small_image() -> Path:
    """Give a SIF with little more than a shell and Python, for tests that start many containers."""
    return _image("small", SMALL_PACKAGES) / "image.sif"


def small_tree() -> Path:
    """Give the unpacked root of the small image, to lay something over it; nobody writes into it."""
    inputs = {"version": RECIPE_VERSION, "suite": SUITE, "packages": SMALL_PACKAGES}
    return cached("image-small-tree", inputs, lambda work: _unpack(SMALL_PACKAGES, work / "tree")) / "tree"


def pack_image(tree: Path, sif: Path) -> None:
    """Pack an unpacked image into a SIF with the node root's own Apptainer. Both lie in the same folder."""
    root = node_root(SUITE)
    script = (
        f'mount --bind "{sif.parent}" "{root}/mnt" && mount -t proc proc "{root}/proc"'
        f' && mount --rbind /dev "{root}/dev" && mount -t tmpfs tmpfs "{root}/tmp"'
        f' && exec chroot "{root}" env HOME=/tmp APPTAINER_TMPDIR=/tmp apptainer --quiet build'
        f' --mksquashfs-args "-comp zstd -Xcompression-level 1" "/mnt/{sif.name}" "/mnt/{tree.name}"'
    )
    build_tool(["sh", "-c", script])
    sif.chmod(0o644)


def _image(name: str, packages: Sequence[str]) -> Path:
    inputs = {"version": RECIPE_VERSION, "suite": SUITE, "packages": packages, "environment": ENVIRONMENT}

    def build(work: Path) -> None:
        _unpack(packages, work / "tree")
        pack_image(work / "tree", work / "image.sif")
        remove_tree(work / "tree")

    return cached(f"image-{name}", inputs, build)


def _unpack(packages: Sequence[str], tree: Path) -> None:
    bootstrap(SUITE, tuple(packages), tree)
    environment = tree / ".singularity.d/env/90-environment.sh"
    environment.parent.mkdir(parents=True)
    environment.write_text(f"#!/bin/sh\n{ENVIRONMENT}")
    environment.chmod(0o755)
    shutil.rmtree(tree / "var/lib/apt/lists", ignore_errors=True)
