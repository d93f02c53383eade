"""Arguments to calls; the only place that prints or exits."""

from __future__ import annotations

import gc
import io
import os
import re
import signal
import sys
from collections.abc import Sequence

from lumisite.cli.commands import parse, runner
from lumisite.cli.terminal import STANDARD_OUTPUT, let_go, plain_output
from lumisite.errors import LumisiteError, refused


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0 fine, 1 a difference or a failed verdict, 2 usage or site description, 3 a tool or the system refused,
    4 inconclusive, 5 the system is fine but some nodes are not.
    """
    with plain_output() as first:
        try:
            return _run_command(argv, first)
        except BrokenPipeError:
            return 0  # the reader (head, less) has left; what it did not read is no failure of ours
        except KeyboardInterrupt:
            return _interrupted()
        except OSError as error:
            first.clear()
            refusal = refused("write" if error.filename == STANDARD_OUTPUT else "go on", error)
            print(f"lumisite: {refusal}", file=sys.stderr)
            return refusal.exit_code
        except RuntimeError as error:
            # Up to Python 3.11 an interrupt while a module defines a class with `__set_name__` (each enum does)
            # comes out as the cause of a RuntimeError.
            if not isinstance(error.__cause__, KeyboardInterrupt):
                raise
            return _interrupted()


def _interrupted() -> int:
    from lumisite.cli.progress import line_of_stderr

    line_of_stderr().end()
    print("lumisite: interrupted", file=sys.stderr)
    return 130


def _run_command(argv: Sequence[str] | None, first: list[str]) -> int:
    words = sys.argv[1:] if argv is None else list(argv)
    if not re.fullmatch(r"[0-9]{2,4}", os.environ.get("COLUMNS", "80"), re.ASCII):
        del os.environ["COLUMNS"]  # argparse takes any number of digits, and fails far from here
    try:
        arguments = parse(words)
    except SystemExit as stop:  # argparse has printed help, the version or a usage error
        sys.stdout.flush()
        return stop.code if isinstance(stop.code, int) else 2
    try:
        from lumisite.cli.arguments import choose_site

        if arguments.verbose:
            from lumisite.cli.verbose import AuditPrinter

            sys.addaudithook(AuditPrinter())
        sys.stderr.quiet = arguments.quiet  # type: ignore[union-attr]  # `plain_output` has replaced the stream
        chosen = list(choose_site(arguments))
        first += () if arguments.quiet else chosen
        code = runner(arguments.command)(arguments)
        sys.stdout.flush()
        sys.stderr.write("")  # prints `first`, where nothing else was printed
    except LumisiteError as error:
        first.clear()  # the message names what it is about
        sys.stdout.flush()
        text = str(error)
        print(f"lumisite: {text}" if "\n" not in text else text, file=sys.stderr)
        return error.exit_code
    return code


def run(*, interrupted: bool = True) -> None:
    """Run the command that was typed, and end the process; `interrupted`: Ctrl-C is to end the command."""
    # A command lives for a fraction of a second and keeps nearly all that it makes: looking for cycles finds none, and
    # costs `binds` and `render` a fifth of their time (`python -m tests.bench closure render`).
    gc.set_threshold(100_000)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
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
        let_go(stream)
    gc.freeze()  # the end looks for cycles once more, through all that was made
    sys.exit(code)
