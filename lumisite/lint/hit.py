"""What a rule found in a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from lumisite.findings.finding import Value


class Hit(NamedTuple):
    """A bad line, what in it is bad, and the values for its sentence; `source` where that is not the rule's."""

    line: int
    subject: str
    values: Mapping[str, Value]
    source: str = ""


def hit(line: int, subject: str = "", **values: Value) -> Hit:
    """Return what a rule found."""
    return Hit(line, subject, values)
