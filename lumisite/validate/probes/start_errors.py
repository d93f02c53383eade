"""Lines of Slurm and of the container runtime that say why a task or a container did not start, with what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from re import Pattern

from lumisite.findings.finding import Finding, Severity
from lumisite.text import printable

#: Of a line that is quoted, so many letters.
LINE_LETTERS = 200


@dataclass(frozen=True)
class StartError:
    """A kind of line, what it means, and what to do."""

    line: Pattern[str]
    meaning: str
    advice: str


#: Each with the file that prints it.
START_ERRORS = (
    # sylabs/singularity cmd/internal/cli/singularity.go; Slurm src/common/slurm_errno.c
    StartError(
        re.compile(
            r"unknown userid|Couldn't determine user account information|Invalid user id|User not found on host"
        ),
        "the node does not know the user",
        "see `getent passwd USER` on the node (sssd, nslcd, /etc/nsswitch.conf)",
    ),
    # sylabs/singularity and apptainer/apptainer cmd/starter/c/starter.c
    StartError(
        re.compile(
            r"starter-suid doesn't have setuid bit set|No setuid installation found|create user namespace|"
            r"user namespace requires to set|user namespace disabled|user namespaces exceeded"
        ),
        "the container runtime has neither a setuid starter nor user namespaces",
        "see `ls -l` of starter-suid below the runtime's libexec (owner root, mode 4755, no nosuid mount), or "
        "`sysctl user.max_user_namespaces`",
    ),
    # libfuse lib/mount.c
    StartError(
        re.compile(
            r"fuse: device not found|/dev/fuse: (No such file|Permission denied|no such file|permission denied)"
        ),
        "the container runtime cannot use /dev/fuse",
        "see `ls -l /dev/fuse` and `modprobe fuse` on the node",
    ),
    # Slurm src/common/slurm_errno.c, src/common/forward.c
    StartError(
        re.compile(r"check slurm\.conf|can't find address for host"),
        "a node has another slurm.conf than the controller",
        "compare slurm.conf (`scontrol show config | grep HASH_VAL` on the node), copy it, `scontrol reconfigure`",
    ),
    # Slurm src/common/slurm_errno.c; munge src/libmunge/strerror.c
    StartError(
        re.compile(r"Invalid job credential|Protocol authentication error|(Rewound|Expired) credential"),
        "the node does not accept the job's credential",
        "see `munge -n | ssh NODE unmunge`: another munge.key, or another clock",
    ),
    # Slurm src/common/slurm_errno.c
    StartError(
        re.compile(r"Job prolog failed"),
        "Slurm's Prolog failed",
        "see slurmd's log on the node, then the Prolog of slurm.conf",
    ),
    # Slurm src/slurmd/slurmstepd/task.c
    StartError(
        re.compile(r"TaskProlog failed status"),
        "a TaskProlog failed",
        "run it by hand in a job (`scontrol show config | grep TaskProlog`, and SLURM_TASK_PROLOG)",
    ),
    # Slurm src/slurmd/slurmstepd/task.c
    StartError(
        re.compile(r"execve\(\): .*(No such file|Permission denied)|command not found"),
        "a program is not there",
        "see PATH in the job and the program on the node",
    ),
    # glibc elf/dl-load.c
    StartError(
        re.compile(r"error while loading shared libraries"),
        "a shared library is not there",
        "see `ldd` of the program on the node, or `lumisite binds IMAGE` where it runs in the container",
    ),
    # errno(3), ENOSPC
    StartError(
        re.compile(r"(FATAL|ERROR).*[Nn]o space left on device"),
        "a file system is full",
        "see `df -h` and `df -i` on the node",
    ),
)


def start_failure(lines: Iterable[str], subject: str = "") -> Finding | None:
    """Return why something did not start, by the first of these lines that says so; None where none does."""
    for line in lines:
        for known in START_ERRORS:
            if known.line.search(line):
                text = f"{known.meaning}: {printable(line[:LINE_LETTERS])}"
                return Finding("start-failed", Severity.FAULT, text, known.advice, subject=subject)
    return None
