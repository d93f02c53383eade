"""What is read of one image has a limit: names of directories, and blocks of metadata, which may hold one byte each."""

from __future__ import annotations

import pytest

from lumisite.images import squashfs
from lumisite.images.sif import find_root
from lumisite.images.squashfs import ImageError, Squashfs, read_squashfs
from lumisite.machine.tree import Memory
from tests.support.fuzz_growth import image


def opened(names: int, block: int = 8192) -> Squashfs:
    source = Memory("x.sif", image(names, block))
    part, _ = find_root(source)
    return read_squashfs(source, part.start, part.size)


def test_a_large_directory_is_read_once_for_all_its_names() -> None:
    found = opened(120_000)  # more than a megabyte
    assert len(found.names("/usr")) == 120_000
    left = found.budget.entries
    assert all(found.look(f"/usr/{number:06}") for number in range(0, 60_000, 100))
    assert found.budget.entries == left


def test_names_beyond_the_limit_are_refused_with_their_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    found = opened(3_000)
    found.budget.entries = 2_000
    with pytest.raises(ImageError) as refused:
        found.names("/usr")
    assert refused.value.finding.code == "image-too-much"
    assert refused.value.finding.values["limit"] == squashfs.MOST_ENTRIES
    assert refused.value.finding.values["byte"]


def test_blocks_of_one_byte_are_read_up_to_a_number() -> None:
    assert len(opened(500, block=1).names("/usr")) == 500
    with pytest.raises(ImageError) as refused:
        opened(20_000, block=1).names("/usr")
    assert refused.value.finding.code == "image-too-much"
    assert refused.value.finding.values["limit"] == squashfs.MOST_METADATA_BLOCKS
