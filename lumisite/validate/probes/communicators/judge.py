"""Judge `communicators`: do process groups come up one after the other; if not, which rank hung where, and why.

All ranks of a collective wait for the last one, so the rank that is least far is named, and none that waits for it. The
settings to suspect are those that the site's ledger knows to hang communicators; what else hangs has none to blame.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import translate
from functools import partial
from operator import ne

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding, Value, with_values
from lumisite.site.entries import Setting
from lumisite.site.evidence import harms
from lumisite.site.ledger import decide, judge_conditions
from lumisite.validate.lines import Gate
from lumisite.validate.probes.definition import make_probe, options_of
from lumisite.validate.probes.outcome import is_silent, trouble
from lumisite.validate.probes.probe import Ended, Expected, Line, Probe, Record, Target, describe_ranks
from lumisite.validate.probes.records import finished, number, rank_of, rows, table, text, whole

#: How many groups the script makes.
GROUPS = 8
#: What a rank can be at, in the order in which it comes there; each has a code for a hang.
PARTS = ("making", "entering", "running", "leaving")
DONE = (GROUPS + 1, 0)
#: When these hang, which the ledger does not say: by the group, and what was done with it. All need several nodes.
MOMENTS: Mapping[str, Callable[[int, str], bool]] = {
    "FI_MR_CACHE_MONITOR": lambda group, _doing: group > 1,
    "NCCL_NET_GDR_LEVEL": lambda group, doing: group == 1 and doing != "making",
}
#: Of these, jobs hang without the site's value.
NEEDED = ("FI_MR_CACHE_MONITOR",)


def communicators(target: Target) -> Probe:
    """Return the probe."""
    srun = target.together("communicators.py", *options_of("communicators", target.plan.backend))
    return make_probe("communicators", (srun,), partial(_judge, suspects(target)))


@dataclass(frozen=True)
class Suspect:
    """A variable, which of its values are known to hang (empty is not set), and the entry that says so.

    `value` is what it should be set to; `None` is to unset it.
    """

    name: str
    hangs: Callable[[str], object] = lambda _value: False
    value: str | None = None
    entry: Setting | None = None


def suspects(target: Target) -> tuple[Suspect, ...]:
    """Return what the settings know for the image on several nodes, and what else is listed where none is to blame."""
    if target.plan.backend == "gloo":
        return (Suspect("GLOO_SOCKET_IFNAME"),)
    situation = replace(target.situation, nodes="several")
    found = []
    # What jobs fail without comes before single values that do harm.
    for verdict in decide(target.site, situation).settings:
        setting = verdict.entry
        if setting.name in NEEDED and verdict.applies and setting.value is not None:
            found.append(Suspect(setting.name, partial(ne, setting.value), str(setting.value), setting))
    for harm in harms(target.site):
        name, harmful = harm.setting.name, harm.harmful
        applies, _ = judge_conditions(harmful.when, situation)
        if name in MOMENTS and (applies or (applies is None and harmful.unknown_images)):
            values = "|".join(map(translate, harm.patterns))
            found.append(Suspect(name, partial(re.match, values), None, harm.setting))
    return (*found, *map(Suspect, MOMENTS))


def _suspicion(record: Record, known: Sequence[Suspect], nodes: int) -> dict[str, Value]:
    """Return the setting of a rank that hangs that is to blame, or its values of all that were suspected."""
    settings = table(record, "settings")
    group, part = whole(record, "group"), str(record.get("part"))
    for suspect in known if nodes > 1 else ():
        entry = suspect.entry
        if entry and suspect.hangs(text(settings, suspect.name)) and MOMENTS[suspect.name](group, part):
            return {
                "suspect": _assignment(suspect.name, settings),
                "variable": suspect.name,
                "expected": suspect.value,
                "effect": str(entry.evidence or entry.why),
                "source": str(entry.source),
            }
    return {"settings": tuple(_assignment(name, settings) for name in dict.fromkeys(suspect.name for suspect in known))}


def _assignment(name: str, settings: Record) -> str:
    return f"{name}={settings[name]}" if name in settings else f"{name} (unset)"


def _judge(known: Sequence[Suspect], steps: Sequence[Ended], expected: Expected) -> list[Line]:
    """Return the gate, and how long groups took; `known` are settings that may be to blame for a hang.

    Who comes last waits for nobody in making a group; a collective is as long as on its slowest rank.
    """
    ended = steps[0]
    done = finished(ended.records)
    seats = _seats(ended.records, expected)
    failed = _hung(ended, seats, expected, known) or trouble(ended, expected) or _wrong(done, expected)
    if failed is not None:
        return [failed]
    by_group = list(zip(*(rows(record, "groups") for record in done), strict=False))
    if len(by_group) < GROUPS:
        return [expected.gate(make_finding("nothing-measured"))]
    make = [min(number(row, "make_s") or 0.0 for row in of_ranks) for of_ranks in by_group]
    first = [max(number(row, "first_s") or 0.0 for row in of_ranks) for of_ranks in by_group]
    both = [made + used for made, used in zip(make, first, strict=True)]
    return [
        expected.gate(make_finding("communicators-fine", groups=GROUPS, ranks=len(done))),
        expected.sample("first_group_s", both[0], "lower", "s"),
        expected.sample("next_group_s", statistics.median(both[1:]), "lower", "s"),
    ]


def _seats(records: Sequence[Record], expected: Expected) -> list[Record]:
    """Return each rank's record, or what it last wrote of where it was; only rank and host where there is neither."""
    # Of a rank that left its record, what it wrote before shows nothing more.
    by_rank = {rank_of(record): record for record in sorted(records, key=lambda record: "local_rank" in record)}
    return [{"host": expected.node_of(rank), "rank": rank, **by_rank.get(rank, {})} for rank in range(expected.ranks)]


