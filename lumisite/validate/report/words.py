"""Words that all forms of a report share."""

from __future__ import annotations

from collections.abc import Sequence

#: Names that are listed before they are only counted.
NAMES_SHOWN = 8

#: What each verdict means, for whoever reads only one line.
SENTENCES = {
    "pass": "every gate passed and nothing is slower than before",
    "warn": "nothing failed, but something below is worth a look",
    "fail": "the system does not work as it did before",
    "inconclusive": "what was measured does not decide it",
    "bad-nodes": "the system is fine, some nodes are not",
}


def some(names: Sequence[str], limit: int = NAMES_SHOWN) -> str:
    """List names, and count those beyond the limit."""
    more = len(names) - limit
    return ",".join(names) if more <= 0 else f"{','.join(names[:limit])} and {more} more"
