"""The edge to Slurm: what nodes there are, to submit, poll and cancel jobs.

sacct is only run where squeue has forgotten a job, and may be missing: not every site has an accounting database
that answers (sacct(1), squeue(1), scontrol(1) of Slurm 22.05 to 26.05).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from lumisite.errors import ToolError
from lumisite.findings.finding import Finding, Severity
from lumisite.machine.run_program import run_program

#: Of the caller's environment only this reaches a job: what a shell has loaded must not change what is measured.
#: SBATCH_ACCOUNT says who pays. Other SBATCH_ variables would override the options of the job's script, sbatch(1).
KEPT = (
    *("HOME", "USER", "LOGNAME", "PATH", "SHELL", "LANG", "LC_ALL", "TZ"),
    *("XDG_RUNTIME_DIR", "SLURM_CONF", "SBATCH_ACCOUNT"),
)
KEPT_PREFIXES = ("MUNGE_",)
#: How long a command of Slurm's may take, in seconds; its own limit is MessageTimeout, by default 10.
PATIENCE_S = 60.0
#: States that a job does not leave, squeue(1).
ENDED = frozenset(
    {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"}
    | {"REVOKED", "TIMEOUT"}
)
#: Of these, states of a job that Slurm lost or ended of its own accord: they say nothing of the system.
LOST = frozenset({"BOOT_FAIL", "CANCELLED", "DEADLINE", "NODE_FAIL", "PREEMPTED", "REVOKED", ""})
#: What Slurm's commands say where one of its daemons does not answer (src/common/slurm_errno.c, 22.05 to 26.05).
SILENT = (
    "Unable to contact slurm controller|[Cc]ontroller (is )?in standby mode|Socket timed out|Rate limit exceeded|"
    "Communication (connection|shutdown) failure|Message (send|receive) failure|Zero Bytes were transmitted"
)
#: What they say of a job that they do not know, or no longer.
UNKNOWN = "Invalid job id"
#: What srun says where a node or a daemon does not answer (src/api/step_launch.c), for grep -E.
AWAY = (
    f"^(srun|slurmstepd[^:]*): error: .*({SILENT}|Unable to confirm allocation|Job credential (revoked|expired)|"
    "[Nn]ode failure|NODE FAILURE|Required node not available|Slurmd could not connect IO|Job/step already completing)"
)
#: The same, and what it says of a step that Slurm kept waiting.
LOST_STEP = f"^srun: (Step created for|Job .* step creation)|{AWAY}"
#: For how long a query is repeated while Slurm does not answer, and how often, in seconds.
RETRY_S, PAUSE_S = 60.0, 5.0
#: How srun names a node on which a step did not start.
_FAILED_NODE = re.compile(r" failed on node (\S+):")
#: States of a node in which it takes jobs now, and in which it will later, sinfo(1).
FREE = ("idle",)
BUSY = ("mixed", "allocated", "completing", "planned")
RESERVED = ("reserved", "maint")
IN_SERVICE = (*FREE, *BUSY, *RESERVED)


@dataclass(frozen=True)
class JobState:
    """Slurm's state of a job: empty when Slurm does not know the job, None as long as it was not asked."""

    state: str | None
    reason: str = ""

    @property
    def ended(self) -> bool:
        """Whether the job is over, or forgotten."""
        return self.state is not None and (self.state == "" or self.state in ENDED)


class RefusedError(ToolError):
    """Slurm did not take a job."""

    def __init__(self, text: str) -> None:
        todo = "correct the account, partition or options, or submit by hand what the job folder holds"
        super().__init__(Finding("sbatch-refused", Severity.FAULT, text, todo))


class SilentError(ToolError):
    """Slurm did not answer, and may have heard all the same."""

    def __init__(self, argv: Sequence[str], words: str) -> None:
        text = f"Slurm does not answer: {words}"
        super().__init__(Finding("slurm-silent", Severity.INFO, text, subject=" ".join(argv)))


def is_installed() -> bool:
    """Whether this machine has the commands of Slurm."""
    return shutil.which("sbatch") is not None


def nodes_of(partition: str) -> dict[str, str]:
    """Return the nodes of a partition by name, with their states, in small letters without marks such as `*`.

    Raises `ToolError`.
    """
    done = query(["sinfo", "--noheader", "--Node", f"--partition={partition}", "--format=%N|%T"])
    rows = [line.strip().partition("|") for line in done.splitlines() if line.strip()]
    return dict(sorted((name, re.sub(r"[^a-z_].*", "", state.lower())) for name, _, state in rows))


def reasons_of(nodes: Collection[str]) -> dict[str, str]:
    """Return why nodes are out of service, in Slurm's words; none where Slurm has none, or is silent."""
    if not nodes:
        return {}
    with suppress(ToolError):
        done = _run(["sinfo", "--noheader", "--Node", f"--nodes={','.join(nodes)}", "--format=%N|%E"])
        rows = [line.strip().partition("|") for line in done.stdout.splitlines()]
        return {name: reason for name, _, reason in rows if reason.lower() not in ("", "none", "(null)")}
    return {}