def _progress(seat: Record) -> tuple[int, int]:
    """Return how far a rank is: the group, and what it does with it; (0, 0) before the first group."""
    if "local_rank" in seat and not seat.get("error") and "hung_time" not in seat:
        return DONE
    part = seat.get("part")
    return whole(seat, "group"), PARTS.index(part) if isinstance(part, str) else 0


def _times(records: Sequence[Record], *keys: str) -> list[float]:
    return [time for record in records for key in keys if (time := number(record, key)) is not None]


def _hung(ended: Ended, seats: Sequence[Record], expected: Expected, known: Sequence[Suspect]) -> Gate | None:
    """Return who hung, if a rank lost its patience before any failed, or the step's time was over.

    To blame are ranks that never began, else those that fell silent, else the least far.
    """
    gave_up, failed = _times(ended.records, "hung_time"), _times(ended.records, "error_time")
    undone = [seat for seat in seats if _progress(seat) != DONE]
    # Where a rank failed first, the others hung because of it.
    if not undone or not (gave_up or ended.late) or min(failed, default=math.inf) < min(gave_up, default=math.inf):
        return None
    never = [seat for seat in undone if not {"local_rank", "phase"} & {*seat}]
    last = max(_times(ended.records, "time", "hung_time", "error_time"), default=0.0)
    silent = [seat for seat in undone if is_silent(seat, last)]
    least = min(map(_progress, undone))
    stuck = never or silent or [seat for seat in undone if _progress(seat) == least]
    limit_s = max(_times(ended.records, "hung_s"), default=0.0) if gave_up else float(ended.step.limit_s)
    values: dict[str, Value] = {"limit_s": limit_s, "waiting": len(undone) - len(stuck) or None}
    first = stuck[0]
    group = whole(first, "group")
    if never:
        code = "communicator-never-began"
    elif not group:
        code = "rank-silent" if silent else "rank-hung"
        values["phase"] = str(first.get("phase"))
    else:
        code = "communicator-silent" if silent else "communicator-hung"
        values |= {"moment": str(first["part"]), "group": group, "groups": GROUPS}
        values |= {} if silent else _suspicion(first, known, len(expected.nodes))
    return _blamed(with_values(make_finding(code), values), stuck, expected)


def _blamed(finding: Finding, seats: Sequence[Record], expected: Expected) -> Gate:
    """Return the gate line about some ranks and their nodes alone."""
    nodes = tuple(sorted({str(seat["host"]) for seat in seats}))
    return expected.gate(replace(finding, nodes=nodes), [whole(seat, "rank") for seat in seats])


def _wrong(done: Sequence[Record], expected: Expected) -> Gate | None:
    for at in range(GROUPS):
        wrong = [record for record in done if any(whole(row, "wrong") for row in rows(record, "groups")[at : at + 1])]
        if wrong:
            nodes = sorted({text(record, "host") for record in wrong})
            where = describe_ranks([rank_of(record) for record in wrong], nodes)
            return expected.gate(make_finding("communicator-wrong", group=at + 1, where=where))
    return None
