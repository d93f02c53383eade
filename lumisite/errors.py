"""The errors that lumisite expects: each says where, what is wrong, and what would be right.

Anything that is not a `LumisiteError` is a bug and shows its traceback.
"""

from __future__ import annotations

from collections.abc import Sequence

from lumisite.findings.finding import Finding, Place, Severity
from lumisite.text import printable as shown

__all__ = ["shown"]

#: More faults of one file than anybody reads.
MOST_PRINTED = 300
#: A line that quotes what is wrong is cut where that is longer than any path.
MOST_LETTERS = 6000


class LumisiteError(Exception):
    """Base of every expected error: a finding that ends a command.

    `exit_code` is what `main` returns for it (design: 2 usage, 3 refused).
    """

    exit_code = 2

    def __init__(self, finding: Finding | str) -> None:
        super().__init__(finding)
        self.finding = finding if isinstance(finding, Finding) else Finding("", Severity.FAULT, "", subject=finding)

    def __str__(self) -> str:
        """Return the message, of long lines the start and the end."""
        from lumisite.findings.writers import line

        text = line(self.finding) if self.finding.code else self.finding.subject
        return "\n".join(map(_cut, text.split("\n")))


def _cut(text: str) -> str:
    most = MOST_LETTERS
    return text if len(text) <= most else f"{text[: most - 500]} … {text[-499:]}"


class SiteError(LumisiteError):
    """A file that cannot be used; carries every fault that was found in one run."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(sorted(findings, key=lambda finding: (finding.place or Place(""), finding.subject)))
        super().__init__(self.findings[0])

    def __str__(self) -> str:
        """Return a line for each fault."""
        from lumisite.findings.writers import line

        more = [f"… and {len(self.findings) - MOST_PRINTED} more"] if len(self.findings) > MOST_PRINTED else []
        return "\n".join([*(_cut(line(finding)) for finding in self.findings[:MOST_PRINTED]), *more])


def unreadable(file: str, message: str, advice: str, line: int = 0, column: int = 0) -> SiteError:
    """Return the error of a file that cannot be read at all, or not past a place."""
    place = Place(file, line, column)
    return SiteError([Finding("file-unreadable", Severity.FAULT, message, advice, place=place)])


class UnfitError(ValueError):
    """A value that a type cannot take: what is wrong with it, and what would be right."""

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice

    def finding(self, subject: str) -> Finding:
        """Return what is wrong as a finding about the value of a key, or of an option."""
        return Finding("value-wrong", Severity.FAULT, self.message, self.advice, subject)


def wrong_type(value: str, kind: str, example: str) -> UnfitError:
    """Return the error of a text that is not what a key or an option takes."""
    return UnfitError(f"{value!r} is not a {kind}", f"example: {example}")


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
    message = f"cannot {action}: {error.strerror or error}"
    advice = remedy or "check the path, its permissions and its file system"
    return ToolError(Finding("system-refused", Severity.FAULT, message, advice, path))
