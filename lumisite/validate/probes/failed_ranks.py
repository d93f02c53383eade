"""What kept ranks that work together from finishing: which hung, crashed, failed or left nothing, and on which node.

What fails first ends all others, so the first cause is named, and nothing that followed from it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from lumisite.findings.finding import Finding, Severity
from lumisite.site.cpu_list import parse_number_list
from lumisite.text import counted, listed, some
from lumisite.validate.lines import Gate
from lumisite.validate.probes.outcome import clean_environment, no_record, too_late
from lumisite.validate.probes.probe import NODE, Ended, Expected, Judge, Line, Record
from lumisite.validate.probes.records import finished, rank_of, rows, table, text
from lumisite.validate.probes.start_errors import start_failure

#: A rank reports once a second where it is; one that is silent for longer than this is frozen, in seconds.
NO_BEAT_S = 5.0
#: What a rank can be at in a process group, in the order in which it comes there.
PARTS = ("making", "entering", "running", "leaving")
#: Variables that a finding names; more are counted.
NAMED_VARIABLES = 16
#: More tasks than a step can have.
MOST_RANKS = 1 << 24
#: What srun prints of tasks that did not end well.
_TASKS = re.compile(r"srun: error: (\S+): tasks? ([\d,-]+): (.*\S)")
#: What it prints of tasks that a signal ended which Slurm itself sends to the others of a step, too.
_SIGNALS = ("Killed", "Terminated")
#: What a rank reports of its connections to others, or of waiting for them: it need not be where the fault is.
_OF_OTHERS = re.compile(
    r"(?i)connect|peer|socket|time.?out|timed out|remote|broken pipe|[nr]ccl|gloo|route|unreachable|abort"
)
#: What srun and slurmstepd print where the kernel ended a task for want of memory (of their cgroup).
_NO_MEMORY = re.compile(r"oom_kill event|OOM Killed|Out Of Memory")


def judge_together(judge: Callable[[Sequence[Record], Expected], Sequence[Line]]) -> Judge:
    """Return the judge of a step whose ranks work together, which looks at the records if all came to their end."""

    def judged(steps: Sequence[Ended], expected: Expected) -> Sequence[Line]:
        failed = trouble(steps[0], expected)
        return judge(finished(steps[0].records), expected) if failed is None else [failed]

    return judged


def trouble(ended: Ended, expected: Expected, variables: Sequence[str] = ()) -> Gate | None:
    """Return what kept ranks that work together from finishing: a wrong number, an error, a rank that hangs.

    `variables` are those of which the values are named of a rank that hangs.
    """
    done = finished(ended.records)
    if cleaned := clean_environment(done):
        return expected.gate(cleaned)
    return (
        _port_in_use(done, expected)
        or _other_count(done, expected)
        or _hung(ended, expected, variables)
        or _crashed(ended, expected)
        or _failed(ended, done, expected)
        or _lost(ended, done, expected)
    )


def _port_in_use(done: Sequence[Record], expected: Expected) -> Gate | None:
    """Return that something else holds the port on which rank 0 listens for the others: a fault of its node."""
    record = next((record for record in done if "port_in_use" in record), None)
    if record is None:
        return None
    host, port = record["host"], record["port_in_use"]
    users = listed(rows(record, "port_users")) or "an unknown user"
    message = f"port {port} (MASTER_PORT) is in use by a process of {users}"
    advice = f"see `ss -ltnp 'sport = :{port}'` on {host} as root, and end what listens there (jobs use 20000 to 27992)"
    finding = Finding("port-in-use", Severity.NODE, message, advice, nodes=(host,))
    return replace(expected.gate(finding), gate=NODE)


def _other_count(done: Sequence[Record], expected: Expected) -> Gate | None:
    """Return that another number of ranks worked together than was started."""
    counts = {record.get("world_size", record.get("tasks")) for record in done} - {None, expected.ranks}
    if not counts:
        return None
    per_node = Counter(record["host"] for record in done)
    reported = ", ".join(f"{host}: {count}" for host, count in sorted(per_node.items()))
    found = ", ".join(sorted(map(str, counts)))
    message = f"{found} ranks worked together where {expected.ranks} should "
    message += f"({expected.tasks} on each node; reported: {reported})"
    advice = (
        "look for what changes the number of tasks on a node: the site's cli_filter, SLURM_NTASKS_PER_NODE, a prolog"
    )
    return expected.gate(Finding("ranks-count", Severity.FAULT, message, advice))


# ---- a hang


def _hung(ended: Ended, expected: Expected, variables: Sequence[str]) -> Gate | None:
    """Return who hung, if the step's time was over, or a rank lost its patience, before any failed.

    To blame are ranks that never began, else those that fell silent, else the least far: all others wait for them.
    """
    gave_up, failed = _times(ended.records, "hung_time"), _times(ended.records, "error_time")
    if not (gave_up or ended.late) or min(failed, default=math.inf) < min(gave_up, default=math.inf):
        return None
    undone = [record for record in _last_records(ended.records, expected) if not _is_done(record)]
    never = [record for record in undone if not {"local_rank", "phase"} & {*record}]
    if len(never) == expected.ranks or not undone:
        return expected.gate(too_late(ended))
    last = max(_times(ended.records, "time", "hung_time", "error_time"), default=0.0)
    silent = [record for record in undone if _is_silent(record, last)]
    least = min(map(_progress, undone))
    stuck = never or silent or [record for record in undone if _progress(record) == least]
    limit_s = max(_times(ended.records, "hung_s"), default=0.0) if gave_up else ended.step.limit_s
    others = len(undone) - len(stuck)
    waiting = f"; {counted(others, 'other rank')} waited" if others else ""
    if never:
        message, advice = f"no record is left after {limit_s:g} s{waiting}", ended.read_stderr
    else:
        place = next(filter(None, map(stuck[0].get, ("hung_at", "error_at", "phase"))), "starting")
        doing = f"{'fell silent' if silent else 'hung'} while {place}"
        message, advice = f"no progress for {limit_s:g} s: {doing}{waiting}", "look at the node of that rank"
    if not never and not silent and variables and "settings" in stuck[0]:
        message += _settings(stuck[0], variables)
        advice = "see `lumisite why NAME` for values that hang; the probe `transport` keeps the log of NCCL"
    nodes = tuple(sorted({record["host"] for record in stuck}))
    code = "record-missing" if never else "step-hung"
    return expected.gate(Finding(code, Severity.FAULT, message, advice, nodes=nodes), [rank_of(one) for one in stuck])


def _times(records: Sequence[Record], *keys: str) -> list[float]:
    return [record[key] for record in records for key in keys if key in record]


def _last_records(records: Sequence[Record], expected: Expected) -> list[Record]:
    """Return each rank's record, or what it last wrote of where it was; only rank and host where there is neither."""
    # Of a rank that left its record, what it wrote before shows nothing more.
    by_rank = {rank_of(record): record for record in sorted(records, key=lambda record: "local_rank" in record)}
    return [{"host": expected.node_of(rank), "rank": rank, **by_rank.get(rank, {})} for rank in range(expected.ranks)]


