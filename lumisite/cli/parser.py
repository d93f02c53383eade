"""The command line: one parser, filled by one module for each room that has commands."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from lumisite import __version__
from lumisite.errors import ResolveError, refused

if TYPE_CHECKING:
    from lumisite.site.load import LoadedSite
    from lumisite.site.selection import Selection

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

#: Which module of this package has which commands, in the order in which an admin meets them.
MODULES = {
    "describe": ("check", "resolve", "why"),
    "environment": ("env",),
    "render": ("render",),
    "release": ("diff", "deploy", "rollback", "releases"),
    "node": ("masks",),
    "containers": ("binds",),
    "images": ("images",),
    "facts": ("facts", "changes"),
    "validate": ("validate", "baseline"),
    "proof": ("transport", "verdict", "lint"),
    "report": ("report",),
    "reframe": ("reframe",),
}


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """Build the parser; each command stores the function that runs it as `call`.

    A known `command` gets only the parsers of its own module: building all of them takes as long as rendering.
    """
    known = any(command in names for names in MODULES.values())
    wanted = [name for name, names in MODULES.items() if not known or command in names]
    parser = argparse.ArgumentParser(
        prog="lumisite",
        description="The layer between Slurm and the container on an HPC site.",
        epilog="Exit codes: 0 fine, 1 a difference or a failed verdict, 2 usage or site description, "
        "3 a tool or the system refused, 4 inconclusive, 5 the system is fine but some nodes are not.",
    )
    parser.add_argument("--version", action="version", version=f"lumisite {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in wanted:
        importlib.import_module(f"lumisite.cli.{name}").add_commands(commands)
    return parser


def add_site_option(parser: argparse.ArgumentParser) -> None:
    """Add `--site`, which every command takes that reads the site description."""
    parser.add_argument(
        "--site",
        default="lumi",
        metavar="NAME|FILE",
        help="the site: the name of an embedded one, or a YAML file (default: %(default)s)",
    )


def add_selection_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose releases."""
    parser.add_argument(
        "--rocm",
        action="append",
        default=[],
        metavar="V",
        help="ROCm release; 6.2 means the newest 6.2.x of the site. May be given several times; `all` means the newest "
        "of each series that the platform's driver supports (default: the platform's own)",
    )
    parser.add_argument(
        "--platform", metavar="P", help="what the machine was after which maintenance (default: the current one)"
    )
    parser.add_argument(
        "--cpe",
        action="append",
        default=[],
        metavar="V",
        help="CPE release. May be given several times; `all` means every supported one (default: the platform's own)",
    )


def add_input_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for what is known of images."""
    parser.add_argument(
        "--plan",
        action="append",
        type=Path,
        default=[],
        metavar="FILE",
        help="a reviewed plan of an image, beside those that the site names; may be given several times",
    )
    parser.add_argument(
        "--lock",
        type=Path,
        metavar="FILE",
        help="a lock of the site's images (`lumisite images --lock`): what it knows of an image counts more than the "
        "image's name (default: the one that the site names)",
    )


def load_selection(arguments: argparse.Namespace) -> tuple[LoadedSite, Selection]:
    """Load the site and choose the releases that these options ask for."""
    from lumisite.site.load import load_site
    from lumisite.site.selection import resolve_selection

    loaded = load_site(arguments.site)
    asked = {"rocm": arguments.rocm, "platform": arguments.platform, "cpe": arguments.cpe}
    return loaded, resolve_selection(loaded.site, **asked)


def add_host_option(parser: argparse.ArgumentParser) -> None:
    """Add `--host-root`, for what looks at libraries of the host."""
    parser.add_argument("--host-root", default="/", metavar="DIR", help="the host's root, or a copy (default: /)")


def real_path(name: str | Path) -> Path:
    """Follow links as far as they lead. Those that go round are left for what opens the path: it has the message."""
    return Path(os.path.realpath(name))


def check_host_root(root: str) -> None:
    """Refuse a `--host-root` that is no directory; raises `ResolveError`."""
    if "\0" in root or not Path(root).is_dir():
        raise ResolveError(f"--host-root: {root!r} is no directory (the root of a host, or of a copy of one)")


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Add `--json`, for results that a machine may read."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def count(text: str) -> int:
    """Read how many of something there should be."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if not 1 <= number <= 10_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 10000")
    return number


def say(text: str) -> None:
    """Tell what goes on, beside the result."""
    print(f"lumisite: {text}", file=sys.stderr, flush=True)


def columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Give the lines of an aligned table: plain text, since short columns need no library and `awk` reads them."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def write_whole(path: Path, content: bytes) -> bool:
    """Write a file whole or not at all, and tell whether it was another before; raises `ToolError`."""
    from lumisite.release.files import replace_file

    try:
        return replace_file(path, content)
    except OSError as error:
        raise refused("write", error) from None
