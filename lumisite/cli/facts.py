"""What a node is, and what a maintenance changed: `facts` and `changes`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from lumisite.cli.parser import add_json_option, add_site_option, say

if TYPE_CHECKING:
    from lumisite.cli.parser import Commands
    from lumisite.facts.facts import Facts
    from lumisite.site.load import LoadedSite


def add_commands(commands: Commands) -> None:
    """Add `facts` and `changes`."""
    facts = commands.add_parser(
        "facts",
        help="capture what this node is, as one JSON file",
        description="Write down what a maintenance may change under the containers: system, kernel, glibc, Slurm, GPU "
        "driver, ROCm and CPE releases, libraries, interfaces, GPUs, CPUs, kernel parameters, default versions of "
        "modules, Slurm's files, image names and the deployed release. Only files are read; no program is run and no "
        "root is needed. What is not there is absent in the file; what may not be read is said, with the command that "
        "opens it. The same node gives the same bytes.",
    )
    add_site_option(facts)
    facts.add_argument("--root", default="/", metavar="DIR", help="the node's root, or a copy (default: /)")
    facts.add_argument("-o", "--output", metavar="FILE", help="write to FILE (default: standard output)")
    facts.set_defaults(call=run_facts)

    changes = commands.add_parser(
        "changes",
        help="what changed between two facts files, and what that touches",
        description="Compare two captures of a node, before and after a maintenance. Each change comes with the "
        "modules, image families, masks and entries of the site description that it touches; then a draft of the "
        "platform for the site description, and a text for users. Exit 0 when nothing changed, 1 when something did.",
    )
    changes.add_argument("before", metavar="BEFORE", help="the facts file from before")
    changes.add_argument("after", metavar="AFTER", help="the facts file from after")
    changes.add_argument(
        "--site",
        metavar="NAME|FILE",
        help="the site: the name of an embedded one, or a YAML file (default: the embedded one that the files name)",
    )
    only = changes.add_mutually_exclusive_group()
    only.add_argument("--draft", action="store_true", help="print only the draft for the site description")
    only.add_argument("--users", action="store_true", help="print only the text for users")
    add_json_option(only)  # type: ignore[arg-type]  # a group takes options as a parser does
    changes.set_defaults(call=run_changes)


def run_facts(arguments: argparse.Namespace) -> int:
    """Capture a node."""
    from pathlib import Path

    from lumisite.errors import ResolveError, ToolError
    from lumisite.facts.capture import capture
    from lumisite.facts.facts import format_facts
    from lumisite.machine.host import DiskTree
    from lumisite.site.load import load_site

    root = arguments.root
    if "\0" in root or not Path(root).is_dir():
        raise ResolveError(f"--root: {root!r} is no directory (the root of a node, or of a copy of one)")
    captured = capture(DiskTree(root), load_site(arguments.site).site)
    text = format_facts(captured.facts)
    for note in captured.notes:
        say(note)
    if arguments.output is None:
        sys.stdout.write(text)
        return 0
    try:
        Path(arguments.output).write_text(text, encoding="ascii")
    except (OSError, ValueError) as error:
        raise ToolError(f"cannot write {arguments.output!r}: {getattr(error, 'strerror', None) or error}") from None
    return 0


def run_changes(arguments: argparse.Namespace) -> int:
    """Compare two captures."""
    import json

    from lumisite.facts.changes import make_report, report_lines, to_json
    from lumisite.site.load import load_plans

    before, after = load_facts(arguments.before), load_facts(arguments.after)
    loaded = _site(arguments, before, after)
    report = make_report(before, after, loaded.site, load_plans(loaded))
    if before.host != after.host:
        say(f"{arguments.before} is of {before.host or 'an unnamed host'}, {arguments.after} of {after.host or 'one'}")
    if arguments.json:
        print(json.dumps(to_json(report), indent=2))
    elif arguments.draft or arguments.users:
        print("\n".join(report.draft if arguments.draft else report.users))
    else:
        print("\n".join(report_lines(report)))
    return 1 if report.changes else 0


def _site(arguments: argparse.Namespace, before: Facts, after: Facts) -> LoadedSite:
    """Load the site asked for, or the embedded one that both files name: a name in a file opens nothing else."""
    from lumisite.errors import ResolveError
    from lumisite.site.load import embedded_sites, load_site

    if before.site != after.site:
        raise ResolveError(
            f"{arguments.before} is of site {before.site!r}, {arguments.after} of {after.site!r}: "
            "nothing can be compared (two captures of one site would be right)"
        )
    if arguments.site is None and before.site not in embedded_sites():
        raise ResolveError(
            f"--site: {arguments.before} is of site {before.site!r}, which is not embedded; name its description"
        )
    return load_site(arguments.site or before.site)


def load_facts(name: str) -> Facts:
    """Read a facts file, and no more of it than a facts file can have."""
    from pathlib import Path

    from lumisite.facts.facts import LARGEST_FACTS_BYTES, parse_facts
    from lumisite.site.load import read_input

    content = read_input(Path(name), LARGEST_FACTS_BYTES, "`lumisite facts -o FILE` writes one")
    return parse_facts(content, name)
