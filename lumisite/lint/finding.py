"""What a rule yields."""

from __future__ import annotations

from typing import NamedTuple


class BadLine(NamedTuple):
    """A line of a script, what in it is bad, why, and what would be right."""

    line: int
    subject: str
    reason: str
    right: str
