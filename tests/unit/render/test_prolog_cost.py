"""How little the prolog does: processes that it starts, and files that it looks at."""

from __future__ import annotations

import os
import re
from pathlib import Path

from lumisite.site.load import load_site
from tests.support.prologs import STEP, Script
from tests.support.tools import traced


def system_calls(prolog: Script, tmp_path: Path) -> list[str]:
    """The system calls of a run that concern files and processes."""
    step = {**STEP, "SLURM_TASK_PID": str(os.getpid())}
    return traced("%process,%file", [*prolog.command, str(prolog.path)], step, tmp_path / "strace.log")


def forks(calls: list[str]) -> int:
    return sum(bool(re.match(r"\d+ +(v?fork|clone3?)\(", call)) for call in calls)


def test_it_forks_twice_for_directories_on_a_node_and_once_for_the_mask(prolog: Script, tmp_path: Path) -> None:
    assert forks(system_calls(prolog, tmp_path)) == 3
    assert forks(system_calls(prolog, tmp_path)) == 1


#: Where a node keeps its own system: no shared file system is mounted there.
LOCAL = (
    "/lib",
    "/usr/lib",
    "/usr/bin/",
    "/bin/",
    "/usr/sbin/",
    "/sbin/",
    "/etc/",
    "/proc/",
    "/dev/",
    "/sys/",
    "/selinux",
)


def test_it_looks_at_nothing_on_a_shared_file_system_but_itself_and_the_policy(prolog: Script, tmp_path: Path) -> None:
    """The test site's /usr stands for a shared one at the root, which is only seen in the list of `/`."""
    system_calls(prolog, tmp_path)  # makes the directories
    calls = [call for call in system_calls(prolog, tmp_path) if "execve" not in call]
    named = {name for call in calls for name in re.findall(r'"(/[^"]*)"', call)}
    assert {name for name in named if name.startswith(f"{prolog.path.parent}/")} == {str(prolog.path)}
    assert sum(str(prolog.path) in call for call in calls if re.search(r"\bopen(at)?\(", call)) == 1
    assert "/usr" not in named
    others = {name for name in named if not name.startswith((*LOCAL, str(tmp_path)))}
    assert {name for name in others if not str(tmp_path).startswith(name)} == {f"{load_site('lumi').site.root}/policy"}
