"""`init`: the first text of a site description, from facts of nodes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from lumisite.cli.commands import Command
from lumisite.cli.facts import load_facts
from lumisite.cli.options import FILE_NAME, out_option
from lumisite.cli.output import print_note, write_text
from lumisite.errors import ResolveError
from lumisite.facts.capture import capture_undescribed
from lumisite.facts.init import describe_site
from lumisite.findings.finding import Finding, Severity
from lumisite.findings.writers import line
from lumisite.machine.host import DiskTree


@click.command(cls=Command)
@click.argument(
    "facts", metavar="[FACTS]...", nargs=-1, type=FILE_NAME, help="One of each kind of node (default: this node)."
)
@out_option
def command(facts: tuple[str, ...], out: Path | None) -> int:
    """Write a commented site description from what one node of each kind is.

    What no file of a node tells is named in a comment, `# not read`; `lumisite check` names it too until it is filled
    in.
    """
    if out is not None and os.path.isfile(out):  # noqa: PTH113 - as `open` takes it
        message, advice = "exists already and is not changed", "give another FILE"
        raise ResolveError(Finding("file-exists", Severity.FAULT, message, advice, str(out)))
    if facts:
        nodes = [load_facts(file) for file in facts]
    else:
        captured = capture_undescribed(DiskTree("/"))
        nodes = [captured.facts]
        for finding in captured.findings:
            print_note(line(finding))
    write_text(describe_site(nodes, time.strftime("%Y-%m-%d")), out)
    return 0
