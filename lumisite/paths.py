"""Where things of the package, and of a release, are."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).parent
#: Where a release has the description that it was rendered from, beside the plans and the lock that this names.
SITE_FOLDER, SITE_FILE = "site", "site.yaml"
#: What a deployment root has (release/root.py): a folder for each release, the link to the one that is deployed, the
#: policy, and what deploys and rollbacks go by.
RELEASES, CURRENT, POLICY, HISTORY, LOCK = "releases", "current", "policy", "history", ".lock"
#: What a release has: the modulefiles, and the helper's files with the folder of the wrappers.
MODULES = "modules"
SPANK = "spank"
PROLOG, CLI_FILTER, WRAPPERS = f"{SPANK}/task_prolog", f"{SPANK}/cli_filter.lua", f"{SPANK}/bin"
#: A modulefile, by the module's name and version.
MODULEFILE = f"{MODULES}/{{}}.lua"


def current(root: str, path: str = "") -> str:
    """Return a path below the link to the release that is deployed in a root, by default the link itself."""
    return f"{root}/{CURRENT}/{path}" if path else f"{root}/{CURRENT}"


def package_folder(name: str) -> Path | None:
    """Return a folder that belongs to lumisite: in a wheel it is inside the package, in a checkout beside it."""
    return next((top / name for top in (PACKAGE, PACKAGE.parent) if (top / name).is_dir()), None)
