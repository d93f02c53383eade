"""The errors that lumisite expects: each says where, what is wrong, and what would be right.

Anything that is not a `LumisiteError` is a bug and shows its traceback.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding, Severity
from lumisite.text import printable as shown

__all__ = ["shown"]

#: More faults of one file than anybody reads.
MOST_TOLD = 500
#: A line that quotes what is wrong is cut where that is longer than any path.
MOST_LETTERS = 6000


class LumisiteError(Exception):
    """Base of every expected error: a finding that ends a command.

    `exit_code` is what `main` returns for it (design: 2 usage, 3 refused).
    """

    exit_code = 2

    def __init__(self, finding: Finding | str) -> None:
        super().__init__(finding)
        self.finding = finding if isinstance(finding, Finding) else Finding("", Severity.FAULT, finding)

    def __str__(self) -> str:
        """Return the message, of long lines the start and the end."""
        from lumisite.findings.writers import line

        text = line(self.finding) if self.finding.code else self.finding.subject
        return "\n".join(map(_cut, text.split("\n")))


def _cut(text: str) -> str:
    most = MOST_LETTERS
    return text if len(text) <= most else f"{text[: most - 500]} … {text[-499:]}"


@dataclass(frozen=True, order=True)
class Problem:
    """One fault of a file: `line` and `column` count from 1, 0 means the file as a whole."""

    file: str
    line: int
    column: int
    key: str
    message: str

    def __str__(self) -> str:
        """Give `file:line:column: key: message`, leaving out what is not known."""
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.key}: {self.message}" if self.key else f"{place}: {self.message}"


class SiteError(LumisiteError):
    """A site description that cannot be used; carries every fault that was found in one run."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(sorted(problems))
        more = [f"… and {len(problems) - MOST_TOLD} more"] if len(problems) > MOST_TOLD else []
        super().__init__("\n".join([*map(str, self.problems[:MOST_TOLD]), *more]))


def file_fault(file: str, message: str, line: int = 0, column: int = 0) -> SiteError:
    """Give the error of a file that cannot be read at all, or not past a place."""
    return SiteError([Problem(file, line, column, "", message)])


class ResolveError(LumisiteError):
    """A version, platform or name that the site does not have."""


class DifferenceError(LumisiteError):
    """What is on disk is not what was expected there, and overwriting it would lose something."""

    exit_code = 1


class ToolError(LumisiteError):
    """The system, or a tool that lumisite ran, refused."""

    exit_code = 3


def refused(action: str, error: OSError, remedy: str = "") -> ToolError:
    """Return the error for what the system refused: the action, such as `read`, the path and the system's reason."""
    path = str(error.filename or "")
    return ToolError(
        make_finding("system-refused", path, action=action, reason=error.strerror or str(error), remedy=remedy)
    )
