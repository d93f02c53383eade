"""`--quiet`, and `--verbose`, which prints files that are read or written, and programs that are run.

Source of the events and their values: "Audit events table" of Python's library reference.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any

import click

_PACKAGE = Path(__file__).parents[1]
#: Files of programs, and not of the work: Python's own, but for the data of this package.
_CODE = tuple(dict.fromkeys((sys.prefix, sys.base_prefix, str(_PACKAGE))))
_DATA = tuple(str(_PACKAGE / name) for name in ("sites", "vendors"))


class AuditPrinter:
    """An audit hook that prints a line on stderr for each file, once, and for each start of a program."""

    def __init__(self) -> None:
        self._printed: set[str] = set()

    def __call__(self, event: str, values: tuple[Any, ...]) -> None:
        """Be called by Python."""
        if event == "subprocess.Popen":
            self._print("runs", shlex.join(map(os.fsdecode, values[1])))
        elif event == "open" and isinstance(values[0], str | bytes):
            path, flags = os.fsdecode(values[0]), values[2]
            is_code = path.startswith(_CODE) and not path.startswith(_DATA)
            if path != os.devnull and not is_code and not path.endswith((".py", ".pyc")):
                writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)
                self._print("writes" if writes else "reads", path)

    def _print(self, what: str, name: str) -> None:
        first, *more = name.split("\n")
        line = f"lumisite: {what} {first}{' ...' if more else ''}"
        if line not in self._printed:
            self._printed.add(line)
            print(line, file=sys.stderr)


def _set_quiet(context: click.Context, _: click.Parameter, given: bool) -> None:
    if given and not context.resilient_parsing:
        sys.stderr.quiet = True  # type: ignore[union-attr]  # `plain_output` has replaced the stream


def _set_verbose(context: click.Context, _: click.Parameter, given: bool) -> None:
    if given and not context.resilient_parsing:
        sys.addaudithook(AuditPrinter())


def verbosity_options() -> list[click.Parameter]:
    """Return the options for how much is printed, which are accepted before the command and after it."""
    kind: dict[str, Any] = {"is_flag": True, "is_eager": True, "expose_value": False}
    return [
        click.Option(
            ["-q", "--quiet"], callback=_set_quiet, help="Print no notes and no progress, only errors.", **kind
        ),
        click.Option(
            ["-v", "--verbose"],
            callback=_set_verbose,
            help="Print which files are read and which programs are run.",
            **kind,
        ),
    ]
