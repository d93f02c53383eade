"""Why a job does not start or has ended, by what Slurm has of it and its nodes.

A job that waits its turn is no fault. What took a node out of service while a job ran is the reason that Slurm has for
the node (`scontrol show node`): a prolog that failed, "Kill task failed", a full spool directory, "Not responding".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from lumisite.findings.finding import Finding, Severity
from lumisite.text import listed, some
from lumisite.validate.run import slurm

#: How states begin in which a node takes no jobs until somebody acts, sinfo(1); one that boots is not among them.
OUT_OF_SERVICE = ("down", "drain", "error", "fail", "inval", "unknown")


def nodes_away(states: Mapping[str, str]) -> dict[str, str]:
    """Return the nodes that take no jobs until somebody acts, with their states."""
    return {name: state for name, state in states.items() if state.startswith(OUT_OF_SERVICE)}


def why_waits(run: str, job: str, state: slurm.JobState, away: Mapping[str, str]) -> Finding:
    """Return what keeps a job from starting; `away` are those of its nodes that take no jobs, with their states."""
    waits = f"job {job} {state.state} ({state.reason or 'None'})"
    if not away:
        todo = f"if it does not wait for others, see `scontrol show job {job}`; Ctrl-C stops this"
        return Finding("job-waits", Severity.INFO, waits, todo, subject=run)
    nodes = tuple(away)
    todo = f"{_return_to_service(nodes)}, or stop this (Ctrl-C) and start again with `--avoid {','.join(nodes)}`"
    return Finding("job-nodes-away", Severity.DOUBT, f"{waits}: {_described(away)}", todo, subject=run, nodes=nodes)


def why_ended(state: slurm.JobState, step: str, away: Mapping[str, str], words: str, resume: str) -> Finding:
    """Return why a job ended before it was done.

    `away` are its nodes that take no jobs any more, with their states; `words` the end of the job's output; `resume`
    the command that runs it again.
    """
    during, again = f" during {step}" if step else "", f"run the job again with `{resume}`"
    if state.state == "TIMEOUT":
        text, todo = f"the job reached its time limit{during}", "raise validation.time_limit, or see what hung"
        return Finding("job-time-limit", Severity.FAULT, text, todo)
    # Slurm itself ends the jobs of a node that it takes out of service, and cancels what it may not requeue.
    ended = f"the job ended as {state.state or 'forgotten by Slurm'}{during}; "
    if away:
        todo = f"{_return_to_service(tuple(away))} and {again}, or start anew with `--avoid {','.join(away)}`"
        text = f"{ended}Slurm: {_described(away)}"
        return Finding("job-node-lost", Severity.DOUBT, text, todo, nodes=tuple(away))
    if state.state == "NODE_FAIL":
        text, todo = f"{ended}its nodes are back in service", f"see `sinfo -R`, then {again}"
        return Finding("job-node-lost", Severity.DOUBT, text, todo)
    if state.state == "CANCELLED":
        text, todo = f"the job was cancelled by someone else{during}", f"ask who cancelled it, then {again}"
        return Finding("job-failed", Severity.DOUBT, text, todo)
    if not state.state:
        text = f"Slurm no longer knows the job, and it did not report its end{during}"
        return Finding("job-failed", Severity.DOUBT, text, f"read the log of slurmctld, then {again}")
    reason = f" ({state.reason})" if state.reason not in ("", "None") else ""
    text = f"the job ended as {state.state}{reason}{during}" + (f": {words}" if words else "")
    # Slurm lost it, or it ended without a mark: the file system did not take it.
    severity = Severity.DOUBT if state.state in (*slurm.LOST, "COMPLETED") else Severity.FAULT
    return Finding("job-failed", severity, text, "read the job's output in its folder")


def why_lost(step: str, refused_by: Collection[str], away: Mapping[str, str], words: str, resume: str) -> Finding:
    """Return that a step was lost however often the job tried it.

    `refused_by` are the nodes on which srun says that it did not start, `away` those that Slurm has out of service.
    """
    nodes = tuple(dict.fromkeys([*refused_by, *away]))
    text = f"Slurm did not start {step}" + (f" on {some(nodes, between=', ')}" if nodes else "")
    text += f": {words or 'srun wrote nothing'}" + (f"; Slurm: {_described(away)}" if away else "")
    look = f"`scontrol show node {','.join(nodes)}`" if nodes else "`scontrol ping`"
    todo = f"see {look} and slurmd's log on the nodes, then run the job again with `{resume}`"
    return Finding("job-step-lost", Severity.DOUBT, text, todo, nodes=nodes)


def _return_to_service(nodes: Collection[str]) -> str:
    names = ",".join(nodes)
    return (
        f"see `scontrol show node {names}`, repair, return to service (`scontrol update nodename={names} state=resume`)"
    )


def _described(away: Mapping[str, str]) -> str:
    return listed(slurm.describe_nodes(away, slurm.reasons_of(away)))
