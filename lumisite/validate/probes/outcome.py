"""What came of the ranks of a step: findings about nodes and ranks, equal ones together, as the lines of gates."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from lumisite.findings.finding import Finding, Severity
from lumisite.site.cpu_list import parse_number_list
from lumisite.text import counted, listed
from lumisite.validate.lines import Gate
from lumisite.validate.probes.probe import NODE, Ended, Expected, Judge, Line, Record, describe_ranks
from lumisite.validate.probes.records import finished, number, rank_of, text, texts, whole
from lumisite.validate.probes.start_errors import start_failure

#: A rank reports once a second where it is; one that is silent for longer than this is frozen, in seconds.
NO_BEAT_S = 5.0
WRONG_RESULTS = (
    "wrong results make training wrong without an error: run the probe again, then drain the node that differs"
)
LOOK_AT_NODE = "look at the node of that rank"
LOOK_AT_SILENT = "look at the node of that rank; a rank that is silent is frozen or lost"
#: The end of what to do about a node that jobs should not get until it is mended.
DRAIN = "; drain the node until then"
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


@dataclass(frozen=True)
class Located:
    """A finding about one rank; without `rank` it is about the node."""

    finding: Finding
    node: str
    rank: int | None = None


def gates(located: Iterable[Located], expected: Expected) -> list[Line]:
    """Return one gate line for each distinct finding, in the order of the first rank that has it.

    What all nodes of several have drains none of them: its advice says where to look instead.
    """
    alike: dict[Finding, list[Located]] = {}
    for entry in located:
        alike.setdefault(entry.finding, []).append(entry)
    lines: list[Line] = []
    for finding, group in alike.items():
        nodes = tuple(dict.fromkeys(entry.node for entry in group))
        ranks = [entry.rank for entry in group if entry.rank is not None]
        advice = finding.advice
        if finding.severity is Severity.NODE and len(nodes) == len(expected.nodes) > 1:
            advice = f"all {len(nodes)} nodes have it: look at what they share, and at the site description"
        lines.append(expected.gate(replace(finding, nodes=nodes, advice=advice), ranks))
    return lines


def passed(message: str) -> Finding:
    """Return the finding of a check that holds."""
    return Finding("checks-passed", Severity.INFO, message)


def nothing_measured() -> Finding:
    """Return the finding of ranks that all ended well and measured nothing."""
    advice = "run the probe again; see whether the PyTorch of the image has this back-end"
    return Finding("records-unreadable", Severity.DOUBT, "nothing was measured", advice)


def unfinished(steps: Sequence[Ended], expected: Expected) -> Gate | None:
    """Return the finding about steps of which nothing can be judged: the time was over, or none has a record."""
    late = next((ended for ended in steps if ended.late), None)
    if late is not None:
        return expected.gate(_too_late(late))
    dead = [ended for ended in steps if ended.exit_code]
    if dead and not any(finished(ended.records) for ended in steps):
        return expected.gate(start_failure(dead[0].stderr, dead[0].step.folder) or not_run(dead[0]))
    return None


def _too_late(ended: Ended) -> Finding:
    message, advice = f"not done after {ended.step.limit_s} s", f"look at the nodes, and {ended.read_stderr}"
    return Finding("step-hung", Severity.FAULT, message, advice, subject=ended.step.folder)


def not_run(ended: Ended) -> Finding:
    """Return that a step ran on no node, with the words of its stderr."""
    words = ended.words or f"srun ended with exit code {ended.exit_code}"
    advice = "start it by hand in a job, with the line from the job's script"
    return Finding("step-failed", Severity.FAULT, f"ran on no node: {words}", advice, subject=ended.step.folder)


def missing(ended: Ended, records: Iterable[Record]) -> list[Located]:
    """Return a finding for each rank or node of a step that should have left one of these records and has not."""
    step = ended.step
    records = list(records)
    found = clean_environment(records) or start_failure(ended.stderr, step.srun.name) or _no_record(ended)
    if step.srun.each == "node":
        nodes = {text(record, "host") for record in records}
        return [Located(found, node) for node in step.nodes if node not in nodes]
    ranks = {whole(record, "rank") for record in records}
    return [Located(found, step.node_of(rank), rank) for rank in range(step.ranks) if rank not in ranks]


def _no_record(ended: Ended) -> Finding:
    message = f"no record is left: {ended.words or 'it did not start, or was ended'}"
    return Finding("record-missing", Severity.FAULT, message, ended.read_stderr, subject=ended.step.srun.name)


# ---- ranks that work together


def judge_together(judge: Callable[[Sequence[Record], Expected], Sequence[Line]]) -> Judge:
    """Return the judge of a step whose ranks work together, which looks at the records if all came to their end."""

    def judged(steps: Sequence[Ended], expected: Expected) -> Sequence[Line]:
        failed = trouble(steps[0], expected)
        return judge(finished(steps[0].records), expected) if failed is None else [failed]

    return judged


def trouble(ended: Ended, expected: Expected) -> Gate | None:
    """Return what kept ranks that work together from finishing: a wrong number, an error, a rank that hangs."""
    done = finished(ended.records)
    if cleaned := clean_environment(done):
        return expected.gate(cleaned)
    return (
        _port_in_use(done, expected)
        or _other_count(done, expected)
        or _crashed(ended, expected)
        or _failed(ended, done, expected)
        or _lost(ended, done, expected)
    )


def clean_environment(records: Iterable[Record]) -> Finding | None:
    """Return that ranks see none of Slurm's variables, and so do not know which rank they are."""
    if all(rank_of(record) >= 0 for record in records):
        return None
    return Finding(
        "environment-cleaned",
        Severity.FAULT,
        "ranks do not see Slurm's variables (SLURM_PROCID): the container starts with a clean environment",
        "unset APPTAINER_CLEANENV and SINGULARITY_CLEANENV in the site's login files and prologs",
    )


