"""Commands about containers: `binds`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from lumisite.cli.parser import add_json_option, add_site_option

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lumisite.binds.closure import Line
    from lumisite.binds.plan import Plan
    from lumisite.cli.parser import Commands


def add_commands(commands: Commands) -> None:
    """Add `binds`."""
    binds = commands.add_parser(
        "binds",
        help="what a container needs from the host, library by library",
        description="Print what an image needs from the host: each library with the decision to bind it, to skip it "
        "(the image has it), to refuse it (the image cannot run it), or that the host misses it; with the reason and "
        "the chain that led to it. The image is read, never run. Exit 0 when all is bound or skipped, 1 otherwise.",
    )
    binds.add_argument("image", metavar="IMAGE", help="a SIF, or the folder of an unpacked image")
    add_site_option(binds)
    binds.add_argument("--host-root", default="/", metavar="DIR", help="the host's root, or a copy (default: /)")
    binds.add_argument("--family", metavar="F", help="image family (default: the one that recognises the image)")
    binds.add_argument(
        "--library",
        action="append",
        default=[],
        metavar="SONAME",
        help="a library to bring beside those of the family, such as libmpi.so.12; may be given several times",
    )
    binds.add_argument("--platform", metavar="P", help="what the machine is (default: the site's current platform)")
    binds.add_argument("--cpe", metavar="V", help="CPE release (default: the platform's own)")
    binds.add_argument("--rocm", metavar="V", help="ROCm release, for the default family (default: the platform's own)")
    add_json_option(binds)
    binds.set_defaults(call=run_binds)


def run_binds(arguments: argparse.Namespace) -> int:
    """Print the plan of one image."""
    import json

    plan = _plan(arguments)
    for note in plan.notes:
        _say(note)
    if arguments.json:
        entries = ",".join("\n  " + json.dumps(_entry(line)) for line in plan.lines)
        print(f"[{entries}\n]")
    elif plan.lines:
        print("\n".join(_table(plan.lines)))
    return 0 if plan.sound else 1


def _plan(arguments: argparse.Namespace) -> Plan:
    from pathlib import Path

    from lumisite.binds.host import DiskTree
    from lumisite.binds.image import open_image
    from lumisite.binds.plan import Request, make_plan
    from lumisite.errors import ResolveError
    from lumisite.site.load import load_site
    from lumisite.site.selection import resolve_selection

    for library in arguments.library:
        if not library.isprintable() or not library or "/" in library:
            raise ResolveError(f"--library: {library!r} is no SONAME, such as libmpi.so.12")
    root = arguments.host_root
    if "\0" in root or not Path(root).is_dir():
        raise ResolveError(f"--host-root: {root!r} is no directory (the root of a host, or of a copy of one)")
    site = load_site(arguments.site).site
    chosen = resolve_selection(
        site,
        platform=arguments.platform,
        cpe=[arguments.cpe] if arguments.cpe else [],
        rocm=[arguments.rocm] if arguments.rocm else [],
    )
    image = open_image(arguments.image)
    paths = (arguments.image, str(Path(arguments.image).resolve()))
    libraries = tuple(arguments.library)
    request = Request(site, chosen.platform, chosen.cpe[0], chosen.rocm[0], paths, arguments.family, libraries)
    return make_plan(request, image, DiskTree(root))


def _entry(line: Line) -> dict[str, object]:
    return {
        "source": line.source,
        "target": line.target,
        "decision": line.decision,
        "reason": "; ".join((line.reason, *line.notes)),
        "chain": " <- ".join(line.chain),
    }


def _table(lines: Sequence[Line]) -> Iterator[str]:
    """Give a row for each library, and below it where it comes from and goes to, the reason and the warnings."""
    rows = [("decision", "library", "wanted", "found", "chain")]
    rows += [(line.decision, line.name, line.wanted, line.found, " <- ".join(line.chain)) for line in lines]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    texts = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]]) for row in rows
    ]
    yield texts[0]
    for line, text in zip(lines, texts[1:], strict=True):
        yield text
        if line.decision == "bind":
            yield f"    {line.source}:{line.target}"
        yield f"    {line.reason}"
        yield from (f"    warning: {note}" for note in line.notes)


def _say(text: str) -> None:
    print(f"lumisite: {text}", file=sys.stderr)
