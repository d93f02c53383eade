"""Judge `communicators`: do process groups come up one after the other; if not, which rank hung where.

All ranks of a collective wait for the last one, so the rank that is least far is named, and none that waits for it,
with its values of the network's variables that the site has settings for.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import partial

from lumisite.findings.finding import Finding, Severity
from lumisite.text import counted, some
from lumisite.validate.lines import Gate
from lumisite.validate.probes.definition import make_probe, options_of
from lumisite.validate.probes.outcome import (
    LOOK_AT_NODE,
    LOOK_AT_SILENT,
    WRONG_RESULTS,
    is_silent,
    nothing_measured,
    passed,
    trouble,
)
from lumisite.validate.probes.probe import Ended, Expected, Line, Probe, Record, Target, describe_ranks
from lumisite.validate.probes.records import finished, number, rank_of, rows, table, text, whole

#: How many groups the script makes.
GROUPS = 8
#: What a rank can be at, in the order in which it comes there.
PARTS = ("making", "entering", "running", "leaving")
DONE = (GROUPS + 1, 0)
#: How the network's variables begin.
SETTINGS = ("NCCL_", "FI_")
#: Variables that a finding names; more are counted.
NAMED_VARIABLES = 16


def communicators(target: Target) -> Probe:
    """Return the probe."""
    srun = target.together("communicators.py", *options_of("communicators", target.plan.backend))
    return make_probe("communicators", (srun,), partial(_judge, variables(target)))


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
    ended = steps[0]
    done = finished(ended.records)
    failed = _hung(ended, expected, names) or trouble(ended, expected) or _wrong(done, expected)
    if failed is not None:
        return [failed]
    by_group = list(zip(*(rows(record, "groups") for record in done), strict=False))
    if len(by_group) < GROUPS:
        return [expected.gate(nothing_measured())]
    make = [min(number(row, "make_s") or 0.0 for row in of_ranks) for of_ranks in by_group]
    first = [max(number(row, "first_s") or 0.0 for row in of_ranks) for of_ranks in by_group]
    both = [made + used for made, used in zip(make, first, strict=True)]
    message = f"{GROUPS} groups of {len(done)} ranks came up one after the other, and every sum is right"
    return [
        expected.gate(passed(message)),
        expected.sample("first_group_s", both[0], "lower", "s"),
        expected.sample("next_group_s", statistics.median(both[1:]), "lower", "s"),
    ]


def _hung(ended: Ended, expected: Expected, names: Sequence[str]) -> Gate | None:
    """Return who hung, if a rank lost its patience before any failed, or the step's time was over.

    To blame are ranks that never began, else those that fell silent, else the least far.
    """
    gave_up, failed = _times(ended.records, "hung_time"), _times(ended.records, "error_time")
    # Where a rank failed first, the others hung because of it.
    if not (gave_up or ended.late) or min(failed, default=math.inf) < min(gave_up, default=math.inf):
        return None
    undone = [record for record in _last_records(ended.records, expected) if _progress(record) != DONE]
    if not undone:
        return None
    last = max(_times(ended.records, "time", "hung_time", "error_time"), default=0.0)
    never = [record for record in undone if not {"local_rank", "phase"} & {*record}]
    silent = [record for record in undone if is_silent(record, last)]
    least = min(map(_progress, undone))
    stuck = never or silent or [record for record in undone if _progress(record) == least]
    limit_s = max(_times(ended.records, "hung_s"), default=0.0) if gave_up else float(ended.step.limit_s)
    others = len(undone) - len(stuck)
    waiting = f"; {counted(others, 'other rank')} waited" if others else ""
    nodes = tuple(sorted({str(record["host"]) for record in stuck}))
    ranks = [whole(record, "rank") for record in stuck]
    if never:
        message = f"no record is left after {limit_s:g} s{waiting}"
        found = Finding("record-missing", Severity.FAULT, message, f"read {expected.path}/stderr", nodes=nodes)
        return expected.gate(found, ranks)
    message = f"no progress for {limit_s:g} s: {'fell silent' if silent else 'hung'} while {_place(stuck[0])}{waiting}"
    advice = LOOK_AT_SILENT if silent else LOOK_AT_NODE
    if not silent and text(stuck[0], "part") and names:
        message += _settings(stuck[0], names)
        advice = "see `lumisite why NAME` for values that hang; the probe `transport` keeps the log of NCCL"
    return expected.gate(Finding("step-hung", Severity.FAULT, message, advice, nodes=nodes), ranks)


def _times(records: Sequence[Record], *keys: str) -> list[float]:
    return [time for record in records for key in keys if (time := number(record, key)) is not None]


def _last_records(records: Sequence[Record], expected: Expected) -> list[Record]:
    """Return each rank's record, or what it last wrote of where it was; only rank and host where there is neither."""
    # Of a rank that left its record, what it wrote before shows nothing more.
    by_rank = {rank_of(record): record for record in sorted(records, key=lambda record: "local_rank" in record)}
    return [{"host": expected.node_of(rank), "rank": rank, **by_rank.get(rank, {})} for rank in range(expected.ranks)]


def _progress(record: Record) -> tuple[int, int]:
    """Return how far a rank is: the group, and what it does with it; (0, 0) before the first group."""
    if "local_rank" in record and not record.get("error") and "hung_time" not in record:
        return DONE
    part = text(record, "part")
    return whole(record, "group"), PARTS.index(part) if part in PARTS else 0


def _place(record: Record) -> str:
    """Return where a rank is, as text."""
    part = text(record, "part")
    return f"{part} group {whole(record, 'group')} of {GROUPS}" if part else str(record.get("phase"))


def _settings(record: Record, names: Sequence[str]) -> str:
    """Return which variables a rank has, with their values, and which it has not, as text."""
    settings = table(record, "settings")
    have = [f"{name}={settings[name]}" for name in names if name in settings]
    lacking = [name for name in names if name not in settings]
    message = f"; set: {some(have, NAMED_VARIABLES, ', ')}" if have else ""
    return message + (f"; unset: {some(lacking, NAMED_VARIABLES, ', ')}" if lacking else "")


def _wrong(done: Sequence[Record], expected: Expected) -> Gate | None:
    for at in range(GROUPS):
        wrong = [record for record in done if any(whole(row, "wrong") for row in rows(record, "groups")[at : at + 1])]
        if wrong:
            nodes = sorted({text(record, "host") for record in wrong})
            where = describe_ranks([rank_of(record) for record in wrong], nodes)
            message = f"the first collective of group {at + 1} gave wrong sums on {where}"
            return expected.gate(Finding("results-wrong", Severity.FAULT, message, WRONG_RESULTS))
    return None
