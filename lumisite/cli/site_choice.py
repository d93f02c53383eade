"""The site that a command works for: of an option, LUMISITE_SITE, a release, the configuration file or a record."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lumisite.cli.output import print_note
from lumisite.errors import ResolveError
from lumisite.paths import SITE_FILE, SITE_FOLDER
from lumisite.site import load
from lumisite.site.decode import decode, key
from lumisite.site.read import read_file
from lumisite.site.scalars import Name
from lumisite.site.yaml import MAX_BYTES

if TYPE_CHECKING:
    from lumisite.release.root import Root

#: The configuration file of a machine, which names its site.
CONFIGURATION = Path("/etc/lumisite.yaml")
#: The example of commands that only explain, or write into a folder, where no site is named.
_EXAMPLE = "lumi"
_UNKNOWN = "no site is named (--site NAME|FILE or LUMISITE_SITE=NAME|FILE names it)"


@dataclass(frozen=True)
class Configuration:
    """What the configuration file may say."""

    site: Name = key("The site: an embedded one by its name, or the file of its description.")


def required_site(name: str) -> str:
    """Return the site that an option names, or else the chosen one; raise `ResolveError` where there is none."""
    chosen = optional_site(name)
    if not chosen:
        raise ResolveError(f"--site: {_UNKNOWN}")
    return chosen


def site_or_example(name: str) -> str:
    """Return the site that an option names, or else the chosen one, or an example."""
    chosen = optional_site(name)
    if not chosen:
        print_note(f"site {_EXAMPLE}, an example: {_UNKNOWN}")
    return chosen or _EXAMPLE


def optional_site(name: str) -> str:
    """Return the site that an option names, or else the chosen one, with a note why; empty where there is none."""
    if name:
        return name
    chosen, why = _chosen_site()
    if why:
        print_note(f"site {chosen}, by {why}")
    return chosen


def _chosen_site() -> tuple[str, str]:
    """Return the site of LUMISITE_SITE, of the loaded module or of the configuration file, and which of the two it was.

    Raises `ResolveError` where the named one does not exist, `SiteError` for a configuration file with faults.
    """
    if name := os.environ.get("LUMISITE_SITE", ""):
        load.require_site(name, "LUMISITE_SITE")
        return name, ""
    release = os.environ.get("LUMISITE_RELEASE", "")
    if release.startswith("/") and (name := carried_site(Path(release))):
        return name, f"the module that is loaded, of release {Path(release).name}"
    if CONFIGURATION.is_file():
        name = decode(read_file(CONFIGURATION, MAX_BYTES), Configuration, file=str(CONFIGURATION)).site
        beside = CONFIGURATION.parent / name
        name = str(beside) if load.is_file(name) else name
        load.require_site(name, f"{CONFIGURATION}: site")
        return name, str(CONFIGURATION)
    return "", ""


def carried_site(release: Path) -> str:
    """Return the description that the folder of a release carries; empty where it has none."""
    path = release / SITE_FOLDER / SITE_FILE
    return str(path) if path.is_file() else ""


def recorded_site(name: str, release: Path | None = None) -> str:
    """Return the site that a manifest or record names: that of the `release`, the chosen one, or an embedded one.

    A name in a file opens nothing else; the result is empty where there is none of them.
    """
    if release is not None and (carried := carried_site(release)):
        return carried
    chosen, _ = _chosen_site()
    if chosen and load.load_site(chosen).site.name == name:
        return chosen
    return name if name in load.embedded_sites() else ""


def site_of_root(root: Root) -> str:
    """Return the site of the releases in a root, as `recorded_site` does; empty where it is not known here."""
    from lumisite.release.root import manifests  # late: most commands have no root

    named = next((manifest.site for manifest in manifests(root)), "")
    return recorded_site(named, root.release(root.current) if root.current else None)
