"""Images for tests: a squashfs made by mksquashfs, a SIF written around it, and folders of them with an alias."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lumisite.cli import main
from tests.support.dict_trees import Files, Link, write_tree

Output = pytest.CaptureFixture[str]
MKSQUASHFS = shutil.which("mksquashfs", path="/usr/bin:/usr/sbin:/bin:/usr/local/bin")
needs_mksquashfs = pytest.mark.skipif(MKSQUASHFS is None, reason="mksquashfs (squashfs-tools) is not installed")

DEFINITION, PARTITION, OCI_INDEX = 0x4001, 0x4004, 0x400A
SQUASHFS, EXT3, ENCRYPTED = 1, 2, 5
SYSTEM, PRIMARY, OVERLAY = 1, 2, 4
HEADER_BYTES, DESCRIPTOR_BYTES, DESCRIPTORS = 128, 585, 48
LABELS = 0x4004 + 1  # a generic part of a SIF, small

_BANNER = b"GNU C Library (Ubuntu GLIBC 2.39-0ubuntu8.4) stable release version 2.39.\n"
LIBC = b"\x7fELF" + bytes(300_000) + _BANNER + bytes(999)

#: Two images of the LUMI AI Factory in their folders, and the alias above them.
OLD, NEW = (f"lumi-multitorch-{stamp}/lumi-multitorch-full-{stamp}.sif" for stamp in ("20260225", "20260513"))
LATEST = "lumi-multitorch-latest.sif"


def squash(tree: Path, image: Path, *options: str) -> Path:
    assert MKSQUASHFS is not None
    command = [MKSQUASHFS, str(tree), str(image), "-quiet", "-no-progress", "-noappend", "-processors", "1", *options]
    subprocess.run(command, check=True, capture_output=True)
    return image


def descriptor(kind: int, start: int, size: int, *, file_system: int = 0, part: int = 0, used: bool = True) -> bytes:
    extra = struct.pack("<ii3s", file_system, part, b"02\0").ljust(384, b"\0")
    return struct.pack("<iBIIIqqqqqqq128s384s", kind, used, 1, 0, 0, start, size, size, 0, 0, 0, 0, b"part", extra)


def sif(*parts: tuple[int, bytes, int, int], total: int = DESCRIPTORS, version: bytes = b"01\0") -> bytes:
    """Return a SIF of parts: kind, content, file system, type of partition."""
    data = HEADER_BYTES + DESCRIPTORS * DESCRIPTOR_BYTES
    data += -data % 4096
    descriptors, contents = b"", b""
    for kind, content, file_system, part in parts:
        start = data + len(contents)
        descriptors += descriptor(kind, start, len(content), file_system=file_system, part=part)
        contents += content + bytes(-len(content) % 4096)
    descriptors = descriptors.ljust(DESCRIPTORS * DESCRIPTOR_BYTES, b"\0")
    head = b"#!/usr/bin/env run-singularity\n\0" + b"SIF_MAGIC\0" + version + b"02\0" + bytes(16)
    sizes = (0, 0, DESCRIPTORS - len(parts), total, HEADER_BYTES, len(descriptors), data, len(contents))
    return (head + struct.pack("<qqqqqqqq", *sizes) + descriptors).ljust(data, b"\0") + contents


def primary(content: bytes, file_system: int = SQUASHFS) -> bytes:
    """Return a SIF whose containers start from a file system."""
    return sif((PARTITION, content, file_system, PRIMARY))


def make_sif(path: Path, files: Files, *parts: bytes) -> Path:
    work = path.with_suffix(".tree")
    squashed = squash(write_tree(work, files), path.with_suffix(".squash")).read_bytes()
    path.write_bytes(sif((PARTITION, squashed, SQUASHFS, PRIMARY), *((LABELS, part, 0, 0) for part in parts)))
    shutil.rmtree(work)
    path.with_suffix(".squash").unlink()
    return path


def laif() -> dict[str, bytes | Link]:
    """Return the files of an image as the recipes of the LUMI AI Factory lay it out."""
    return {
        "/opt/rocm": Link("/etc/alternatives/rocm"),
        "/etc/alternatives/rocm": Link("/opt/rocm-6.4.4"),
        "/opt/rocm-6.4.4/.info/version": b"6.4.4-129\n",
        "/opt/venv/lib/python3.12/site-packages/torch/version.py": b"__version__ = '2.9.1+rocm6.4'\nhip: str = '6.4'\n",
        "/usr/lib/x86_64-linux-gnu/libc.so.6": LIBC,
        "/usr/lib/libfabric.so.1": Link("libfabric.so.1.29.0"),
        "/usr/lib/libfabric.so.1.29.0": b"\x7fELF",
        "/usr/lib/pkgconfig/libfabric.pc": b"Name: libfabric\nVersion: 2.1.0\n",
        "/usr/lib/libcxi.so.1": Link("libcxi.so.1.5.0"),
        "/usr/lib/libcxi.so.1.5.0": b"\x7fELF",
        "/usr/lib/librccl-net.so": b"\x7fELF" + bytes(9000) + b"NET/OFI Initializing aws-ofi-rccl 1.4.0\0",
    }


def image_folder(tmp_path: Path) -> Path:
    """Write `OLD`, `NEW` and `LATEST`, which leads to `OLD`; return their folder."""
    top = tmp_path / "containers"
    for path, torch in ((OLD, "2.9.1"), (NEW, "2.10.0")):
        version = f"__version__ = '{torch}'\n".encode()
        files = laif() | {"/opt/venv/lib/python3.12/site-packages/torch/version.py": version}
        (top / path).parent.mkdir(parents=True)
        make_sif(top / path, files, (top / path).stem.rpartition("-")[2].encode())
    (top / LATEST).symlink_to(OLD)
    return top


def listing(capsys: Output, *words: str, code: int = 0) -> dict[str, dict[str, Any]]:
    """Return what `images` prints, by the name of each image."""
    assert main(["images", *words, "--json"]) == code
    return {Path(entry["path"]).name: entry for entry in json.loads(capsys.readouterr().out)}
