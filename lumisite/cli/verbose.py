"""What `--verbose` prints: files that are read or written, and programs that are run.

Python's own audit events tell them ("Audit events table" of its library reference).
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
#: Files of programs, and not of the work: Python's own, but for the data of this package.
_CODE = tuple(dict.fromkeys((sys.prefix, sys.base_prefix, str(_PACKAGE))))
_DATA = tuple(str(_PACKAGE / name) for name in ("sites", "vendors"))


class TellsWork:
    """An audit hook that prints a line on stderr for each file, once, and for each start of a program."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def __call__(self, event: str, values: Sequence[object]) -> None:
        """Be called by Python."""
        if event == "subprocess.Popen":
            self._tell("runs", shlex.join(map(os.fsdecode, values[1])))  # type: ignore[call-overload]
        elif event == "open" and isinstance(values[0], str | bytes):
            path, flags = os.fsdecode(values[0]), values[2]
            if path != os.devnull and (path.startswith(_DATA) or not path.startswith(_CODE)):
                writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)
                self._tell("writes" if writes else "reads", path)

    def _tell(self, what: str, name: str) -> None:
        first, *more = name.split("\n")
        line = f"lumisite: {what} {first}{' ...' if more else ''}"
        if line not in self._told:
            self._told.add(line)
            print(line, file=sys.stderr)
