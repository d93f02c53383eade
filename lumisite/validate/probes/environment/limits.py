"""Compare what a rank may use in its container with what the step gave its task on the node."""

from __future__ import annotations

import math
from collections.abc import Iterator

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding
from lumisite.validate.probes.probe import Record
from lumisite.validate.probes.records import count_in, table, texts

#: What the kernel limits softly and hard; of shared memory there is only the size, in KiB.
SHARED_MEMORY = "shared memory"
#: A rank that has less than this part of what the node's step has was limited on the way.
LEAST = 0.9


def lower_limits_of_rank(rank: Record, step: Record) -> Iterator[Finding]:
    """Yield the first of the limits that are lower than those of the node's step, with the names of the others."""
    lower = []
    for name in table(step, "granted"):
        found, given = texts(rank, "limits", name), texts(step, "granted", name)
        # Where the hard limit is lower, the soft one is too.
        kinds = [kind for kind in (1, 0) if len(found) > kind < len(given) and _is_lower(found[kind], given[kind])]
        lower += [(name, kind, found[kind], given[kind]) for kind in kinds[:1]]
    if lower:
        name, kind, value, expected = lower[0]
        which = None if name == SHARED_MEMORY else "hard" if kind else "soft"
        more = tuple(other for other, *_ in lower[1:])
        yield make_finding("rank-limit-lower", name, kind=which, found=value, expected=expected, more=more or None)


def _is_lower(found: str, given: str) -> bool:
    of_rank, of_step = (math.inf if each == "unlimited" else count_in(each) for each in (found, given))
    return of_rank is not None and of_step is not None and of_rank < LEAST * of_step
