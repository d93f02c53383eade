"""What went wrong with the ranks of a step, told once for all that are alike, with the cause and what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lumisite.site.cpus import format_cpu_list
from lumisite.validate.lines import Gate, GateOutcome
from lumisite.validate.probes.probe import Ended, Expected, Judge, Line, Record
from lumisite.validate.probes.records import finished, number, rank_of, text, whole

if TYPE_CHECKING:
    from typing import TypeAlias

Said: TypeAlias = tuple[str, str]
"""A cause, and what to do."""

#: A rank says once a second that it lives; one that is silent for longer than this is frozen, in seconds.
SILENT_S = 5.0
#: Nodes that a cause names; more are counted.
NAMED_NODES = 4
STDERR = "read the step's stderr"
NOT_STARTED = "it did not start, or was ended"
LOST = "look at the node of that rank; a rank that is silent is frozen or lost"


@dataclass(frozen=True)
class Fault:
    """What is wrong with one task, before equal ones are put together; without `rank` it is the node's."""

    cause: str
    advice: str
    node: str
    rank: int | None = None
    verdict: GateOutcome = "fail"


def judge_records(judge: Callable[[Sequence[Record], Expected], list[Line]]) -> Judge:
    """Judge the records of all parts of a probe that asks each rank by itself, where there are any."""

    def judged(steps: Sequence[Ended], expected: Expected) -> list[Line]:
        late = [ended.step for ended in steps if ended.late]
        if late:
            cause = f"{late[0].folder} was not done after {late[0].limit_s} s"
            return [expected.gate("fail", cause, "look at the nodes and at the step's stderr")]
        records = finished(record for ended in steps for record in ended.records)
        dead = [ended for ended in steps if ended.exit_code]
        if dead and not records:
            told = dead[0].words or f"exit code {dead[0].exit_code}"
            return [expected.gate("fail", f"{dead[0].step.folder} ran on no node: {told}", "start it by hand in a job")]
        words = " | ".join(dict.fromkeys(ended.words for ended in dead if ended.words))
        return judge(records, replace(expected, words=words))

    return judged


def judge_each(look: Callable[[Record], Iterable[Said]], passed: Callable[[Sequence[Record], Expected], str]) -> Judge:
    """Judge each rank by what `look` finds wrong with its record; `passed` says what holds where nothing is."""
    return judge_records(
        lambda records, expected: tell(faults_of_ranks(records, expected, look), passed(records, expected), expected)
    )


def judge_together(judge: Callable[[Sequence[Record], Expected], list[Line]]) -> Judge:
    """Judge the records of a step whose ranks work together, if all of them came to their end."""

    def judged(steps: Sequence[Ended], expected: Expected) -> list[Line]:
        failed = trouble(steps[0], expected)
        return judge(finished(steps[0].records), expected) if failed is None else [failed]

    return judged


def tell(faults: Iterable[Fault], passed: str, expected: Expected) -> list[Line]:
    """Give one gate line for each distinct fault, in the order of the first rank that has it; or `passed` if none."""
    alike: dict[tuple[GateOutcome, str, str], list[Fault]] = {}
    for fault in faults:
        alike.setdefault((fault.verdict, fault.cause, fault.advice), []).append(fault)
    lines: list[Line] = []
    for (verdict, cause, advice), same in alike.items():
        ranks = [fault.rank for fault in same if fault.rank is not None]
        nodes = list(dict.fromkeys(fault.node for fault in same))
        rank = same[0].rank if len(same) == 1 else None
        lines.append(expected.gate(verdict, f"{who(ranks, nodes)}: {cause}", advice, rank, nodes))
    return lines or [expected.gate("pass", passed)]


def faults_of_ranks(
    records: Sequence[Record], expected: Expected, look: Callable[[Record], Iterable[Said]], what: str = "the rank"
) -> list[Fault]:
    """Give the ranks that left no record, then what `look` finds wrong with each of the others."""
    return missing_ranks(records, expected, what) + [
        Fault(cause, advice, text(record, "host"), whole(record, "rank"))
        for record in records
        for cause, advice in look(record)
    ]


