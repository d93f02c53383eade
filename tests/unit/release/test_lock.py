"""The lock of a deployment root, where the file system has none."""

from __future__ import annotations

import errno
import fcntl
from pathlib import Path

import pytest

from lumisite.errors import ToolError
from lumisite.release.root import locked


def test_a_file_system_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(ToolError) as caught, locked(tmp_path, "me@host"):
        pass
    finding = caught.value.finding
    assert finding.subject.startswith(f"{tmp_path}/.lock: cannot be locked: No locks available")
