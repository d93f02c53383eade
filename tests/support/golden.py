"""Golden files: what a test finds is compared with a file, which `pytest tests/golden --update-golden` writes anew."""

from __future__ import annotations

from pathlib import Path

import pytest


def check_golden(request: pytest.FixtureRequest, path: Path, text: str) -> None:
    """Compare a text with that of a golden file."""
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()
