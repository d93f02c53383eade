"""Why a job does not start or has ended, by what Slurm has of it and its nodes; and what Slurm's settings prevent.

A job that waits its turn is no fault. The reasons are those of Slurm (src/common/job_state_reason.c, 22.05 to 25.11).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress

from lumisite.errors import ToolError
from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding, Severity, Value, with_values
from lumisite.site.model import Site
from lumisite.validate.run import slurm
from lumisite.validate.run.job import LiveJob
from lumisite.validate.run.script import validation_of

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
    reason, names = word[0] if word else "", tuple(away)
    values: dict[str, Value] = {"id": job, "state": state.state, "reason": state.reason or "None"}
    code = "job-over-limit" if LIMITED.fullmatch(reason) else "job-waits"
    if away:
        code = "job-nodes-completing" if {*away.values()} == {"completing"} else "job-nodes-away"
        values |= {"away": names, "states": tuple(away.values())}
        values |= {"list": ",".join(names), "described": slurm.describe_nodes(away, slurm.reasons_of(away))}
    elif reason in NEVER or _BY_ITSELF.match(reason):
        code = "job-cannot-start"
    return with_values(make_finding(code, run, nodes=names), values)


def why_ended(job: LiveJob, state: slurm.JobState, step: str, lost: Sequence[str], words: str, resume: str) -> Finding:
    """Return why a job ended before it was done; `lost` are its nodes that are down, `words` the end of its output."""
    match state.state:
        case "NODE_FAIL":
            nodes = tuple(lost) or job.plan.nodes
            return make_finding("job-nodes-lost", nodes=nodes, lost=tuple(lost), step=step, resume=resume)
        case "TIMEOUT":
            return make_finding("job-time-limit", step=step)
        case "CANCELLED":
            return make_finding("job-cancelled", step=step, resume=resume)
        case "":
            return make_finding("job-forgotten", step=step, resume=resume)
    reason = f" ({state.reason})" if state.reason not in ("", "None") else ""
    # Slurm lost it, or it ended without a mark: the file system did not take it.
    lost_by_slurm = state.state in (*slurm.LOST, "COMPLETED")
    severity = Severity.DOUBT if lost_by_slurm else Severity.FAULT
    return make_finding("job-failed", severity=severity, state=f"{state.state}{reason}", step=step, words=words)


def nodes_away(states: Mapping[str, str], completing: Collection[str]) -> dict[str, str]:
    """Return the nodes that take no jobs, with their states; `completing` are those that were so some time ago."""
    return {
        name: state
        for name, state in states.items()
        if state.startswith(OUT_OF_SERVICE) or (state == "completing" and name in completing)
    }


def check_settings(site: Site) -> Iterator[Finding]:
    """Yield what Slurm's settings make impossible that the site counts on; nothing where they cannot be read."""
    settings: Mapping[str, str] = {}
    with suppress(ToolError):
        settings = slurm.settings()
    plugin = settings.get("TaskPlugin")
    kind = site.node_kinds[site.validated_kind(validation_of(site).partition)]
    if plugin is not None and "affinity" not in plugin and kind.l3:
        yield make_finding("slurm-no-affinity", "slurm.conf", plugin=plugin or "none")
    private = settings.get("NamespaceType") or settings.get("JobContainerType") or ""
    flags = settings.get("PrologFlags")
    # X11 brings Contain with it, slurm.conf(5).
    if "tmpfs" in private and flags is not None and not re.search(r"(?i)contain|x11", flags):
        yield make_finding("slurm-no-contain", "slurm.conf", flags=flags or "none", plugin=private)
