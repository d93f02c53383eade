"""How commands print results and notes, and write files; `terminal` makes all that they print safe to show."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from lumisite.cli.terminal import plain, print_lines
from lumisite.errors import refused

if TYPE_CHECKING:
    from lumisite.site.model import Site


def print_result(result: object, lines: Iterable[str], *, as_json: bool) -> None:
    """Print a result: as JSON for a machine, else its lines, if there are any."""
    if as_json:
        print(json.dumps(result, indent=2, default=str))
    elif rows := tuple(lines):
        print_lines(rows)


def format_json_rows(rows: Iterable[object]) -> str:
    """Return a JSON list with one line for each of its values, for `grep`."""
    return "[" + ",".join(f"\n  {json.dumps(row)}" for row in rows) + "\n]"


def print_note(text: str) -> None:
    """Print a line about the work on stderr, where `--quiet` leaves errors alone."""
    print(f"lumisite: {text}", file=sys.stderr, flush=True)


def warn_untried(site: Site) -> None:
    """Print a warning for a site that nobody has tried."""
    if site.tried == "no":
        print_note(
            f"{site.title} was never run with this: its description is from documents, so try it before you rely on it"
        )


def write_whole(path: Path, content: bytes, mode: int = 0o644) -> bool:
    """Write a file whole or not at all, and return whether its content changed; `mode` is that of a new one.

    Raises `ToolError`.
    """
    from lumisite.release.files import replace_file

    try:
        return replace_file(path, content, mode)
    except OSError as error:
        raise refused("write", error) from None


def write_text(text: str, out: Path | None) -> None:
    """Write to a file, whole or not at all, to a device or pipe, or to standard output; raises `ToolError`."""
    if out is None:
        sys.stdout.write(text)
        return
    content = plain(text).encode()
    try:
        if str(out).startswith(("/dev/std", "/dev/fd/", "/proc/")) or (out.exists() and not out.is_file()):
            out.write_bytes(content)
        else:
            os.umask(mask := os.umask(0))
            write_whole(out, content, 0o666 & ~mask)
    except OSError as error:
        raise refused("write", OSError(0, error.strerror, str(out))) from None
