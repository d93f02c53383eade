"""Which metrics decide: one of each kind that users feel. All others are shown, and never fail or warn.

Samples per second and the step time are one number, so one of them decides; other sizes are for
the curve. Each metric more takes power from the others, as all of them share one chance of error.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from lumisite.validate.probes.suite import PROBES
from lumisite.validate.samples import parse_name

#: Shapes of several nodes.
_SEVERAL = ("[2-9]n", "[1-9][0-9]*n")
#: Shell patterns of names; on one shape of several nodes these are eight metrics.
DECIDING = (
    "ddp/samples_per_s/compute/1g",
    "ddp/samples_per_s/comm/*n",
    *(f"collectives/all_reduce_busbw/1MiB/{shape}" for shape in _SEVERAL),
    "collectives/all_reduce_busbw/128MiB/*n",
    "pairs/send_recv_bw/*",
    *(f"communicators/first_group_s/{shape}" for shape in _SEVERAL),
)
#: Shares near zero differ by whole multiples where nothing has changed: no list makes them decide.
SHARES = ("ddp/exposed_communication/*",)


def decides(metric: str, patterns: Sequence[str] = ()) -> bool:
    """Return whether a metric decides, by the site's patterns or the usual ones.

    Without patterns of the site, what is none of lumisite's own metrics decides too: somebody chose to measure it.
    """
    if any(fnmatchcase(metric, pattern) for pattern in SHARES):
        return False
    foreign = not patterns and parse_name(metric).probe not in PROBES
    return foreign or any(fnmatchcase(metric, pattern) for pattern in patterns or DECIDING)
