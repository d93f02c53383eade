"""Tools of the machine that tests run; where one is missing the test is skipped, which `--no-skips` makes a failure."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest


def tool(*names: str) -> str:
    """Give the path of a tool by the first of its names that is installed, or skip the test."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    for name in names:
        if found := shutil.which(name, path=path):
            return found
    pytest.skip(f"{names[0]} is not installed (.ci/packages installs it)")


def traced(calls: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> list[str]:
    """Run a command that must succeed, and give those system calls of it that are asked for, one a line."""
    strace = [tool("strace"), "-f", "-o", str(log), "-e", f"trace={calls}"]
    done = subprocess.run([*strace, *command], env=environment, stdin=subprocess.DEVNULL, capture_output=True)
    lines = log.read_text().splitlines() if log.exists() else []
    if not any(" execve(" in line for line in lines):
        pytest.skip(f"strace may not trace here: {done.stderr.decode(errors='replace')[:200]}")
    assert done.returncode == 0, done.stderr
    return lines
