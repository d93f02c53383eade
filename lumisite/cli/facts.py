"""What a node is: `facts`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from lumisite.cli.parser import add_site_option

if TYPE_CHECKING:
    from lumisite.cli.parser import Commands


def add_commands(commands: Commands) -> None:
    """Add `facts`."""
    facts = commands.add_parser(
        "facts",
        help="capture what this node is, as one JSON file",
        description="Write down what a maintenance may change under the containers: system, kernel, glibc, Slurm, GPU "
        "driver, ROCm and CPE releases, libraries, interfaces, GPUs, CPUs, image names and the deployed release. Only "
        "files are read; no program is run and no root is needed. What is not there is absent in the file. The same "
        "node gives the same bytes.",
    )
    add_site_option(facts)
    facts.add_argument("--root", default="/", metavar="DIR", help="the node's root, or a copy (default: /)")
    facts.add_argument(
        "--images",
        action="append",
        default=[],
        metavar="DIR",
        help="a directory of images beside those in the families' patterns; may be given several times",
    )
    facts.add_argument("-o", "--output", metavar="FILE", help="write to FILE (default: standard output)")
    facts.set_defaults(call=run_facts)


def run_facts(arguments: argparse.Namespace) -> int:
    """Capture a node."""
    from pathlib import Path

    from lumisite.binds.capture import capture
    from lumisite.binds.host import DiskTree
    from lumisite.errors import ResolveError, ToolError
    from lumisite.node.facts import format_facts
    from lumisite.site.load import load_site

    root = arguments.root
    if "\0" in root or not Path(root).is_dir():
        raise ResolveError(f"--root: {root!r} is no directory (the root of a node, or of a copy of one)")
    for path in arguments.images:
        if not path.startswith("/"):
            raise ResolveError(f"--images: {path!r} is no absolute path (as the node sees it, below --root)")
    captured = capture(DiskTree(root), load_site(arguments.site).site, tuple(arguments.images))
    text = format_facts(captured.facts)
    for note in captured.notes:
        _say(note)
    if arguments.output is None:
        sys.stdout.write(text)
        return 0
    try:
        Path(arguments.output).write_text(text, encoding="ascii")
    except (OSError, ValueError) as error:
        raise ToolError(f"cannot write {arguments.output!r}: {getattr(error, 'strerror', None) or error}") from None
    return 0


def _say(text: str) -> None:
    print(f"lumisite: {text}", file=sys.stderr)
