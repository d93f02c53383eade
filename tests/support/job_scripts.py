"""Scripts of probes, put where a test runs them."""

from __future__ import annotations

from pathlib import Path

from lumisite.validate.probes.probe import scripts

WAITS = "GRACE_S = 1.0\n"


def put_scripts(folder: Path, *names: str) -> None:
    """Put scripts into a folder, all where none is named; one that fails has nobody to wait for."""
    folder.mkdir(exist_ok=True)
    assert WAITS in scripts()["rank.py"].read_text()
    for name in names or scripts():
        (folder / name).write_text(scripts()[name].read_text().replace(WAITS, "GRACE_S = 0.0\n"))
