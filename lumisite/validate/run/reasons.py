"""Why a job does not start or has ended, by what Slurm has of it and its nodes; and what Slurm's settings prevent.

A job that waits its turn is no fault. What took a node out of service while a job ran is the reason that Slurm has for
the node (`scontrol show node`): a prolog that failed, "Kill task failed", a full spool directory, "Not responding".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress

from lumisite.errors import ToolError
from lumisite.findings.finding import Finding, Severity
from lumisite.site.model import Site
from lumisite.text import listed, some
from lumisite.validate.run import slurm
from lumisite.validate.run.jobscript import validation_of

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
    todo = (
        f"return {some(nodes)} to service (`scontrol update nodename={','.join(nodes)} state=resume`), or stop this "
        f"(Ctrl-C) and start again with `--avoid {','.join(nodes)}`"
    )
    return Finding("job-nodes-away", Severity.DOUBT, f"{waits}: {_described(away)}", todo, subject=run, nodes=nodes)


def why_ended(state: slurm.JobState, step: str, away: Mapping[str, str], words: str, resume: str) -> Finding:
    """Return why a job ended before it was done.

    `away` are its nodes that take no jobs any more, with their states; `words` the end of the job's output; `resume`
    the command that runs it again.
    """
    during = f" during {step}" if step else ""
    if state.state == "TIMEOUT":
        todo = "raise validation.time_limit, or see what hung"
        return Finding("job-time-limit", Severity.FAULT, f"the job reached its time limit{during}", todo)
    if away or state.state == "NODE_FAIL":
        # Slurm itself ends the jobs of a node that it takes out of service, and cancels what it may not requeue.
        text = f"the job ended as {state.state or 'forgotten by Slurm'}{during}; "
        text += f"Slurm: {_described(away)}" if away else "its nodes are back in service"
        names = ",".join(away)
        todo = f"see `sinfo -R` and the log of slurmctld, then run the job again with `{resume}`"
        if away:
            todo = (
                f"see `scontrol show node {names}` and slurmd's log there; repair, return to service (`scontrol update "
                f"nodename={names} state=resume`) and run the job again with `{resume}`, or start anew with "
                f"`--avoid {names}`"
            )
        return Finding("job-node-lost", Severity.DOUBT, text, todo, nodes=tuple(away))
    if state.state == "CANCELLED":
        todo = f"ask who cancelled it, then run the job again with `{resume}`"
        return Finding("job-cancelled", Severity.DOUBT, f"the job was cancelled by someone else{during}", todo)
    if state.state == "":
        lost = f"Slurm no longer knows the job, and it did not report its end{during}"
        todo = f"read the log of slurmctld, then run the job again with `{resume}`"
        return Finding("job-forgotten", Severity.DOUBT, lost, todo)
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


def _described(away: Mapping[str, str]) -> str:
    return listed(slurm.describe_nodes(away, slurm.reasons_of(away)))


def check_settings(site: Site, nodes: Collection[str]) -> Iterator[Finding]:
    """Yield what Slurm's settings make impossible that the site counts on; nothing where they cannot be read."""
    settings: Mapping[str, str] = {}
    bindings: list[str] = []
    partition = validation_of(site).partition
    with suppress(ToolError):
        settings = slurm.settings()
        bindings = slurm.cpu_bindings(partition, nodes)
    plugin = settings.get("TaskPlugin")
    if plugin is not None and "affinity" not in plugin and site.node_kinds[site.validated_kind(partition)].l3:
        yield Finding(
            "slurm-setting",
            Severity.FAULT,
            f"TaskPlugin is {plugin or 'none'}, without task/affinity: Slurm applies no CPU mask (`--cpu-bind`)",
            "set TaskPlugin=task/affinity,task/cgroup in slurm.conf and restart slurmd, then "
            "`scontrol show config | grep TaskPlugin`",
            subject="slurm.conf",
        )
    private = settings.get("NamespaceType") or settings.get("JobContainerType") or ""
    flags = settings.get("PrologFlags")
    # X11 brings Contain with it, slurm.conf(5).
    if "tmpfs" in private and flags is not None and not re.search(r"(?i)contain|x11", flags):
        yield Finding(
            "slurm-setting",
            Severity.FAULT,
            f"PrologFlags ({flags or 'none'}) lacks Contain, which {private} needs for the private folders of a job",
            "add Contain to PrologFlags in slurm.conf and restart slurmd, then "
            "`scontrol show config | grep PrologFlags`",
            subject="slurm.conf",
        )
    # What spank_helpers/masks.sh takes for the choice of a user.
    if chosen := [value for value in bindings if re.search("ldom|rank", value)]:
        yield Finding(
            "slurm-setting",
            Severity.INFO,
            f"CpuBind={','.join(chosen)} of {partition} or its nodes binds tasks as if a user had chosen it, and the "
            "helper sets no CPU masks",
            "remove CpuBind from slurm.conf, or set it to none",
            subject="slurm.conf",
        )
