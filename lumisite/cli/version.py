"""The version, and the commit that this was made of."""

from __future__ import annotations

from pathlib import Path

from lumisite import __version__

_PACKAGE = Path(__file__).parent.parent


def version_line() -> str:
    """Return what `--version` prints."""
    commit = commit_of(_PACKAGE)
    return f"lumisite {__version__}{f' (commit {commit})' if commit else ''}"


def commit_of(package: Path) -> str:
    """Return the commit that a wheel's builder wrote down, or that of the checkout; empty where neither is known."""
    written = package / "COMMIT"
    if written.is_file():
        from lumisite.site.read import read_file

        return read_file(written, 100).decode("ascii").strip()
    if not (package.parent / ".git").exists():
        return ""
    import subprocess  # no other start should pay for it

    argv = ["git", "-C", str(package.parent), "rev-parse", "--short=12", "HEAD"]
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # there is no git
        return ""
