"""The site that a command works for: named by an option, LUMISITE_SITE, a release, a configuration file or a record."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from lumisite.cli.config_file import configured_site
from lumisite.errors import ResolveError
from lumisite.paths import SITE_FILE, SITE_FOLDER
from lumisite.site import load

#: The example of commands that only explain, or write into a folder, where no site is named.
_EXAMPLE = "lumi"
_REMEDY = "--site NAME|FILE or LUMISITE_SITE=NAME|FILE names it"
_UNKNOWN = "no site is named"


class Chosen(NamedTuple):
    """A site by its name or file, and why it is this one."""

    name: str
    why: str
    is_example: bool = False


def named_site() -> Chosen | None:
    """Return the site that LUMISITE_SITE, the module that is loaded, or a configuration file names, in this order.

    Raises `ResolveError` where the named one does not exist.
    """
    if name := os.environ.get("LUMISITE_SITE", ""):
        load.require_site(name, "LUMISITE_SITE")
        return Chosen(name, "by LUMISITE_SITE")
    release = os.environ.get("LUMISITE_RELEASE", "")
    if release.startswith("/") and (name := carried_site(Path(release))):
        return Chosen(name, f"by the module that is loaded, of release {Path(release).name}")
    if found := configured_site():
        name, path = found
        load.require_site(name, f"{path}: site")
        return Chosen(name, f"by {path}")
    return None


def default_site() -> Chosen:
    """Return the site of a command that needs one; raise `ResolveError` where none is named."""
    found = named_site()
    if found is None:
        raise ResolveError(f"--site: {_UNKNOWN} ({_REMEDY})")
    return found


def site_or_example() -> Chosen:
    """Return the site of a command that also explains an example."""
    return named_site() or Chosen(_EXAMPLE, f"an example: {_UNKNOWN} ({_REMEDY})", is_example=True)


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
    if (found := named_site()) and load.load_site(found.name).site.name == name:
        return found.name
    return name if name in load.embedded_sites() else ""
