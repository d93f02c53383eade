"""Files that are read in blocks: gzip in parts, padded with zeros, and damaged."""

from __future__ import annotations

import gzip
import os
import time
from pathlib import Path

import pytest

from lumisite.cli.input import file_blocks
from lumisite.validate import InputError


def packed_text(text: bytes) -> bytes:
    return gzip.compress(text, mtime=0)


TEXT = b"".join(b"%d\n" % number for number in range(200_000))


@pytest.mark.parametrize(
    "packed",
    [
        packed_text(TEXT),
        packed_text(TEXT[:99]) + packed_text(TEXT[99:]),  # as `cat a.gz b.gz` makes it
        packed_text(TEXT[:99]) + b"\0" * 70_000 + packed_text(TEXT[99:]) + b"\0",
        b"".join(packed_text(TEXT[at : at + 1000]) for at in range(0, len(TEXT), 1000)),
    ],
    ids=["whole", "two", "padded", "many"],
)
def test_gzip_is_unpacked_with_all_its_parts(packed: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.gz").write_bytes(packed)
    assert b"".join(file_blocks(str(tmp_path / "x.gz"))) == TEXT == gzip.decompress(packed)


@pytest.mark.parametrize(
    "packed", [packed_text(TEXT)[:-1], packed_text(TEXT) + b"x", packed_text(TEXT)[:30]], ids=["cut", "more", "head"]
)
def test_damaged_gzip_is_an_error(packed: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.gz").write_bytes(packed)
    with pytest.raises(InputError, match="cannot be unpacked"):
        list(file_blocks(str(tmp_path / "x.gz")))


def test_zeros_behind_gzip_are_passed_over_and_not_read_one_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(packed_text(TEXT))
    os.truncate(path, 1 << 28)
    began = time.process_time()
    assert b"".join(file_blocks(str(path))) == TEXT
    assert time.process_time() - began < 10  # a second at most; a byte at a time, minutes