def _is_done(record: Record) -> bool:
    return "local_rank" in record and not {"error", "hung_time"} & {*record}


def _is_silent(record: Record, last: float) -> bool:
    """Return whether a rank was stopped, or its last report is too old; `last` is the newest time of all ranks.

    The record that is left in the end has no such time.
    """
    return "froze" in record or last - record.get("time", last) > NO_BEAT_S


def _progress(record: Record) -> tuple[int, int]:
    """Return how far a rank is: the group, and what it does with it; (0, 0) before the first."""
    return record.get("group", 0), PARTS.index(record.get("part", PARTS[0]))


def _settings(record: Record, names: Sequence[str]) -> str:
    """Return which variables a rank has, with their values, and which it has not, as text."""
    settings = table(record, "settings")
    have = [f"{name}={settings[name]}" for name in names if name in settings]
    lacking = [name for name in names if name not in settings]
    message = f"; set: {some(have, NAMED_VARIABLES, ', ')}" if have else ""
    return message + (f"; unset: {some(lacking, NAMED_VARIABLES, ', ')}" if lacking else "")


# ---- an end before its time


def _crashed(ended: Ended, expected: Expected) -> Gate | None:
    """Return the ranks that srun reports as ended and that left no record: what the others say followed from that.

    A rank that ended by itself comes before one that was killed: where one ends, Slurm kills the rest of the step.
    """
    found = sorted(_ends(ended, expected), key=lambda end: end.words.startswith(_SIGNALS))
    if ended.late or not ended.exit_code or not found:
        return None
    first = found[0]
    if why := start_failure(ended.stderr):
        nodes = tuple(dict.fromkeys(end.node for end in found))
        return expected.gate(replace(why, nodes=nodes), [rank for end in found for rank in end.ranks])
    during = f" while {first.phase}" if first.phase else ""
    message, advice = f"ended without a record{during}: {first.words}", ended.read_stderr
    if any(map(_NO_MEMORY.search, ended.stderr)) and first.words.startswith((*_SIGNALS[:1], "Out Of Memory")):
        message = f"killed{during}: out of memory ({first.words})"
        advice = "see what else uses the memory of the node, and how much memory a step gets there"
    return expected.gate(Finding("rank-failed", Severity.FAULT, message, advice, nodes=(first.node,)), first.ranks)


