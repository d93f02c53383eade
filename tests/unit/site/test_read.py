"""Files are opened only where they are regular, and read only where they are not larger than they can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from lumisite.site.read import UnfitFileError, read_file


def test_what_is_no_regular_file_or_too_large_is_a_finding(tmp_path: Path) -> None:
    with pytest.raises(UnfitFileError) as caught:
        read_file(tmp_path, 10)
    assert caught.value.finding.message == "it is not a file but a directory"
    large = tmp_path / "large"
    large.write_bytes(bytes(11))
    with pytest.raises(UnfitFileError) as caught:
        read_file(large, 10)
    assert caught.value.finding.message == "it has more than 10 bytes"
    assert caught.value.filename == str(large)
