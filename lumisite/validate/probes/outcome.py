"""What came of the ranks of a step: findings about nodes and ranks, equal ones together, as the lines of gates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lumisite.findings.finding import Finding, Severity
from lumisite.validate.lines import Gate
from lumisite.validate.probes.probe import Ended, Expected, Line, Record
from lumisite.validate.probes.records import finished, rank_of, text
from lumisite.validate.probes.start_errors import start_failure

WRONG_RESULTS = (
    "wrong results make training wrong without an error: run the probe again, then drain the node that differs"
)
#: The end of what to do about a node that jobs should not get until it is mended.
DRAIN = "; drain the node until then"


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
        return expected.gate(too_late(late))
    dead = [ended for ended in steps if ended.exit_code]
    if dead and not any(finished(ended.records) for ended in steps):
        return expected.gate(start_failure(dead[0].stderr, dead[0].step.folder) or not_run(dead[0]))
    return None


def too_late(ended: Ended) -> Finding:
    """Return that the time of a step was over."""
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
    found = clean_environment(records) or start_failure(ended.stderr, step.srun.name) or no_record(ended)
    if step.srun.each == "node":
        nodes = {text(record, "host") for record in records}
        return [Located(found, node) for node in step.nodes if node not in nodes]
    ranks = {rank_of(record) for record in records}
    return [Located(found, step.node_of(rank), rank) for rank in range(step.ranks) if rank not in ranks]


def no_record(ended: Ended) -> Finding:
    """Return that a rank or node left nothing, with the words of the step's stderr."""
    message = f"no record is left: {ended.words or 'it did not start, or was ended'}"
    return Finding("record-missing", Severity.FAULT, message, ended.read_stderr, subject=ended.step.srun.name)


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
