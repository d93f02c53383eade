"""Judge `communicators`: do process groups come up one after the other; if not, which rank hung where.

All ranks of a collective wait for the last one, so the rank that is least far is named, and none that waits for it,
with its values of the network's variables that the site has settings for.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial

from lumisite.findings.finding import Finding, Severity
from lumisite.validate.lines import Gate
from lumisite.validate.probes.failed_ranks import trouble
from lumisite.validate.probes.outcome import WRONG_RESULTS, nothing_measured, passed
from lumisite.validate.probes.probe import Ended, Expected, Line, Probe, Record, Target, describe_ranks
from lumisite.validate.probes.records import finished, rank_of, rows

#: As many groups as hung with four nodes without some settings.
GROUPS = 8
#: Options of the script by back-end. A rank loses its patience before PyTorch's own limit of a collective (seconds).
OPTIONS = {
    "gloo": f"--groups {GROUPS} --size 1048576 --patience 15 --limit 60",
    "nccl": f"--groups {GROUPS} --size 16777216 --patience 100 --limit 240",
}
#: How the network's variables begin.
SETTINGS = ("NCCL_", "FI_")


def communicators(target: Target) -> Probe:
    """Return the probe."""
    srun = target.together("communicators.py", *OPTIONS[target.plan.backend].split())
    judge = partial(_judge, variables(target))
    return Probe("communicators", (srun,), judge, ("one-node", "several"), together=True)


def variables(target: Target) -> list[str]:
    """Return the network's variables that the site has settings for; gloo reads none but its own."""
    if target.plan.backend == "gloo":
        return ["GLOO_SOCKET_IFNAME"]
    known = dict.fromkeys(str(setting.name) for setting in target.site.settings)
    return [name for name in known if name.startswith(SETTINGS)]


def _judge(names: Sequence[str], steps: Sequence[Ended], expected: Expected) -> list[Line]:
    """Return the gate, and how long groups took; `names` are variables that are shown of a rank that hangs.

    Who comes last waits for nobody in making a group; a collective is as long as on its slowest rank.
    """
    done = finished(steps[0].records)
    failed = trouble(steps[0], expected, names) or _wrong(done, expected)
    if failed is not None:
        return [failed]
    by_group = list(zip(*(rows(record, "groups") for record in done), strict=False))
    if len(by_group) < GROUPS:
        return [expected.gate(nothing_measured())]
    make = [min(row["make_s"] for row in of_ranks) for of_ranks in by_group]
    first = [max(row["first_s"] for row in of_ranks) for of_ranks in by_group]
    both = [made + used for made, used in zip(make, first, strict=True)]
    message = f"{GROUPS} groups of {len(done)} ranks came up one after the other, and every sum is right"
    return [
        expected.gate(passed(message)),
        expected.sample("first_group_s", both[0], "lower", "s"),
        expected.sample("next_group_s", statistics.median(both[1:]), "lower", "s"),
    ]


def _wrong(done: Sequence[Record], expected: Expected) -> Gate | None:
    for number in range(GROUPS):
        wrong = [record for record in done if any(row["wrong"] for row in rows(record, "groups")[number : number + 1])]
        if wrong:
            nodes = sorted({record["host"] for record in wrong})
            where = describe_ranks([rank_of(record) for record in wrong], nodes)
            message = f"the first collective of group {number + 1} gave wrong sums on {where}"
            return expected.gate(Finding("results-wrong", Severity.FAULT, message, WRONG_RESULTS))
    return None
