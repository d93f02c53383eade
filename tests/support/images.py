"""Image files for tests: a squashfs made by mksquashfs, and a SIF written around it."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

MKSQUASHFS = shutil.which("mksquashfs", path="/usr/bin:/usr/sbin:/bin:/usr/local/bin")
needs_mksquashfs = pytest.mark.skipif(MKSQUASHFS is None, reason="mksquashfs (squashfs-tools) is not installed")

DEFINITION, PARTITION, OCI_INDEX = 0x4001, 0x4004, 0x400A
SQUASHFS, EXT3, ENCRYPTED = 1, 2, 5
SYSTEM, PRIMARY, OVERLAY = 1, 2, 4
HEADER_BYTES, DESCRIPTOR_BYTES, DESCRIPTORS = 128, 585, 48


def squash(tree: Path, image: Path, *options: str) -> Path:
    assert MKSQUASHFS is not None
    command = [MKSQUASHFS, str(tree), str(image), "-quiet", "-no-progress", "-noappend", "-processors", "1", *options]
    subprocess.run(command, check=True, capture_output=True)
    return image


def descriptor(kind: int, start: int, size: int, *, file_system: int = 0, part: int = 0, used: bool = True) -> bytes:
    extra = struct.pack("<ii3s", file_system, part, b"02\0").ljust(384, b"\0")
    return struct.pack("<iBIIIqqqqqqq128s384s", kind, used, 1, 0, 0, start, size, size, 0, 0, 0, 0, b"part", extra)


def sif(*parts: tuple[int, bytes, int, int], total: int = DESCRIPTORS, version: bytes = b"01\0") -> bytes:
    """Write a SIF of parts: kind, content, file system, type of partition."""
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
