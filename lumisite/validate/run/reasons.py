"""Why a job does not start or has ended, by what Slurm has of it and its nodes; and what Slurm's settings prevent.

A job that waits its turn is no fault. The reasons are those of Slurm (src/common/job_state_reason.c, 22.05 to 25.11).
What took a node out of service while a job ran is the reason that Slurm has for the node (`scontrol show node`): a
prolog that failed, "Kill task failed", a full spool directory ("batch job complete failure"), "Not responding".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress

from lumisite.errors import ToolError
from lumisite.findings.finding import Finding, Severity
from lumisite.site.model import Site
from lumisite.text import some
from lumisite.validate.run import slurm
from lumisite.validate.run.jobscript import validation_of

#: A job with one of these never starts as it is, whatever ends before it.
NEVER = (
    *("PartitionNodeLimit", "PartitionTimeLimit", "PartitionDown", "PartitionInactive", "PartitionConfig"),
    *("AccountNotAllowed", "InvalidAccount", "QOSNotAllowed", "InvalidQOS", "AccountingPolicy"),
    *("BadConstraints", "Constraints", "MaxMemPerLimit", "ReservationDeleted", "ReservationInvalid"),
    *("JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue", "DependencyNeverSatisfied", "JobLaunchFailure"),
)
#: One with these is within no limit by itself, however few others run; with the rest of `LIMITED` it waits for others.
_BY_ITSELF = re.compile(r"(Assoc|QOS)Max\w*(PerJob|PerNode)|QOSMin")
LIMITED = re.compile(r"(Assoc(Grp|Max|iation)|QOS)\w+|Max\w+PerAccount")
#: How states begin in which a node takes no jobs until somebody acts, sinfo(1); one that boots is not among them.
OUT_OF_SERVICE = ("down", "drain", "error", "fail", "inval", "unknown")
#: How often the nodes of a job that goes on waiting are looked at, in looks at Slurm.
NODES_EVERY = 15


def why_waits(run: str, job: str, state: slurm.JobState, away: Mapping[str, str]) -> Finding:
    """Return what keeps a job from starting; `away` are those of its nodes that take no jobs, with their states."""
    word = re.match(r"\w*", state.reason)
    reason, nodes = word[0] if word else "", tuple(away)
    waits = f"job {job} {state.state} ({state.reason or 'None'})"
    avoid = f"or stop this (Ctrl-C) and start again with `--avoid {','.join(nodes)}`"
    if away:
        waits += f": {some(slurm.describe_nodes(away, slurm.reasons_of(away)), between=', ')}"
        if {*away.values()} == {"completing"}:
            todo = (
                f"look on {some(nodes)} for processes of the job before that do not end and for an epilog that hangs, "
                f"{avoid}"
            )
            return Finding("job-nodes-completing", Severity.DOUBT, waits, todo, subject=run, nodes=nodes)
        command = f"scontrol update nodename={','.join(nodes)} state=resume"
        todo = f"return {some(nodes)} to service (`{command}`), {avoid}"
        return Finding("job-nodes-away", Severity.DOUBT, waits, todo, subject=run, nodes=nodes)
    if reason in NEVER or _BY_ITSELF.match(reason):
        todo = (
            f"see `scontrol show job {job}` and what the reason names (partition, account, QOS, limits of a job, a "
            "hold); stop this (Ctrl-C) and start again with what fits"
        )
        return Finding("job-cannot-start", Severity.FAULT, f"{waits}: it never starts as it is", todo, subject=run)
    if LIMITED.fullmatch(reason):
        todo = (
            "wait for other jobs to end, or stop this (Ctrl-C) and start again with another `--account` or with "
            "`--jobs 1`"
        )
        waits += ": a limit of the account, user or QOS is reached"
        return Finding("job-over-limit", Severity.INFO, waits, todo, subject=run)
    return Finding("job-waits", Severity.INFO, waits, subject=run)


def why_ended(state: slurm.JobState, step: str, away: Mapping[str, str], words: str, resume: str) -> Finding:
    """Return why a job ended before it was done.

    `away` are its nodes that take no jobs any more, with their states; `words` the end of the job's output; `resume`
    the command that runs it again.
    """
    during = f" during {step}" if step else ""
    ended = f"the job ended as {state.state or 'forgotten by Slurm'}{during}"
    if state.state == "TIMEOUT":
        todo = "raise validation.time_limit, or see what hung"
        return Finding("job-time-limit", Severity.FAULT, f"the job reached its time limit{during}", todo)
    if away:
        # Slurm itself ends the jobs of a node that it takes out of service, and cancels what it may not requeue.
        nodes = tuple(away)
        described = some(slurm.describe_nodes(away, slurm.reasons_of(away)), between=", ")
        todo = (
            f"see `scontrol show node {','.join(nodes)}` and slurmd's log there; repair, return to service "
            f"(`scontrol update nodename={','.join(nodes)} state=resume`) and run the job again with `{resume}`, or "
            f"start anew with `--avoid {','.join(nodes)}`"
        )
        return Finding("job-node-lost", Severity.DOUBT, f"{ended}; Slurm: {described}", todo, nodes=nodes)
    if state.state == "NODE_FAIL":
        todo = f"see `sinfo -R` and the log of slurmctld, then run the job again with `{resume}`"
        return Finding("job-node-lost", Severity.DOUBT, f"{ended}; its nodes are back in service", todo)
    if state.state == "CANCELLED":
        todo = f"ask who cancelled it, then run the job again with `{resume}`"
        return Finding("job-cancelled", Severity.DOUBT, f"the job was cancelled by someone else{during}", todo)
    if state.state == "":
        lost = f"Slurm no longer knows the job, and it did not report its end{during}"
        todo = f"read the log of slurmctld, then run the job again with `{resume}`"
        return Finding("job-forgotten", Severity.DOUBT, lost, todo)
    reason = f" ({state.reason})" if state.reason not in ("", "None") else ""
    # Slurm lost it, or it ended without a mark: the file system did not take it.
    lost_by_slurm = state.state in (*slurm.LOST, "COMPLETED")
    text = f"the job ended as {state.state}{reason}{during}" + (f": {words}" if words else "")
    severity = Severity.DOUBT if lost_by_slurm else Severity.FAULT
    return Finding("job-failed", severity, text, "read the job's output in its folder")


def why_lost(step: str, refused_by: Collection[str], away: Mapping[str, str], words: str, resume: str) -> Finding:
    """Return that a step was lost however often the job tried it.

    `refused_by` are the nodes on which srun says that it did not start, `away` those that Slurm has out of service.
    """
    nodes = tuple(dict.fromkeys([*refused_by, *away]))
    described = some(slurm.describe_nodes(away, slurm.reasons_of(away)), between=", ")
    text = f"Slurm did not start {step}" + (f" on {some(nodes, between=', ')}" if nodes else "")
    text += f": {words or 'srun wrote nothing'}" + (f"; Slurm: {described}" if away else "")
    todo = f"see `scontrol ping` and slurmd of the nodes, then run the job again with `{resume}`"
    if nodes:
        names = ",".join(nodes)
        todo = f"see `scontrol show node {names}` and slurmd's log there, then run the job again with `{resume}`"
    return Finding("job-step-lost", Severity.DOUBT, text, todo, nodes=nodes)


def nodes_away(states: Mapping[str, str], completing: Collection[str]) -> dict[str, str]:
    """Return the nodes that take no jobs, with their states; `completing` are those that were so some time ago."""
    return {
        name: state
        for name, state in states.items()
        if state.startswith(OUT_OF_SERVICE) or (state == "completing" and name in completing)
    }


def check_settings(site: Site, nodes: Collection[str]) -> Iterator[Finding]:
    """Yield what Slurm's settings make impossible that the site counts on; nothing where they cannot be read."""
    settings: Mapping[str, str] = {}
    with suppress(ToolError):
        settings = slurm.settings()
    plugin = settings.get("TaskPlugin")
    partition = validation_of(site).partition
    kind = site.node_kinds[site.validated_kind(partition)]
    if plugin is not None and "affinity" not in plugin and kind.l3:
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
    bindings: list[str] = []
    with suppress(ToolError):
        bindings = slurm.cpu_bindings(partition, nodes)
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
