"""What a node is, and what a maintenance changed: `facts` and `changes`."""

from __future__ import annotations

import argparse
from pathlib import Path

from lumisite.cli.chosen import own_site
from lumisite.cli.parser import check_root, say, tell, write_text
from lumisite.errors import ResolveError
from lumisite.facts.capture import capture, capture_undescribed
from lumisite.facts.facts import LARGEST_FACTS_BYTES, Facts, format_facts, parse_facts
from lumisite.facts.tell import make_report, report_lines, to_json
from lumisite.machine.host import DiskTree
from lumisite.site.load import LoadedSite, load_plans, load_site, read_input


def run(arguments: argparse.Namespace) -> int:
    """Capture a node."""
    root = arguments.host_root
    check_root(root)
    if arguments.site:
        captured = capture(DiskTree(root), load_site(arguments.site).site)
    else:
        say("no site is named (--site): these are the hardware, drivers and releases alone that `init --from` takes")
        captured = capture_undescribed(DiskTree(root))
    for note in captured.notes:
        say(note)
    write_text(format_facts(captured.facts), arguments.output)
    return 0


def run_changes(arguments: argparse.Namespace) -> int:
    """Compare two captures."""
    before, after = load_facts(arguments.before), load_facts(arguments.after)
    loaded = _site(arguments, before, after)
    report = make_report(before, after, loaded.site, load_plans(loaded))
    if before.host != after.host:
        say(f"{arguments.before} is of {before.host or 'an unnamed host'}, {arguments.after} of {after.host or 'one'}")
    lines = report.draft if arguments.draft else report.users if arguments.users else report_lines(report)
    tell(to_json(report), lines or [""], as_json=arguments.json)
    return 1 if report.changes else 0


def _site(arguments: argparse.Namespace, before: Facts, after: Facts) -> LoadedSite:
    """Load the site asked for, or the embedded one that both files name: a name in a file opens nothing else."""
    if before.site != after.site:
        raise ResolveError(
            f"{arguments.before} is of site {before.site!r}, {arguments.after} of {after.site!r}: "
            "nothing can be compared (two captures of one site would be right)"
        )
    name = arguments.site or own_site(before.site)
    if not name:
        raise ResolveError(
            f"--site: {arguments.before} is of site {before.site!r}, which is not embedded; name its description"
            if before.site
            else f"--site: {arguments.before} was read without a site; name the description of this one"
        )
    return load_site(name)


def load_facts(name: str) -> Facts:
    """Read a facts file, and no more of it than a facts file can have."""
    content = read_input(Path(name), LARGEST_FACTS_BYTES, "`lumisite facts -o FILE` writes one")
    return parse_facts(content, name)
