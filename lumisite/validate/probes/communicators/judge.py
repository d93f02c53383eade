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

from lumisite.site.cpus import parse_number_list
from lumisite.site.entries import Evidence
from lumisite.site.evidence import harms
from lumisite.site.ledger import decide, judge_conditions
from lumisite.text import counted
from lumisite.validate.lines import Gate
from lumisite.validate.probes.collectives.judge import ADVICE
from lumisite.validate.probes.probe import Backend, Ended, Expected, Line, Plan, Record, Target, probe
from lumisite.validate.probes.ranks import LOST, NO_BEAT_S, STDERR, trouble, who
from lumisite.validate.probes.records import finished, number, rank_of, rows, table, text, whole

#: As many as hung with four nodes where one of the settings below was missing.
GROUPS = 8
#: Where a rank can hang, in the order in which it comes there, as a cause says it.
PLACES = {
    "making": "in making group {} of {}",
    "entering": "on entering the first collective of group {} of {}",
    "running": "in the first collective of group {} of {}",
    "leaving": "in leaving the other ranks after group {} of {}",
}
DONE = (GROUPS + 1, 0)
#: More tasks than a step can have.
MOST_RANKS = 1 << 24
#: What srun says of a rank that did not end well; those that it killed itself are told by what was done to them.
_TASK = re.compile(r"srun: error: (\S+): tasks? ([\d,-]+): (?!Killed|Terminated)([^|]*[^|\s])")
#: The script's options; PyTorch's own limit is never reached, as a rank has lost its patience before.
ARGUMENTS: Mapping[Backend, tuple[str, ...]] = {
    "gloo": ("--groups", str(GROUPS), "--size", str(1 << 20), "--patience", "15", "--limit", "60"),
    "nccl": ("--groups", str(GROUPS), "--size", str(16 << 20), "--patience", "100", "--limit", "240"),
}
#: When these hang, which the ledger does not say: by the group, and what was done with it. All need several nodes.
MOMENTS: Mapping[str, Callable[[int, str], bool]] = {
    "FI_MR_CACHE_MONITOR": lambda group, _doing: group > 1,
    "NCCL_NET_GDR_LEVEL": lambda group, doing: group == 1 and doing != "making",
}
#: What to do where no setting is to blame.
OTHERWISE = "the step's records have every rank's settings; the probe `transport` keeps the log of NCCL"


@probe("Process groups come up one after the other, and none hangs.", "one-node", "several", together=True)
def communicators(target: Target) -> Plan:
    """Give the probe."""
    part = target.together("communicators.py", *ARGUMENTS[target.plan.backend])
    return (part,), partial(_judge, suspects(target))


@dataclass(frozen=True)
class Suspect:
    """A variable, which of its values are known to hang (empty is not set), and what to do then."""

    name: str
    hangs: Callable[[str], object] = lambda _value: False
    advice: str = ""


def suspects(target: Target) -> tuple[Suspect, ...]:
    """Give what the ledger knows for the image on several nodes, and what else is shown where none is to blame."""
    if target.plan.backend == "gloo":
        return (Suspect("GLOO_SOCKET_IFNAME"),)
    situation = replace(target.situation, nodes="several")
    found = []
    # What jobs fail without comes before single values that do harm.
    for verdict in decide(target.site, situation).settings:
        setting = verdict.entry
        needed = next((one for one in setting.evidence if one.effect == "needed"), None)
        if setting.name in MOMENTS and verdict.applies and setting.value is not None and needed is not None:
            advice = _advice("set", f"{setting.name}={setting.value}", needed)
            found.append(Suspect(setting.name, partial(ne, setting.value), advice))
    for harm in harms(target.site):
        name, evidence = harm.setting.name, harm.evidence
        holds, _ = judge_conditions(evidence.when, situation)
        if name in MOMENTS and (holds or (holds is None and evidence.unknown_images)):
            values = "|".join(map(translate, harm.patterns))
            found.append(Suspect(name, partial(re.match, values), _advice("unset", name, evidence)))
    return (*found, *map(Suspect, MOMENTS))


def _advice(verb: str, setting: str, evidence: Evidence) -> str:
    what = evidence.what or evidence.effect
    return f"{verb} {setting}: {what} ({evidence.source}); `lumisite why {setting.partition('=')[0]}` has the sources"


def _suspicion(record: Record, known: Sequence[Suspect], nodes: int) -> tuple[str, str]:
    """Say which setting of a rank that hangs is to blame, with its value in the container, and what to do."""
    settings = table(record, "settings")
    group, doing = whole(record, "group"), str(record.get("part"))
    for one in known if nodes > 1 else ():
        if one.hangs(text(settings, one.name)) and MOMENTS[one.name](group, doing):
            return f"suspect {_shown(one.name, settings)}", one.advice
    values = ", ".join(_shown(name, settings) for name in dict.fromkeys(one.name for one in known))
    return f"no setting that is known to hang ({values})", OTHERWISE


def _shown(name: str, settings: Record) -> str:
    return f"{name}={settings[name]}" if name in settings else f"{name} (not set)"