def _port_in_use(done: Sequence[Record], expected: Expected) -> Gate | None:
    """Return that something else holds the port on which rank 0 listens for the others: a fault of its node."""
    for record in done:
        if "port_in_use" not in record:
            continue
        host, port = str(record.get("host")), whole(record, "port_in_use")
        users = listed(texts(record, "port_users")) or "an unknown user"
        message = f"port {port} (MASTER_PORT) is in use by a process of {users}"
        advice = (
            f"see `ss -ltnp 'sport = :{port}'` on {host} as root, and end what listens there (jobs use 20000 to 27992)"
        )
        finding = Finding("port-in-use", Severity.NODE, message, advice, nodes=(host,))
        return replace(expected.gate(finding), gate=NODE)
    return None


def _other_count(done: Sequence[Record], expected: Expected) -> Gate | None:
    """Return that another number of ranks worked together than was started."""
    counts = {record.get("world_size", record.get("tasks")) for record in done} - {None, expected.ranks}
    if not counts:
        return None
    per_node = Counter(str(record.get("host")) for record in done)
    reported = ", ".join(f"{host}: {count}" for host, count in sorted(per_node.items()))
    found = ", ".join(sorted(map(str, counts)))
    message = f"{found} ranks worked together where {expected.ranks} should "
    message += f"({expected.tasks} on each node; reported: {reported})"
    advice = (
        "look for what changes the number of tasks on a node: the site's cli_filter, SLURM_NTASKS_PER_NODE, a prolog"
    )
    return expected.gate(Finding("ranks-count", Severity.FAULT, message, advice))


def _crashed(ended: Ended, expected: Expected) -> Gate | None:
    """Return the ranks that srun reports as ended and that left no record: what the others say followed from that.

    A rank that ended by itself comes before one that was killed: where one ends, Slurm kills the rest of the step.
    """
    if ended.late or not ended.exit_code:
        return None
    found = sorted(_ends(ended, expected), key=lambda end: end.words.startswith(_SIGNALS))
    if not found:
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
    finding = Finding("rank-failed", Severity.FAULT, message, advice, nodes=(first.node,))
    return expected.gate(finding, first.ranks)


@dataclass(frozen=True)
class _TaskEnd:
    """A line of srun about ranks of one node that left no record; `phase` is where the first was, if it said so."""

    node: str
    ranks: tuple[int, ...]
    words: str
    phase: str