@dataclass(frozen=True)
class _TaskEnd:
    """A line of srun about ranks of one node that left no record; `phase` is where the first was, if it said so."""

    node: str
    ranks: tuple[int, ...]
    words: str
    phase: str


def _ends(ended: Ended, expected: Expected) -> Iterator[_TaskEnd]:
    """Yield the lines of srun about ranks that may have begun the failure, in its order."""
    done = {rank_of(record) for record in finished(ended.records)}
    last = {rank_of(record): record for record in ended.records if "phase" in record}
    failed = min(_times(ended.records, "error_time"), default=math.inf)

    def may_be_first(rank: int, words: str) -> bool:
        """A rank that lived on after the first error of another was ended because of that."""
        if rank in done or rank >= expected.ranks:
            return False
        if rank in last:
            return bool(last[rank]["time"] <= failed)
        return failed == math.inf or not words.startswith(_SIGNALS)

    for node, tasks, words in _TASKS.findall("\n".join(ended.stderr)):
        # Without an error of another rank, nothing tells one that was sent the usual signal from the cause.
        if failed == math.inf and words.startswith(_SIGNALS[1]):
            continue
        ranks = tuple(rank for rank in parse_number_list(tasks, limit=MOST_RANKS) if may_be_first(rank, words))
        if ranks:
            yield _TaskEnd(node, ranks, words, text(last.get(ranks[0], {}), "phase"))


def _failed(ended: Ended, done: Sequence[Record], expected: Expected) -> Gate | None:
    """Return the first error of a rank, before what others report of their connections to it.

    It is about that rank's node if only ranks of that have an error of their own; else about all nodes.
    """
    errors = [record for record in done if "error" in record]
    if not errors:
        return None
    own = [record for record in errors if not _OF_OTHERS.search(record["error"])]
    first = min(own or errors, key=lambda record: (record["error_time"], rank_of(record)))
    part = f" ({ended.step.srun.name})" if ended.step.srun.name else ""
    message = f"failed{part} while {first['error_at']}: {first['error']}"
    message += f"; so did {counted(len(errors) - 1, 'other rank')}" if len(errors) > 1 else ""
    finding = Finding("rank-failed", Severity.FAULT, message, ended.read_stderr, nodes=(first["host"],))
    gate = expected.gate(finding, [rank_of(first)])
    if {record["host"] for record in own} == {first["host"]}:
        return gate
    return replace(gate, nodes=tuple(sorted(expected.nodes)), asked=())


def _lost(ended: Ended, done: Sequence[Record], expected: Expected) -> Gate | None:
    """Return the ranks that left nothing, or that srun failed."""
    if ended.late:
        return expected.gate(too_late(ended))
    if ended.exit_code:
        words = f": {ended.words}" if ended.words else ""
        message = f"srun ended with exit code {ended.exit_code}{words}"
        found = start_failure(ended.stderr) or Finding("step-failed", Severity.FAULT, message, ended.read_stderr)
        return expected.gate(found)
    left = {rank_of(record) for record in done}
    lost = [rank for rank in range(expected.ranks) if rank not in left]
    if not lost:
        return None
    nodes = tuple(dict.fromkeys(map(expected.node_of, lost)))
    return expected.gate(replace(no_record(ended), nodes=nodes), lost)