def _judge(known: Sequence[Suspect], steps: Sequence[Ended], expected: Expected) -> list[Line]:
    """Give the gate, and how long groups took; `known` are settings that may be to blame for a hang.

    Who comes last waits for nobody in making a group; a collective is as long as on its slowest rank.
    """
    ended = steps[0]
    done = finished(ended.records)
    seats = _seats(ended.records, expected)
    failed = (
        _hung(ended, seats, expected, known)
        or _crashed(ended, seats, expected)
        or trouble(ended, expected)
        or _wrong(done, expected)
    )
    if failed is not None:
        return [failed]
    by_group = list(zip(*(rows(record, "groups") for record in done), strict=False))
    if len(by_group) < GROUPS:
        return [expected.gate("inconclusive", "nothing was measured", "run the probe again")]
    make = [min(number(row, "make_s") or 0.0 for row in own) for own in by_group]
    first = [max(number(row, "first_s") or 0.0 for row in own) for own in by_group]
    both = [made + used for made, used in zip(make, first, strict=True)]
    cause = f"{GROUPS} groups of {counted(len(done), 'rank')} came up one after the other, and every sum is right"
    return [
        expected.gate("pass", cause),
        expected.sample("first_group_s", both[0], "lower", "s"),
        expected.sample("next_group_s", statistics.median(both[1:]), "lower", "s"),
        expected.series("make_s", make, "s"),
        expected.series("first_collective_s", first, "s"),
    ]


def _seats(records: Sequence[Record], expected: Expected) -> list[Record]:
    """Give each rank's record, or what it last said of where it was; only rank and host where there is neither."""
    # Of a rank that left its record, what it said before tells nothing more.
    by_rank = {rank_of(record): record for record in sorted(records, key=lambda record: "local_rank" in record)}
    return [{"host": expected.node_of(rank), "rank": rank, **by_rank.get(rank, {})} for rank in range(expected.ranks)]


def _place(seat: Record) -> tuple[int, int]:
    """Say how far a rank is: the group, and what it does with it; (0, 0) before the first group."""
    if "local_rank" in seat and not seat.get("error") and "hung_time" not in seat:
        return DONE
    part = seat.get("part")
    return whole(seat, "group"), [*PLACES].index(part) if isinstance(part, str) else 0


def _times(records: Sequence[Record], *keys: str) -> list[float]:
    return [time for record in records for key in keys if (time := number(record, key)) is not None]


def _hung(ended: Ended, seats: Sequence[Record], expected: Expected, known: Sequence[Suspect]) -> Gate | None:
    """Name who hung, if a rank lost its patience before any failed, or the step's time was over.

    To blame are ranks that never began, else those that fell silent, else the least far.
    """
    gave_up, failed = _times(ended.records, "hung_time"), _times(ended.records, "error_time")
    here = [seat for seat in seats if _place(seat) != DONE]
    # Where a rank failed first, the others hung because of it.
    if not here or not (gave_up or ended.late) or min(failed, default=math.inf) < min(gave_up, default=math.inf):
        return None
    never = [seat for seat in here if not {"local_rank", "phase"} & {*seat}]
    last = max(_times(ended.records, "time", "hung_time", "error_time"), default=0.0)
    # The record that is left in the end has no such time.
    silent = [one for one in here if one.get("froze") is True or last - (number(one, "time") or last) > NO_BEAT_S]
    least = min(map(_place, here))
    stuck = never or silent or [seat for seat in here if _place(seat) == least]
    since = f"not done after {ended.step.limit_s} s: "
    if gave_up:
        since = f"no progress for {max(_times(ended.records, 'hung_s'), default=0.0):g} s: "
    waited = f"; {counted(waiting, 'other rank')} waited" if (waiting := len(here) - len(stuck)) else ""
    record = stuck[0]
    if never:
        return _blamed(stuck, f"never began: no record is left{waited}", STDERR, expected, since)
    group = whole(record, "group")
    where = PLACES[str(record["part"])].format(group, GROUPS) if group else f"while {record.get('phase')}"
    if silent or not group:
        return _blamed(stuck, f"{'fell silent' if silent else 'hung'} {where}{waited}", LOST, expected, since)
    why, advice = _suspicion(record, known, len(expected.nodes))
    return _blamed(stuck, f"hung {where}{waited}; {why}", advice, expected, since)


def _crashed(ended: Ended, seats: Sequence[Record], expected: Expected) -> Gate | None:
    """Name the ranks that srun says ended by themselves and left no record: the others failed or were killed then."""
    if ended.late or ended.exit_code == 0:
        return None
    failed = min(_times(ended.records, "error_time"), default=math.inf)
    for _, tasks, how in _TASK.findall(ended.words):
        own = [seats[rank] for rank in parse_number_list(tasks, limit=MOST_RANKS) if rank < len(seats)]
        lost = [seat for seat in own if "local_rank" not in seat and (number(seat, "time") or 0.0) <= failed]
        if lost:
            doing = f" while {lost[0]['phase']}" if "phase" in lost[0] else ""
            return _blamed(lost, f"ended without a record{doing}: {how}", STDERR, expected)
    return None


def _blamed(seats: Sequence[Record], what: str, advice: str, expected: Expected, since: str = "") -> Gate:
    """Make a gate line about some ranks and their nodes alone."""
    nodes, ranks = sorted({str(seat["host"]) for seat in seats}), [whole(seat, "rank") for seat in seats]
    return expected.gate(
        "fail", f"{since}{who(ranks, nodes)} {what}", advice, ranks[0] if len(ranks) == 1 else None, nodes
    )


def _wrong(done: Sequence[Record], expected: Expected) -> Gate | None:
    for at in range(GROUPS):
        ranks = [one for one in done if at < len(rows(one, "groups")) and whole(rows(one, "groups")[at], "wrong")]
        if ranks:
            where = who([rank_of(one) for one in ranks], sorted({str(one.get("host")) for one in ranks}))
            return expected.gate("fail", f"the first collective of group {at + 1} gave wrong sums on {where}", ADVICE)
    return None
