"""A command line to a call; the only place that exits, and that prints errors."""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
from collections.abc import Sequence

import click

from lumisite.cli.commands import program, usage_message
from lumisite.cli.output import print_error
from lumisite.errors import LumisiteError, refused


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0 fine, 1 a difference or a failed verdict, 2 usage or site description, 3 a tool or the system refused,
    4 inconclusive, 5 the system is fine but some nodes are not.
    """
    try:
        return _run_command(sys.argv[1:] if argv is None else list(argv))
    except BrokenPipeError:
        return 0  # the reader (head, less) has left; what it did not read is no failure of ours
    except click.UsageError as error:
        message, code = usage_message(error), error.exit_code
    except LumisiteError as error:
        message, code = str(error), error.exit_code
        message = message if "\n" in message else f"lumisite: {message}"
    except OSError as error:
        # What opens a file names it; without a name it is what results are printed to.
        action = "go on" if error.filename else "write"
        error.filename = error.filename or "standard output"
        refusal = refused(action, error)
        message, code = f"lumisite: {refusal}", refusal.exit_code
    except (KeyboardInterrupt, RuntimeError) as error:
        # Up to Python 3.11 an interrupt while a module defines a class with `__set_name__` (each enum does)
        # comes out as the cause of a RuntimeError.
        if isinstance(error, RuntimeError) and not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        message, code = "lumisite: interrupted", 130
    print_error(message)
    return code


def _run_command(words: list[str]) -> int:
    try:
        with program.make_context("lumisite", words) as context:
            code: int = program.invoke(context)
    except click.exceptions.Exit as stop:  # help or the version was printed
        code = stop.exit_code
    sys.stdout.flush()
    return code


def run(*, interrupted: bool = True) -> None:
    """Run the command that was typed, and end the process; `interrupted`: Ctrl-C is to end the command."""
    if "_LUMISITE_COMPLETE" in os.environ:
        program(prog_name="lumisite")  # prints completions, or the shell's script for them, and exits
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # who started this has closed it
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        elif isinstance(stream, io.TextIOWrapper):
            # A site's non-ASCII text must not end in a traceback on a terminal that cannot show it.
            stream.reconfigure(errors="backslashreplace")
    try:
        if interrupted:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = main()
    except KeyboardInterrupt:
        code = 130
    if interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # what is left to do has nobody who would catch it
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # the end of Python would fail on what waits once more, with 120
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    gc.freeze()  # the end looks for cycles once more, through all that was made
    sys.exit(code)
