"""Judge `communicators`: do process groups come up one after the other; if not, which rank hung where, and why.

All ranks of a collective wait for the last one, so the rank that is least far is named, and none that waits for it.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from lumisite.site.cpus import parse_number_list
from lumisite.validate.lines import Gate
from lumisite.validate.probes.collectives.judge import ADVICE
from lumisite.validate.probes.communicators.suspects import Suspect, suspects, suspicion
from lumisite.validate.probes.probe import Backend, Ended, Expected, Line, Probe, Record
from lumisite.validate.probes.ranks import SILENT_S, STDERR, counted, trouble, who
from lumisite.validate.probes.records import finished, number, rank_of, rows, whole
from lumisite.validate.probes.target import Target

#: As many as hung on LUMI with four nodes (lumi-ai-factory/laifs-container-recipes issue 44).
GROUPS = 8
#: Where a rank can hang, in the order in which it comes there, as a cause says it.
PLACES = {
    "making": "in making group {} of {}",
    "entering": "on entering the first collective of group {} of {}",
    "running": "in the first collective of group {} of {}",
    "leaving": "in leaving the other ranks after group {} of {}",
}
DONE = (GROUPS + 1, 0)
NODE_ADVICE = "look at the node of that rank: a rank that is silent is frozen or lost"
#: More tasks than a step can have.
MOST_RANKS = 1 << 24
#: What srun says of a rank that did not end well; those that it killed itself are told by what was done to them.
_TASK = re.compile(r"srun: error: (\S+): tasks? ([\d,-]+): (?!Killed|Terminated)([^|]*[^|\s])")
#: The script's options; PyTorch's own limit is never reached, as a rank has lost its patience before.
ARGUMENTS: Mapping[Backend, tuple[str, ...]] = {
    "gloo": ("--groups", str(GROUPS), "--size", str(1 << 20), "--patience", "15", "--limit", "60"),
    "nccl": ("--groups", str(GROUPS), "--size", str(16 << 20), "--patience", "100", "--limit", "240"),
}


def communicators(target: Target) -> Probe:
    """Give the probe."""
    return Probe(
        "communicators",
        "Process groups come up one after the other, and none hangs.",
        (target.together("communicators.py", *ARGUMENTS[target.plan.backend]),),
        partial(judge, suspects(target)),
        ("one-node", "several"),
        together=True,
        least_ranks=2,
    )


def judge(known: Sequence[Suspect], steps: Sequence[Ended], expected: Expected) -> list[Line]:
    """Give the gate, and how long groups took; `known` are settings that may be to blame for a hang."""
    ended = steps[0]
    done = finished(ended.records)
    failed = (
        _hung(ended, expected, known) or _crashed(ended, expected) or trouble(ended, expected) or _wrong(done, expected)
    )
    if failed is not None:
        return [failed]
    times = list(_group_times(done, expected))
    if not times:
        return [expected.gate("inconclusive", "nothing was measured", "run the probe again")]
    cause = f"{GROUPS} groups of {counted(len(done), 'rank')} came up one after the other, and every sum is right"
    return [expected.gate("pass", cause), *times]


@dataclass(frozen=True)
class Seat:
    """How far one rank came; `record` is empty for one that left nothing."""

    rank: int
    node: str
    record: Record
    silent: bool

    @property
    def place(self) -> tuple[int, int]:
        """How far it is: the group, and what it does with it; (0, 0) before the first group."""
        if "local_rank" in self.record and not self.record.get("error") and "hung_time" not in self.record:
            return DONE
        part = self.record.get("part")
        return whole(self.record, "group"), [*PLACES].index(part) if isinstance(part, str) else 0


def _hung(ended: Ended, expected: Expected, known: Sequence[Suspect]) -> Gate | None:
    """Name who hung, if a rank lost its patience before any failed, or the step's time was over."""
    first = min(_times(ended.records, "hung_time"), default=None)
    failed = min(_times(ended.records, "error_time"), default=None)
    if first is None and (failed is not None or not ended.late):
        return None
    if first is not None and failed is not None and failed < first:
        return None  # the others hung because of it
    seats = _seats(ended.records, expected)
    stuck = _stuck(seats)
    if not stuck:
        return None
    patience = max((number(record, "hung_s") or 0.0 for record in ended.records), default=0.0)
    since = f"no progress for {patience:g} s" if first is not None else f"not done after {ended.step.limit_s} s"
    waiting = sum(seat.place != DONE for seat in seats) - len(stuck)
    waited = f"; {counted(waiting, 'other rank')} waited" if waiting else ""
    state, why, advice = _state(stuck, expected, known)
    return _blamed(stuck, f"{since}: {_who(stuck)} {state}{waited}{why}", advice, expected)


