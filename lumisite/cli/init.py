"""`init`: the first text of a site description, from facts of nodes."""

from __future__ import annotations

import argparse
import os
import time

from lumisite.cli.arguments import add_output
from lumisite.cli.facts import load_facts
from lumisite.cli.output import print_note, write_text
from lumisite.errors import ResolveError
from lumisite.facts.capture import capture_undescribed
from lumisite.facts.init import describe_site
from lumisite.findings.finding import Finding, Severity
from lumisite.findings.writers import line
from lumisite.machine.host import DiskTree


def add_init(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `init`."""
    parser.description = (
        "Write a commented site description from what one node of each kind is. What no file of a node tells is named "
        "in a comment, `# not read`; `lumisite check` names it too until it is filled in."
    )
    parser.add_argument(
        "facts",
        metavar="FACTS",
        nargs="*",
        help="files of `lumisite facts`, one of each kind of node (default: this node)",
    )
    add_output(parser)


def run_init(arguments: argparse.Namespace) -> int:
    """Write the site description."""
    if arguments.output is not None and os.path.isfile(arguments.output):  # noqa: PTH113 - as `open` takes it
        message, advice = "exists already and is not changed", "give another FILE"
        raise ResolveError(Finding("file-exists", Severity.FAULT, message, advice, arguments.output))
    if arguments.facts:
        nodes = [load_facts(file) for file in arguments.facts]
    else:
        captured = capture_undescribed(DiskTree("/"))
        nodes = [captured.facts]
        for finding in captured.findings:
            print_note(line(finding))
    write_text(describe_site(nodes, time.strftime("%Y-%m-%d")), arguments.output)
    return 0
