"""What packs an image, where the library for it is not there."""

from __future__ import annotations

import sys

import pytest

from lumisite.machine.compression import COMPRESSIONS, unpacker

BY_NAME = {name: number for number, name in COMPRESSIONS.items()}


def test_without_the_library_a_compression_is_not_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unpacker(BY_NAME["zstd"]) is not None
    library = "compression" if sys.version_info >= (3, 14) else "backports"
    monkeypatch.setitem(sys.modules, library, None)  # an import fails as that of what is not installed
    assert unpacker(BY_NAME["zstd"]) is None
    assert unpacker(BY_NAME["gzip"]) is not None
    assert unpacker(BY_NAME["lzo"]) is None
