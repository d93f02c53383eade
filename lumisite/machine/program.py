"""The one way in which a program is run for what it prints: no longer than a time, and no more than a size of it."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO

from lumisite.errors import ToolError
from lumisite.findings.finding import Finding, Severity

#: More than Slurm says of 20,000 nodes.
MOST_BYTES = 32 * 1024 * 1024
_BLOCK_BYTES = 1 << 16


def run_program(
    argv: Sequence[str], limit_s: float, env: Mapping[str, str], *, new_session: bool = False
) -> subprocess.CompletedProcess[bytes]:
    """Return how a program ended and what it printed.

    Raises `ToolError` where there is none or where it prints more than `MOST_BYTES`, `TimeoutExpired` where it takes
    longer than `limit_s`; it is ended then.
    """
    try:
        ended, out, err = _ended(argv, limit_s, env, new_session)
    except FileNotFoundError:
        advice = "load its module, or go to a node that has it"
        raise ToolError(Finding("program-not-found", Severity.FAULT, "not found on PATH", advice, argv[0])) from None
    if max(len(out), len(err)) > MOST_BYTES:
        message = f"prints more than {MOST_BYTES} bytes"
        advice = "run the command by hand, and see what it prints"
        raise ToolError(Finding("system-refused", Severity.FAULT, message, advice, " ".join(argv)))
    return subprocess.CompletedProcess(list(argv), ended, bytes(out), bytes(err))


def _ended(
    argv: Sequence[str], limit_s: float, env: Mapping[str, str], new_session: bool
) -> tuple[int, bytearray, bytearray]:
    until = time.monotonic() + limit_s
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        list(argv),
        bufsize=0,
        stdin=subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        env=env,
        start_new_session=new_session,
    )
    out, err = bytearray(), bytearray()
    with process:
        try:
            readers = [
                threading.Thread(target=_read, args=(process, stream, part), daemon=True)
                for stream, part in ((process.stdout, out), (process.stderr, err))
            ]
            for reader in readers:
                reader.start()
            for reader in readers:
                reader.join(max(0.0, until - time.monotonic()))
            process.wait(max(0.0, until - time.monotonic()))
        except BaseException:
            process.kill()
            raise
    return process.returncode, out, err


def _read(process: subprocess.Popen[bytes], stream: IO[bytes], part: bytearray) -> None:
    """Keep what a program prints; one that prints too much is ended."""
    with suppress(OSError, ValueError):  # closed, where somebody waits no longer
        while block := stream.read(_BLOCK_BYTES):
            part += block
            if len(part) > MOST_BYTES:
                process.kill()
                return
