"""What several commands do: choose the site and its releases, print results, write files."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lumisite.cli.arguments import LIVE
from lumisite.cli.plain import plain
from lumisite.errors import ResolveError, ToolError, refused
from lumisite.findings.catalogue import make_finding

if TYPE_CHECKING:
    from lumisite.cli.chosen import Chosen
    from lumisite.findings.finding import Finding
    from lumisite.site.load import LoadedSite
    from lumisite.site.model import Site
    from lumisite.site.selection import Selection

#: These name the site by themselves, in the first line of what they tell.
_TELL_SITE = ("check", "render", "resolve")
#: These explain, or write into a folder, and do so for an example where no site is named or known.
_EXPLAIN = ("render", "why", "env", "resolve", "lint")
#: These judge files, which may be of any machine: they take a site only where it is named.
_JUDGE_FILES = ("transport", "verdict")


def choose_site(arguments: argparse.Namespace) -> Iterator[str]:
    """Fill in the site where none was asked for, and give a line that names it."""
    if any(getattr(arguments, name, None) for name in ("resume", "more")):
        return  # the run knows its site
    if arguments.command == "check" and arguments.site:
        if arguments.file:
            raise ResolveError(f"--site: FILE is {arguments.file} already (leave one out)")
        arguments.file = arguments.site
    if getattr(arguments, "root", None) and (arguments.command == "why" or getattr(arguments, "host", False)):
        return  # the release knows its site
    for option in ("site", "file"):
        if getattr(arguments, option, None) == "" and (found := _site_of(arguments)):
            setattr(arguments, option, found.name)
            if found.is_example or arguments.command not in _TELL_SITE:
                yield f"lumisite: site {found.name}, {found.why}"


def _site_of(arguments: argparse.Namespace) -> Chosen | None:
    """Return the site where no option names one; raise `ResolveError` where the command needs one."""
    from lumisite.cli import chosen

    if arguments.command in _EXPLAIN:
        return chosen.site_or_example()
    if arguments.command in _JUDGE_FILES or getattr(arguments, "topology", None) is not None:
        return chosen.named_site()
    if arguments.command == "facts" or getattr(arguments, "node", None) == LIVE:
        return chosen.known_site()  # a machine that nobody has described yet is read as well
    return chosen.default_site()


def load_selection(arguments: argparse.Namespace) -> tuple[LoadedSite, Selection]:
    """Load the site and choose the releases that these options ask for."""
    from lumisite.site.load import load_site
    from lumisite.site.selection import resolve_selection

    loaded = load_site(arguments.site)
    return loaded, resolve_selection(loaded.site, platform=arguments.platform, **asked_for(arguments))


def asked_for(arguments: argparse.Namespace) -> dict[str, list[str]]:
    """Give the releases that options ask for, by stack; raises `ResolveError`."""
    from lumisite.site.selection import SHORT_FORMS

    asked = {stack: list(getattr(arguments, stack)) for stack in SHORT_FORMS if getattr(arguments, stack)}
    for text in arguments.use:
        stack, sign, version = text.partition("=")
        if not sign or not stack:
            raise ResolveError(f"--use: {text!r} is no stack with its release (NAME=12.8 would be right)")
        asked.setdefault(stack, []).append(version)
    return asked


def real_path(name: str | Path) -> Path:
    """Follow links as far as they lead. Those that go round are left for what opens the path: it has the message."""
    return Path(os.path.realpath(name))


def check_root(root: str) -> None:
    """Refuse the root of a host that is no directory; raises `ResolveError`."""
    if "\0" in root or not Path(root).is_dir():
        raise ResolveError(f"--host-root: {root!r} is no directory (the root of a host, or of a copy of one)")


def tell(result: object, lines: Iterable[str], *, as_json: bool) -> None:
    """Print a result: as JSON for a machine, else its lines, if there are any."""
    if rows := (json.dumps(result, indent=2, default=str),) if as_json else tuple(lines):
        print("\n".join(rows))


def print_sarif(findings: Sequence[Finding]) -> None:
    """Print findings as SARIF, for forges and editors."""
    from lumisite import __version__
    from lumisite.findings.writers import sarif

    print(json.dumps(sarif(findings, __version__), indent=2))


def rows_of_json(rows: Iterable[object]) -> str:
    """Give a JSON list with one line for each of its values, as `grep` reads it."""
    return "[" + ",".join(f"\n  {json.dumps(row)}" for row in rows) + "\n]"


def say(text: str) -> None:
    """Tell what goes on, beside the result."""
    print(f"lumisite: {text}", file=sys.stderr, flush=True)


def say_untried(site: Site) -> None:
    """Tell of a site that nobody tried; silent for others."""
    if not site.tried:
        say(f"{site.title} was never run with this: its description is from documents, so try it before you rely on it")


def write_whole(path: Path, content: bytes) -> bool:
    """Write a file whole or not at all, and tell whether it was another before; raises `ToolError`."""
    from lumisite.release.files import replace_file

    try:
        return replace_file(path, content)
    except OSError as error:
        raise refused("write", error) from None


def write_text(text: str, output: str | None) -> None:
    """Write to a file, which may be a device, or to standard output; raises `ToolError`."""
    if output is None:
        sys.stdout.write(text)
        return
    try:
        Path(output).write_text(plain(text), encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ToolError(make_finding("system-refused", output, action="write", reason=reason)) from None
