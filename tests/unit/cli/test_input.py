"""Files that are read in blocks: gzip in parts, padded with zeros, and damaged; and what a shell opens."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.cli.input import file_blocks
from lumisite.validate import InputError


def packed_text(text: bytes) -> bytes:
    return gzip.compress(text, mtime=0)


TEXT = b"".join(b"%d\n" % number for number in range(200_000))


def test_gzip_is_unpacked_with_all_its_parts(tmp_path: Path) -> None:
    """As `cat a.gz b.gz` makes it, with padding."""
    packed = packed_text(TEXT[:99]) + b"\0" * 70_000 + packed_text(TEXT[99:]) + b"\0"
    (tmp_path / "x.gz").write_bytes(packed)
    assert b"".join(file_blocks(str(tmp_path / "x.gz"))) == TEXT


@pytest.mark.parametrize(
    "packed", [packed_text(TEXT)[:-1], packed_text(TEXT) + b"x", packed_text(TEXT)[:30]], ids=["cut", "more", "head"]
)
def test_damaged_gzip_is_an_error(packed: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.gz").write_bytes(packed)
    with pytest.raises(InputError, match="cannot be unpacked"):
        list(file_blocks(str(tmp_path / "x.gz")))


def test_what_the_shell_opens_may_be_a_pipe() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"#!/bin/bash\ntrue\n")
    os.close(writing)
    try:
        assert main(["lint", f"/dev/fd/{reading}", "--site", "lumi"]) == 0
    finally:
        os.close(reading)
