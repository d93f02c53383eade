"""How commands print results, notes and progress, and write files: plain text in a pipe, by rich on a terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lumisite.errors import refused
from lumisite.text import columns

if TYPE_CHECKING:
    from lumisite.site.model import Site

#: The key of click's context that `--quiet` sets.
QUIET = "lumisite.quiet"
#: Patterns of the lines of a diff, and rich's style of each.
DIFFERENCE = (
    (r"^@@ .*", "cyan"),
    (r"^\+(?!\+\+ [ab/]).*", "green"),
    (r"^-(?!-- [ab/]).*", "red"),
)
_START = r"(?:^|(?<=  )|(?<=: ))"
#: Patterns of words for an outcome, at the start of a line or of a cell of a table, and rich's style of each.
OUTCOMES = (
    (rf"(?i){_START}(?:pass|passed)\b", "green"),
    (rf"(?i){_START}(?:fail|failed|bad-nodes|missing|refused)\b", "red"),
    (rf"(?i){_START}(?:inconclusive|underpowered|warning)\b", "yellow"),
)


def plain(text: str) -> str:
    """Return a text with what does not print spelled out, but for line breaks and tabs.

    Names, log lines and diffs come from files that anybody may have written. An escape sequence in one can retitle a
    terminal, and a bidirectional mark can turn a line of a diff around (CVE-2021-42574).
    """
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else letter.encode("unicode_escape").decode()
        for letter in text
    )


def print_lines(lines: Iterable[str], styles: Sequence[tuple[str, str]] = OUTCOMES) -> None:
    """Print lines, on a terminal with what the patterns of `styles` find in its style."""
    text = plain("\n".join(lines))
    if not sys.stdout.isatty():
        print(text, flush=True)
        return
    from rich.console import Console
    from rich.text import Text

    styled = Text(text)
    for pattern, style in styles:
        styled.highlight_regex(f"(?m){pattern}", style)
    Console(highlight=False).print(styled, soft_wrap=True)


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print an aligned table; on a terminal the last column is wrapped where it is too narrow."""
    if not sys.stdout.isatty():
        print_lines(columns(rows))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    for number in range(len(rows[0])):
        table.add_column(no_wrap=number < len(rows[0]) - 1, overflow="fold")
    for row in rows:
        cells = [Text(plain(cell)) for cell in row]
        for cell in cells:
            for pattern, style in OUTCOMES:
                cell.highlight_regex(pattern, style)
        table.add_row(*cells)
    Console(highlight=False).print(table)


def print_json(value: object) -> None:
    """Print a result for a machine."""
    print(json.dumps(value, indent=2, default=str), flush=True)


def print_result(result: object, lines: Iterable[str], *, as_json: bool) -> None:
    """Print a result: as JSON for a machine, else its lines, if there are any."""
    if as_json:
        print_json(result)
    elif rows := tuple(lines):
        print_lines(rows)


def is_quiet() -> bool:
    """Return whether `--quiet` was given: then nothing but errors is printed on stderr."""
    context = click.get_current_context(silent=True)
    return context is not None and QUIET in context.meta


def print_note(text: str) -> None:
    """Print a line about the work on stderr, unless `--quiet` was given."""
    if not is_quiet():
        print_error(f"lumisite: {text}")


def print_error(text: str) -> None:
    """Print on stderr; what it cannot take is lost."""
    with suppress(OSError):
        click.echo(plain(text), err=True)


def warn_untried(site: Site) -> None:
    """Print a warning for a site that nobody has tried."""
    if site.tried == "no":
        print_note(site.not_proved)


@contextmanager
def progress(unit: str) -> Iterator[Callable[..., None]]:
    """Yield a function of what is done, of how many, and the name of the last: on a terminal it draws a line."""
    if is_quiet() or not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    parts = (
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*parts, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("", total=None)
        yield lambda done, total, name="": bars.update(task, completed=done, total=total, description=plain(name))


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
        print(plain(text), end="", flush=True)
        return
    content = plain(text).encode()
    try:
        if out.exists() and not out.is_file():
            out.write_bytes(content)
        else:
            os.umask(mask := os.umask(0))
            write_whole(out, content, 0o666 & ~mask)
    except OSError as error:
        raise refused("write", OSError(0, error.strerror, str(out))) from None