def describe_nodes(states: Mapping[str, str], reasons: Mapping[str, str]) -> tuple[str, ...]:
    """Return nodes with their states, and with the reason that Slurm has for a node."""
    return tuple(
        f"{name} {state}" + (f" ({reasons[name]})" if name in reasons else "") for name, state in states.items()
    )


def ignored_options() -> list[str]:
    """Return the caller's variables by which sbatch takes options, as NAME=VALUE; they do not reach jobs."""
    names = sorted(name for name in os.environ if name.startswith("SBATCH_") and name not in KEPT)
    return [f"{name}={os.environ[name]}" for name in names]


def expand(nodelist: str) -> list[str]:
    """Expand Slurm's notation: nid[000001-000003]. Raises `ToolError`."""
    return query(["scontrol", "show", "hostnames", nodelist]).split()


def nodes_of_reservation(name: str) -> list[str]:
    """List the nodes of a reservation. Raises `ToolError`."""
    text = query(["scontrol", "--oneliner", "show", "reservation", name])
    found = re.search(r"\bNodes=(\S+)", text)
    if not found or found[1] == "(null)":
        raise ToolError(f"{name}: the reservation has no nodes (see `scontrol show reservation {name}`)")
    return expand(found[1])


def submit(script: str) -> str:
    """Submit a script and return the job's id. Raises `RefusedError` with Slurm's own words, or `SilentError`."""
    done = _run(["sbatch", "--parsable", script])
    if done.returncode != 0:
        if re.search(SILENT, done.stderr):
            raise SilentError(done.args, _last_words(done))
        raise RefusedError(f"sbatch refused: {_last_words(done)}")
    identity = done.stdout.strip().rpartition("\n")[2].partition(";")[0]
    if not re.fullmatch(r"[0-9]{1,18}", identity):
        raise RefusedError(f"sbatch answered {identity[:200]!r} where a job id was expected")
    return identity


def find(name: str) -> str | None:
    """Return the id of a job of this user's by its name, if it waits or runs. Raises `ToolError`."""
    rows = query(["squeue", "--noheader", "--me", f"--name={name}", "--format=%i"]).split()
    return rows[-1] if rows else None


def poll(jobs: Sequence[str]) -> Mapping[str, JobState]:
    """Return the state of jobs; of those that squeue does not show any more, from sacct. Raises `SilentError`."""
    if not jobs:
        return {}
    done = _run(["squeue", "--noheader", f"--jobs={','.join(jobs)}", "--states=all", "--format=%i|%T|%r"])
    if done.returncode != 0 and UNKNOWN not in done.stderr:
        raise SilentError(done.args, _last_words(done))
    rows = [(*line.strip().split("|"), "", "")[:3] for line in done.stdout.splitlines()]
    found = {name: JobState(state, reason) for name, state, reason in rows}
    return {job: found.get(job) or _accounted(job) for job in jobs}


def cancel(jobs: Sequence[str]) -> None:
    """Cancel jobs; one that has ended already is no fault. Raises `ToolError` if Slurm does not answer."""
    if jobs:
        done = _run(["scancel", *jobs])
        if done.returncode != 0 and UNKNOWN not in done.stderr:
            raise _failed(done)


def _accounted(job: str) -> JobState:
    """Return the state of a job by the accounting, if there is one."""
    with suppress(ToolError):
        done = _run(["sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={job}", "--format=State"])
        if done.returncode == 0 and (words := done.stdout.split()):
            return JobState(words[0])
    return JobState("")


def query(argv: Sequence[str]) -> str:
    """Return what a command of Slurm's prints; repeats it while Slurm is silent. Raises `ToolError`."""
    until = time.monotonic() + RETRY_S
    while (done := _run(argv)).returncode != 0:
        if re.search(SILENT, done.stderr):
            if time.monotonic() < until:
                time.sleep(PAUSE_S)
                continue
            raise SilentError(done.args, _last_words(done))
        raise _failed(done)
    return done.stdout


def _run(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name in KEPT or name.startswith(KEPT_PREFIXES)}
    try:
        # Ctrl-C on the terminal is for lumisite, which has to write down the id of a job that was just submitted.
        done = run_program(argv, PATIENCE_S, kept)
        out, err = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
        return subprocess.CompletedProcess(done.args, done.returncode, out, err)
    except subprocess.TimeoutExpired:
        raise SilentError(argv, f"within {PATIENCE_S:g} s") from None


def _failed(done: subprocess.CompletedProcess[str]) -> ToolError:
    return ToolError(f"{' '.join(done.args)}: {_last_words(done)} (run the command by hand on this node)")


def failed_nodes(stderr: Sequence[str]) -> tuple[str, ...]:
    """Return the nodes on which a step did not start, by what srun wrote."""
    return tuple(name for line in stderr for name in _FAILED_NODE.findall(line))


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    """Return the first error, or line, that a command wrote, without its name in front."""
    lines = [line for line in (done.stderr + "\n" + done.stdout).splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line] or lines
    return re.sub(r"^\w+: (error: )?", "", errors[0].strip()) if errors else f"exit code {done.returncode}"
