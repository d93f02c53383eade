"""The one way in which a program is run for what it prints."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from lumisite.errors import ToolError
from lumisite.findings.finding import Finding, Severity


def run_program(argv: Sequence[str], limit_s: float, env: Mapping[str, str]) -> subprocess.CompletedProcess[bytes]:
    """Return how a program ended and what it printed; Ctrl-C on the terminal does not reach it.

    Raises `ToolError` where there is none, `TimeoutExpired` where it takes longer than `limit_s`; it is ended then.
    """
    try:
        return subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit_s,
            env=env,
            start_new_session=True,
            check=False,
        )
    except FileNotFoundError:
        advice = "load its module, or go to a node that has it"
        raise ToolError(Finding("program-not-found", Severity.FAULT, "not found on PATH", advice, argv[0])) from None