def _times(records: Sequence[Record], key: str) -> list[float]:
    return [time for time in (number(record, key) for record in records) if time is not None]


def _seats(records: Sequence[Record], expected: Expected) -> list[Seat]:
    """Give every rank that there should be, by its record, or by what it last said of where it was."""
    last = max((time for key in ("time", "hung_time", "error_time") for time in _times(records, key)), default=0.0)
    done = {rank_of(record): record for record in finished(records)}
    lost = {rank_of(record): record for record in records if "phase" in record}
    seats = []
    for rank in range(expected.ranks):
        record = done.get(rank) or lost.get(rank) or {}
        node = str(record.get("host") or sorted(expected.nodes)[rank // expected.tasks])
        quiet = rank not in done and rank in lost and last - (number(record, "time") or 0.0) > SILENT_S
        seats.append(Seat(rank, node, record, quiet or record.get("froze") is True))
    return seats


def _stuck(seats: Sequence[Seat]) -> list[Seat]:
    """Choose who is to blame: ranks that never began, else those that fell silent, else the least far."""
    least = min(seat.place for seat in seats)
    if least == DONE:
        return []
    never = [seat for seat in seats if not seat.record]
    silent = [seat for seat in seats if seat.silent and seat.place != DONE]
    return never or silent or [seat for seat in seats if seat.place == least]


def _state(stuck: Sequence[Seat], expected: Expected, known: Sequence[Suspect]) -> tuple[str, str, str]:
    """Say what became of the ranks to blame, the setting to suspect, and what to do."""
    record = stuck[0].record
    if not record:
        return "never began: no record is left", "", "read the step's stderr: it has the container runtime's own words"
    group = whole(record, "group")
    where = PLACES[str(record["part"])].format(group, GROUPS) if group else f"while {record.get('phase')}"
    if stuck[0].silent:
        return f"fell silent {where}", "", NODE_ADVICE
    if not group:
        return f"hung {where}", "", NODE_ADVICE
    why, advice = suspicion(record, known, len(expected.nodes))
    return f"hung {where}", f"; {why}", advice


def _who(seats: Sequence[Seat]) -> str:
    return who([seat.rank for seat in seats], sorted({seat.node for seat in seats}))


def _crashed(ended: Ended, expected: Expected) -> Gate | None:
    """Name the ranks that srun says ended by themselves and left no record: the others failed or were killed then."""
    if ended.late or ended.exit_code == 0:
        return None
    failed = min(_times(ended.records, "error_time"), default=math.inf)
    seats = _seats(ended.records, expected)
    for _, tasks, how in _TASK.findall(ended.words):
        own = [seats[rank] for rank in parse_number_list(tasks, limit=MOST_RANKS) if rank < len(seats)]
        lost = [seat for seat in own if "local_rank" not in seat.record and _last_seen(seat) <= failed]
        if lost:
            doing = f" while {lost[0].record['phase']}" if lost[0].record else ""
            cause = f"{_who(lost)} ended without a record{doing}: {how}"
            return _blamed(lost, cause, STDERR, expected)
    return None


def _last_seen(seat: Seat) -> float:
    return number(seat.record, "time") or 0.0


def _blamed(seats: Sequence[Seat], cause: str, advice: str, expected: Expected) -> Gate:
    """Make a gate line about some ranks and their nodes alone."""
    return expected.gate(
        "fail", cause, advice, seats[0].rank if len(seats) == 1 else None, sorted({seat.node for seat in seats})
    )


def _wrong(done: Sequence[Record], expected: Expected) -> Gate | None:
    for at in range(GROUPS):
        ranks = [one for one in done if at < len(rows(one, "groups")) and whole(rows(one, "groups")[at], "wrong")]
        if ranks:
            where = who([rank_of(one) for one in ranks], sorted({str(one.get("host")) for one in ranks}))
            return expected.gate("fail", f"the first collective of group {at + 1} gave wrong sums on {where}", ADVICE)
    return None


def _group_times(done: Sequence[Record], expected: Expected) -> Iterator[Line]:
    """Give the times. Who comes last waits for nobody in making a group; a collective is as long as on its slowest."""
    by_group = list(zip(*(rows(record, "groups") for record in done), strict=False))
    make = [min(number(row, "make_s") or 0.0 for row in own) for own in by_group]
    first = [max(number(row, "first_s") or 0.0 for row in own) for own in by_group]
    if len(by_group) < GROUPS:
        return
    both = [made + used for made, used in zip(make, first, strict=True)]
    yield expected.sample("first_group_s", both[0], "lower", "s")
    yield expected.sample("next_group_s", statistics.median(both[1:]), "lower", "s")
    yield expected.series("make_s", make, "s")
    yield expected.series("first_collective_s", first, "s")