def _ends(ended: Ended, expected: Expected) -> Iterator[_TaskEnd]:
    """Yield the lines of srun about ranks that may have begun the failure, in its order."""
    heard = {rank_of(record) for record in finished(ended.records)}
    last = {rank_of(record): record for record in ended.records if "phase" in record}
    failed = min((number(record, "error_time") or math.inf for record in ended.records), default=math.inf)
    for node, tasks, words in _TASKS.findall("\n".join(ended.stderr)):
        # Without an error of another rank, nothing tells one that was sent the usual signal from the cause.
        if failed == math.inf and words.startswith(_SIGNALS[1]):
            continue
        ranks = []
        for rank in parse_number_list(tasks, limit=MOST_RANKS):
            time = number(last.get(rank, {}), "time")
            # One that lived on after the first error was ended because of it.
            lived = (time or 0.0) > failed or (time is None and failed < math.inf and words.startswith(_SIGNALS))
            if rank < expected.ranks and rank not in heard and not lived:
                ranks.append(rank)
        if ranks:
            yield _TaskEnd(node, tuple(ranks), words, text(last.get(ranks[0], {}), "phase"))


def _failed(ended: Ended, done: Sequence[Record], expected: Expected) -> Gate | None:
    """Return the first error of a rank, before what others report of their connections to it."""
    errors = [record for record in done if record.get("error")]
    if not errors:
        return None
    own = [record for record in errors if not _OF_OTHERS.search(str(record["error"]))]
    first = min(own or errors, key=lambda record: (number(record, "error_time") or 0.0, rank_of(record)))
    part = f" ({ended.step.srun.name})" if ended.step.srun.name else ""
    message = f"failed{part} while {first.get('error_at')}: {first['error']}"
    message += f"; so did {counted(len(errors) - 1, 'other rank')}" if len(errors) > 1 else ""
    return _rank_gate(Finding("rank-failed", Severity.FAULT, message, ended.read_stderr), first, expected, own)


def _lost(ended: Ended, done: Sequence[Record], expected: Expected) -> Gate | None:
    """Return the ranks that hang, fell silent or left nothing."""
    heard = {rank_of(record) for record in done}
    left = [record for record in ended.records if "phase" in record and rank_of(record) not in heard]
    if ended.late and left:
        return _hung(left, ended.step.limit_s, expected)
    if ended.late:
        return expected.gate(_too_late(ended))
    if ended.exit_code:
        words = f": {ended.words}" if ended.words else ""
        message = f"srun ended with exit code {ended.exit_code}{words}"
        found = start_failure(ended.stderr) or Finding("step-failed", Severity.FAULT, message, ended.read_stderr)
        return expected.gate(found)
    lost = [rank for rank in range(expected.ranks) if rank not in heard]
    if lost:
        nodes = tuple(dict.fromkeys(map(expected.node_of, lost)))
        return expected.gate(replace(_no_record(ended), nodes=nodes), lost)
    return None


def _hung(left: Sequence[Record], limit_s: int, expected: Expected) -> Gate:
    """Return the first of the ranks that were still at work when the time was over, or of those that fell silent."""
    last = max(number(record, "time") or 0.0 for record in left)
    silent = [record for record in left if is_silent(record, last)]
    first, *others = sorted(silent or left, key=rank_of)
    too = f"; {counted(len(others), 'other rank')} did too" if others else ""
    message, advice = f"hung while {first.get('phase')}, for {limit_s} s{too}", LOOK_AT_NODE
    if silent:
        message, advice = f"fell silent while {first.get('phase')}; not done after {limit_s} s{too}", LOOK_AT_SILENT
    return _rank_gate(Finding("step-hung", Severity.FAULT, message, advice), first, expected, silent)


def is_silent(record: Record, last: float) -> bool:
    """Return whether a rank was stopped, or its last report is too old; `last` is the newest time of all ranks.

    The record that is left in the end has no such time.
    """
    return record.get("froze") is True or last - (number(record, "time") or last) > NO_BEAT_S


def _rank_gate(finding: Finding, first: Record, expected: Expected, own: Sequence[Record]) -> Gate:
    """Return the gate line about the first of some ranks.

    It is about the node of those whose fault is their `own`, where these are of one node; else about all nodes, as the
    others of a step suffer with it.
    """
    rank, host = rank_of(first), str(first.get("host"))
    location = describe_ranks([rank], [host])
    gate = expected.gate(finding)
    gate = replace(gate, rank=rank, location=location, values={**gate.values, "subject": location})
    alone = {str(record.get("host")) for record in own} == {host} and {host} < {*expected.nodes}
    return replace(gate, nodes=(host,), asked=gate.nodes) if alone else gate
