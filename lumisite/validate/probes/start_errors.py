"""Lines of Slurm and of the container runtime that say why a task or a container did not start, with what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable

from lumisite.findings.finding import Finding, Severity
from lumisite.text import printable

#: Of a line that is quoted, so many letters.
LINE_LETTERS = 200

#: A pattern of a line, what it means, and what to do. Sources: Slurm src/common/{slurm_errno,forward}.c and
#: src/slurmd/slurmstepd/task.c; sylabs/singularity and apptainer/apptainer cmd/starter/c/starter.c and
#: cmd/internal/cli/singularity.go; libfuse lib/mount.c; munge src/libmunge/strerror.c; glibc elf/dl-load.c.
START_ERRORS = (
    (
        "unknown userid|Couldn't determine user account information|Invalid user id|User not found on host",
        "the node does not know the user",
        "see `getent passwd USER` on the node (sssd, nslcd, /etc/nsswitch.conf)",
    ),
    (
        "t have setuid bit|No setuid installation|create user namespace|user namespaces? (requires|disabled|exceeded)",
        "the container runtime has neither a setuid starter nor user namespaces",
        "see `ls -l` of starter-suid (owner root, mode 4755, no nosuid mount), or `sysctl user.max_user_namespaces`",
    ),
    (
        "fuse: device not found|/dev/fuse: ([Nn]o such file|[Pp]ermission denied)",
        "the container runtime cannot use /dev/fuse",
        "see `ls -l /dev/fuse` and `modprobe fuse` on the node",
    ),
    (
        r"check slurm\.conf|can't find address for host",
        "a node has another slurm.conf than the controller",
        "compare slurm.conf (`scontrol show config | grep HASH_VAL` on the node), copy it, `scontrol reconfigure`",
    ),
    (
        "Invalid job credential|Protocol authentication error|(Rewound|Expired) credential",
        "the node does not accept the job's credential",
        "see `munge -n | ssh NODE unmunge`: another munge.key, or another clock",
    ),
    ("Job prolog failed", "Slurm's Prolog failed", "see slurmd's log on the node, then the Prolog of slurm.conf"),
    (
        "TaskProlog failed status",
        "a TaskProlog failed",
        "run it by hand in a job (`scontrol show config | grep TaskProlog`, and SLURM_TASK_PROLOG)",
    ),
    (
        r"execve\(\): .*(No such file|Permission denied)|command not found",
        "a program is not there",
        "see PATH in the job and the program on the node",
    ),
    (
        "error while loading shared libraries",
        "a shared library is not there",
        "see `ldd` of the program on the node, or `lumisite binds IMAGE` where it runs in the container",
    ),
    (
        "(FATAL|ERROR).*[Nn]o space left on device",
        "a file system is full",
        "see `df -h` and `df -i` on the node",
    ),
)


def start_failure(lines: Iterable[str], subject: str = "") -> Finding | None:
    """Return why something did not start, by the first of these lines that says so; None where none does."""
    for line in lines:
        for pattern, meaning, advice in START_ERRORS:
            if re.search(pattern, line):
                text = f"{meaning}: {printable(line[:LINE_LETTERS])}"
                return Finding("start-failed", Severity.FAULT, text, advice, subject=subject)
    return None
