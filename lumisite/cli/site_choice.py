"""The site that a command works for: named by an option, LUMISITE_SITE, a release, a configuration file or a record."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

from lumisite.cli.config_file import configured_site
from lumisite.errors import ResolveError
from lumisite.paths import SITE_FILE, SITE_FOLDER
from lumisite.site import load

#: The example of commands that only explain, or write into a folder, where no site is named.
_EXAMPLE = "lumi"
_UNKNOWN = "no site is named (--site NAME|FILE or LUMISITE_SITE=NAME|FILE names it)"


class _Found(NamedTuple):
    """A site by its name or file, and why it is this one."""

    name: str
    why: str


def required_site(name: str, *, quiet: bool = False) -> str:
    """Return the site that an option names, or the one that is chosen; raise `ResolveError` where there is none.

    What is chosen is printed with the reason, unless the command itself names the site (`quiet`).
    """
    chosen = name or optional_site("", quiet=quiet)
    if not chosen:
        raise ResolveError(f"--site: {_UNKNOWN}")
    return chosen


def site_or_example(name: str, *, quiet: bool = False) -> str:
    """Return the site that an option names, or the one that is chosen, or an example, which is printed always."""
    chosen = name or optional_site("", quiet=quiet)
    if not chosen:
        _print_choice(_Found(_EXAMPLE, f"an example: {_UNKNOWN}"))
    return chosen or _EXAMPLE


def optional_site(name: str, *, quiet: bool = False) -> str:
    """Return the site that an option names, or the one that is chosen; empty where there is none."""
    if name:
        return name
    found = _named_site()
    if found is not None and not quiet:
        _print_choice(found)
    return found.name if found else ""


def _print_choice(found: _Found) -> None:
    """Print the site before anything else; an error that follows takes its place."""
    first = getattr(sys.stderr, "first", None)
    if first is not None:
        first.append(f"lumisite: site {found.name}, {found.why}")


def _named_site() -> _Found | None:
    """Return the site that LUMISITE_SITE, the module that is loaded, or a configuration file names, in this order.

    Raises `ResolveError` where the named one does not exist.
    """
    if name := os.environ.get("LUMISITE_SITE", ""):
        load.require_site(name, "LUMISITE_SITE")
        return _Found(name, "by LUMISITE_SITE")
    release = os.environ.get("LUMISITE_RELEASE", "")
    if release.startswith("/") and (name := carried_site(Path(release))):
        return _Found(name, f"by the module that is loaded, of release {Path(release).name}")
    if found := configured_site():
        name, path = found
        load.require_site(name, f"{path}: site")
        return _Found(name, f"by {path}")
    return None


def carried_site(release: Path) -> str:
    """Return the description that the folder of a release carries; empty where it has none."""
    path = release / SITE_FOLDER / SITE_FILE
    return str(path) if path.is_file() else ""


def recorded_site(name: str, release: Path | None = None) -> str:
    """Return the site that a file, such as a manifest, names: that of the `release`, the named one, or an embedded one.

    A name in a file opens nothing else; the result is empty where there is none of them.
    """
    if release is not None and (carried := carried_site(release)):
        return carried
    if (found := _named_site()) and load.load_site(found.name).site.name == name:
        return found.name
    return name if name in load.embedded_sites() else ""
