"""What went wrong with the ranks of a step, told once for all that are alike, with the cause and what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from lumisite.site.cpus import format_cpu_list
from lumisite.text import some
from lumisite.validate.lines import Gate, GateOutcome
from lumisite.validate.probes.probe import Ended, Expected, Judge, Line, Record
from lumisite.validate.probes.records import finished, number, rank_of, text, whole

Said: TypeAlias = tuple[str, str]
"""A cause, and what to do."""
Look: TypeAlias = Callable[[Record], Iterable[Said]]
"""Find what is wrong with one record."""

#: A rank says once a second that it lives; one that is silent for longer than this is frozen, in seconds.
NO_BEAT_S = 5.0
#: Nodes that a cause names; more are counted.
NAMED_NODES = 4
STDERR = "read the step's stderr"
NOT_STARTED = "it did not start, or was ended"
LOST = "look at the node of that rank; a rank that is silent is frozen or lost"


# ---- ranks or nodes that are asked each by itself


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


def judge_each(look: Look, passed: Callable[[Sequence[Record], Expected], str], what: str = "the rank") -> Judge:
    """Judge each rank or node by what `look` finds wrong with its record; `passed` says what holds where nothing is."""
    return judge_records(lambda own, job: tell(faults_of(own, job, look, what), passed(own, job), job))


def faults_of(records: Sequence[Record], expected: Expected, look: Look, what: str = "the rank") -> list[Fault]:
    """Give the ranks or nodes that left no record, then what `look` finds wrong with each of the others."""
    return missing(records, expected, what) + [
        Fault(cause, advice, text(record, "host"), whole(record, "rank") if expected.part.each == "gpu" else None)
        for record in records
        for cause, advice in look(record)
    ]


def missing(records: Iterable[Record], expected: Expected, what: str) -> list[Fault]:
    """Give a fault for each rank or node that should have left a record and has not."""
    cause = f"{what} left no record: {expected.words or NOT_STARTED}"
    if expected.part.each == "node":
        nodes = {text(record, "host") for record in records}
        return [Fault(cause, STDERR, node) for node in expected.nodes if node not in nodes]
    ranks = {whole(record, "rank") for record in records}
    lost = [rank for rank in range(expected.ranks) if rank not in ranks]
    return [Fault(cause, STDERR, expected.node_of(rank), rank) for rank in lost]


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


def who(ranks: Sequence[int], nodes: Sequence[str]) -> str:
    """Name ranks and their nodes, or nodes alone.

    >>> who([0, 1, 2], ["a", "b"]), who([], ["a"])
    ('ranks 0-2 on a, b', 'a')
    """
    where = some(nodes, NAMED_NODES, ", ")
    return f"rank{'s' * (len(ranks) > 1)} {format_cpu_list(ranks)} on {where}" if ranks else where


# ---- ranks that work together


def judge_together(judge: Callable[[Sequence[Record], Expected], list[Line]]) -> Judge:
    """Judge the records of a step whose ranks work together, if all of them came to their end."""

    def judged(steps: Sequence[Ended], expected: Expected) -> list[Line]:
        failed = trouble(steps[0], expected)
        return judge(finished(steps[0].records), expected) if failed is None else [failed]

    return judged


def trouble(ended: Ended, expected: Expected) -> Gate | None:
    """Say what kept ranks that work together from finishing: a wrong number, an error, a rank that hangs."""
    done = finished(ended.records)
    told = {record.get("world_size", record.get("tasks")) for record in done} - {None, expected.ranks}
    if told:
        per_node = Counter(str(record.get("host")) for record in done)
        each = ", ".join(f"{count} on {host}" for host, count in sorted(per_node.items()))
        met = f"{', '.join(sorted(map(str, told)))} ranks worked together where {expected.ranks} should"
        changing = "the site's cli_filter, SLURM_NTASKS_PER_NODE, a prolog"
        advice = f"look for what changes the number of tasks on a node: {changing}"
        return expected.gate("fail", f"{met} ({expected.tasks} on each node; reported: {each})", advice)
    errors = [record for record in done if record.get("error")]
    if errors:
        first = min(errors, key=lambda record: (number(record, "error_time") or 0.0, rank_of(record)))
        doing = f"failed while {first.get('error_at')}: {first['error']}"
        return _of_ranks(errors, first, doing, "read the stderr of the step", expected)
    heard = {rank_of(record) for record in done}
    lost = [rank for rank in range(expected.ranks) if rank not in heard]
    shown = ", ".join(map(str, lost[:8])) + " and more" * (len(lost) > 8)
    unheard = f"{len(lost)} of {expected.ranks} ranks wrote nothing: rank {shown}" if lost else "no rank is left"
    if ended.late:
        limit = f"not done after {ended.step.limit_s} s: "
        left = [record for record in ended.records if "phase" in record and rank_of(record) not in heard]
        if not left:
            return expected.gate("fail", limit + unheard, LOST)
        last = max(number(record, "time") or 0.0 for record in left)
        silent = [record for record in left if last - (number(record, "time") or 0.0) > NO_BEAT_S]
        stuck = sorted(silent or left, key=rank_of)
        doing = f"{'fell silent' if silent else 'hung'} while {stuck[0].get('phase')}"
        return _of_ranks(stuck, stuck[0], doing, LOST, expected, limit)
    if ended.exit_code or len(done) != expected.ranks:
        cause = f"srun ended with exit code {ended.exit_code}" if ended.exit_code else unheard
        return expected.gate("fail", f"{cause}: {ended.words}" if ended.words else cause, STDERR)
    return None


def _of_ranks(
    ranks: Sequence[Record], first: Record, doing: str, advice: str, expected: Expected, since: str = ""
) -> Gate:
    """Name the first of some ranks with what it met, and count them."""
    several = f" ({len(ranks)} ranks in all)" if len(ranks) > 1 else ""
    cause = f"{since}rank {rank_of(first)} on {first.get('host')} {doing}{several}"
    return expected.gate("fail", cause, advice, rank_of(first))
