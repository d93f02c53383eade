"""Running the machine's tools: one way to call them, one way to say that they refused."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lumisite.errors import ToolError


@dataclass(frozen=True)
class Result:
    """What a command left behind: its exit code (negative: the signal that ended it) and what it wrote."""

    argv: tuple[str, ...]
    code: int
    stdout: str
    stderr: str

    def check(self) -> Result:
        """Give the result back if the command succeeded, else raise `ToolError` with its last words."""
        if self.code != 0:
            words = (self.stderr.strip() or self.stdout.strip()).splitlines()[-8:]
            command = shlex.join(self.argv)
            command = command if len(command) < 160 else f"{command[:157]}..."
            raise ToolError(f"{command}: exit code {self.code} (should be 0): " + " | ".join(words))
        return self


def run_tool(
    argv: Sequence[str], *, cwd: Path | None = None, stdin: str = "", timeout_s: float | None = None
) -> Result:
    """Run a tool of this machine until it and what it started have closed their output.

    Raises `ToolError` if it is missing or not done in time.
    """
    if shutil.which(argv[0]) is None:
        raise ToolError(f"{argv[0]} is not installed here (.ci/packages installs what the twin needs)")
    try:
        done = subprocess.run(
            list(argv),
            cwd=cwd,
            input=stdin,
            timeout=timeout_s,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise ToolError(f"{shlex.join(argv)}: not done after {timeout_s:g} s") from late
    return Result(tuple(argv), done.returncode, done.stdout, done.stderr)


def run_or_refuse(argv: Sequence[str], *, cwd: Path | None = None, stdin: str = "") -> str:
    """Run a tool that must succeed and give its stdout. Raises `ToolError` with its last words otherwise."""
    return run_tool(argv, cwd=cwd, stdin=stdin).check().stdout
