"""One shape for everything that is wrong, or has changed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Severity(str, Enum):
    """How bad a finding is."""

    INFO = "info"
    DOUBT = "doubt"
    NODE = "node"
    FAULT = "fault"


@dataclass(frozen=True, order=True)
class Place:
    """Where something stands in a file: `line` and `column` count from 1, 0 means the file as a whole."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        """Return `file:line:column` without what is not known."""
        numbers = [self.line, self.column] if self.column else [self.line] if self.line else []
        return ":".join([self.file, *map(str, numbers)])


@dataclass(frozen=True)
class Finding:
    """Something that is wrong, or has changed.

    `code` is one of `lumisite.findings.codes`, `message` says what is wrong and `advice` what to type or change next.
    `subject` is the path, variable, library, metric or key that it is about. `cause` is the code of the finding that
    this one follows from. `place` is where it stands, for what was read from a file.
    """

    code: str
    severity: Severity
    message: str
    advice: str = ""
    subject: str = ""
    nodes: tuple[str, ...] = ()
    place: Place | None = None
    cause: str | None = None


def place_severity(bad: int, every: int, *, picked_out: bool = True) -> Severity:
    """Return whether a fault is that of nodes: of fewer than half, or of the one that an answer picks out of several.

    >>> place_severity(1, 2), place_severity(2, 4), place_severity(1, 1)
    (<Severity.NODE: 'node'>, <Severity.FAULT: 'fault'>, <Severity.FAULT: 'fault'>)
    """
    few = 2 * bad < every or (picked_out and bad == 1 < every)
    return Severity.NODE if few else Severity.FAULT
