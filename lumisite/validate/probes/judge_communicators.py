"""Judge `communicators`: do process groups come up one after the other; if not, which rank hung where, and why.

All ranks of a collective wait for the last one, so the rank that is least far is named, and none that waits for it.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from lumisite.site.cpus import format_cpu_list, parse_number_list
from lumisite.validate.lines import Gate
from lumisite.validate.probes.findings import named
from lumisite.validate.probes.hang_settings import suspicion
from lumisite.validate.probes.judge_collectives import ADVICE
from lumisite.validate.probes.probe import Backend, Ended, Expected, Line, Probe, Record
from lumisite.validate.probes.ranks import SILENT_S, counted, finished, number, rank_of, trouble

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


def arguments(backend: Backend) -> tuple[str, ...]:
    """Give the script's options; PyTorch's own limit is never reached, as a rank has lost its patience before."""
    if backend == "gloo":
        return ("--groups", str(GROUPS), "--size", str(1 << 20), "--patience", "15", "--limit", "60")
    return ("--groups", str(GROUPS), "--size", str(16 << 20), "--patience", "100", "--limit", "240")


def judge(steps: Sequence[Ended], expected: Expected) -> list[Line]:
    """Give the gate, and how long groups took."""
    ended = steps[0]
    whole = finished(ended.records)
    failed = _hung(ended, expected) or _crashed(ended, expected) or trouble(ended, expected) or _wrong(whole, expected)
    if failed is not None:
        return [failed]
    numbers = list(_numbers(whole, expected))
    if not numbers:
        return [expected.gate("inconclusive", "nothing was measured", "run the probe again")]
    cause = f"{GROUPS} groups of {counted(len(whole), 'rank')} came up one after the other, and every sum is right"
    return [expected.gate("pass", cause), *numbers]


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
        return int(number(self.record, "group") or 0), [*PLACES].index(part) if isinstance(part, str) else 0


def _hung(ended: Ended, expected: Expected) -> Gate | None:
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
    state, why, advice = _state(stuck, expected)
    return _blamed(stuck, f"{since}: {_who(stuck)} {state}{waited}{why}", advice, expected)


def _times(records: Sequence[Record], key: str) -> list[float]:
    return [time for time in (number(record, key) for record in records) if time is not None]


def _seats(records: Sequence[Record], expected: Expected) -> list[Seat]:
    """Give every rank that there should be, by its record, or by what it last said of where it was."""
    last = max((time for key in ("time", "hung_time", "error_time") for time in _times(records, key)), default=0.0)
    whole = {rank_of(record): record for record in finished(records)}
    lost = {rank_of(record): record for record in records if "phase" in record}
    seats = []
    for rank in range(expected.ranks):
        record = whole.get(rank) or lost.get(rank) or {}
        node = str(record.get("host") or sorted(expected.nodes)[rank // expected.tasks])
        quiet = rank not in whole and rank in lost and last - (number(record, "time") or 0.0) > SILENT_S
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


def _state(stuck: Sequence[Seat], expected: Expected) -> tuple[str, str, str]:
    """Say what became of the ranks to blame, the setting to suspect, and what to do."""
    record = stuck[0].record
    if not record:
        return "never began: no record is left", "", "read the step's stderr: it has the container runtime's own words"
    group = number(record, "group")
    where = PLACES[str(record["part"])].format(int(group), GROUPS) if group else f"while {record.get('phase')}"
    if stuck[0].silent:
        return f"fell silent {where}", "", NODE_ADVICE
    if not group:
        return f"hung {where}", "", NODE_ADVICE
    why, advice = suspicion(record, expected.backend, len(expected.nodes))
    return f"hung {where}", f"; {why}", advice


def _who(seats: Sequence[Seat]) -> str:
    ranks = format_cpu_list(seat.rank for seat in seats)
    return f"rank{'s' * (len(seats) > 1)} {ranks} on {named(sorted({seat.node for seat in seats}))}"


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
            return _blamed(lost, cause, "read the step's stderr", expected)
    return None


def _last_seen(seat: Seat) -> float:
    return number(seat.record, "time") or 0.0


def _blamed(seats: Sequence[Seat], cause: str, advice: str, expected: Expected) -> Gate:
    """Make a gate line about some ranks and their nodes alone."""
    gate = expected.gate("fail", cause, advice, seats[0].rank if len(seats) == 1 else None)
    return replace(gate, nodes=tuple(sorted({seat.node for seat in seats})))


def _wrong(whole: Sequence[Record], expected: Expected) -> Gate | None:
    for at in range(GROUPS):
        ranks = [record for record in whole if at < len(_rows(record)) and number(_rows(record)[at], "wrong")]
        if ranks:
            who = _who([Seat(rank_of(record), str(record.get("host")), record, silent=False) for record in ranks])
            return expected.gate("fail", f"the first collective of group {at + 1} gave wrong sums on {who}", ADVICE)
    return None


def _rows(record: Record) -> list[Record]:
    rows = record.get("groups")
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _numbers(whole: Sequence[Record], expected: Expected) -> Iterator[Line]:
    """Give the times. Who comes last waits for nobody in making a group; a collective is as long as on its slowest."""
    by_group = list(zip(*map(_rows, whole), strict=False))
    make = [min(number(row, "make_s") or 0.0 for row in rows) for rows in by_group]
    first = [max(number(row, "first_s") or 0.0 for row in rows) for rows in by_group]
    if len(by_group) < GROUPS:
        return
    both = [made + used for made, used in zip(make, first, strict=True)]
    yield expected.sample("first_group_s", both[0], "lower", "s")
    yield expected.sample("next_group_s", statistics.median(both[1:]), "lower", "s")
    yield expected.series("make_s", make, "s")
    yield expected.series("first_collective_s", first, "s")


COMMUNICATORS = Probe("communicators", "communicators.py", ("one-node", "several"), judge, arguments, least_ranks=2)
