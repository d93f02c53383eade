"""`resolve`: the platform and the releases that `render` would use."""

from __future__ import annotations

import argparse

from lumisite.cli.arguments import add_json, add_selection, add_site_or_example, load_selection
from lumisite.cli.output import print_result
from lumisite.findings.writers import message


def add_resolve(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `resolve`."""
    parser.description = (
        "Show the platform and the releases of its stacks that `render` would use, and why each other one lost."
    )
    add_site_or_example(parser)
    add_selection(parser)
    add_json(parser)


def run_resolve(arguments: argparse.Namespace) -> int:
    """Print every candidate with its reason, the chosen ones marked."""
    _, selection = load_selection(arguments)
    chosen = {"platform": selection.platform, **selection.stacks}
    candidates = [{**vars(candidate), "reason": message(candidate.reason)} for candidate in selection.candidates]
    width = max(len(row["name"]) for row in candidates)
    rows = (
        f"{'*' if row['chosen'] else ' '} {row['kind']:8}  {row['name']:{width}}  {row['reason']}" for row in candidates
    )
    print_result({**chosen, "candidates": candidates}, (str(selection), *rows), as_json=arguments.json)
    return 0