def missing_ranks(records: Iterable[Record], expected: Expected, what: str) -> list[Fault]:
    """Give a fault for each rank that should have left a record and has not."""
    ranks = {whole(record, "rank") for record in records}
    missing = [rank for rank in range(expected.ranks) if rank not in ranks]
    return [Fault(*_no_record(what, expected), expected.nodes[rank // expected.tasks], rank) for rank in missing]


def missing_nodes(records: Iterable[Record], expected: Expected, what: str) -> list[Fault]:
    """Give a fault for each node that should have left a record and has not."""
    nodes = {text(record, "host") for record in records}
    return [Fault(*_no_record(what, expected), node) for node in expected.nodes if node not in nodes]


def _no_record(what: str, expected: Expected) -> Said:
    return f"{what} left no record: {expected.words or NOT_STARTED}", STDERR


def counted(count: int, thing: str) -> str:
    """Count something.

    >>> counted(1, "rank"), counted(2, "rank")
    ('1 rank', '2 ranks')
    """
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def first_of(names: Sequence[str], most: int) -> str:
    """Name the first few of many, and count the others.

    >>> first_of(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def who(ranks: Sequence[int], nodes: Sequence[str]) -> str:
    """Name ranks and their nodes, or nodes alone.

    >>> who([0, 1, 2], ["a", "b"]), who([], ["a"])
    ('ranks 0-2 on a, b', 'a')
    """
    where = first_of(nodes, NAMED_NODES)
    return f"rank{'s' * (len(ranks) > 1)} {format_cpu_list(ranks)} on {where}" if ranks else where


def trouble(ended: Ended, expected: Expected) -> Gate | None:
    """Say what kept ranks that work together from finishing: a wrong number, an error, a rank that hangs."""
    done = finished(ended.records)
    return (
        _wrong_number(done, expected)
        or _failed(done, expected)
        or _late(ended, expected)
        or _ended(ended, done, expected)
    )


def _wrong_number(done: Sequence[Record], expected: Expected) -> Gate | None:
    told = {record.get("world_size", record.get("tasks")) for record in done} - {None, expected.ranks}
    if not told:
        return None
    per_node = Counter(str(record.get("host")) for record in done)
    each = ", ".join(f"{count} on {host}" for host, count in sorted(per_node.items()))
    met = ", ".join(str(count) for count in sorted(told, key=str))
    return expected.gate(
        "fail",
        f"{met} ranks worked together where {expected.ranks} should ({expected.tasks} on each node; reported: {each})",
        "look for what changes the number of tasks on a node: the site's cli_filter, SLURM_NTASKS_PER_NODE, a prolog",
    )


def _failed(done: Sequence[Record], expected: Expected) -> Gate | None:
    errors = [record for record in done if record.get("error")]
    if not errors:
        return None
    first = min(errors, key=lambda record: (number(record, "error_time") or 0.0, rank_of(record)))
    cause = f"{_rank(first)} failed while {first.get('error_at')}: {first['error']}{_in_all(errors)}"
    return expected.gate("fail", cause, "read the stderr of the step", rank_of(first))


def _late(ended: Ended, expected: Expected) -> Gate | None:
    if not ended.late:
        return None
    open_ranks = _unfinished(ended.records)
    limit = f"not done after {ended.step.limit_s} s"
    if not open_ranks:
        return expected.gate("fail", f"{limit}: {_unheard(ended.records, expected)}", LOST)
    last = max(number(record, "time") or 0.0 for record in open_ranks)
    silent = [record for record in open_ranks if last - (number(record, "time") or 0.0) > SILENT_S]
    stuck = silent or open_ranks
    state = "fell silent" if silent else "hung"
    where = f"{_rank(stuck[0])} {state} while {stuck[0].get('phase')}"
    return expected.gate("fail", f"{limit}: {where}{_in_all(stuck)}", LOST, rank_of(stuck[0]))


def _ended(ended: Ended, done: Sequence[Record], expected: Expected) -> Gate | None:
    if len(done) == expected.ranks and ended.exit_code == 0:
        return None
    words = f": {ended.words}" if ended.words else ""
    if ended.exit_code != 0:
        return expected.gate("fail", f"srun ended with exit code {ended.exit_code}{words}", STDERR)
    return expected.gate("fail", f"{_unheard(done, expected)}{words}", STDERR)


def _rank(record: Record) -> str:
    return f"rank {rank_of(record)} on {record.get('host')}"


def _in_all(records: Sequence[Record]) -> str:
    return f" ({len(records)} ranks in all)" if len(records) > 1 else ""


def _unfinished(records: Sequence[Record]) -> list[Record]:
    ended = {rank_of(record) for record in finished(records)}
    return sorted((each for each in records if "phase" in each and rank_of(each) not in ended), key=rank_of)


def _unheard(records: Sequence[Record], expected: Expected) -> str:
    missing = sorted(set(range(expected.ranks)) - {rank_of(record) for record in finished(records)})
    shown = ", ".join(str(rank) for rank in missing[:8]) + (" and more" if len(missing) > 8 else "")
    return f"{len(missing)} of {expected.ranks} ranks wrote nothing: rank {shown}" if missing else "no rank is left"
