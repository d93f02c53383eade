"""Where things of the package, and of a release, are."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).parent
#: Where a release has the description that it was rendered from, beside the plans and the lock that this names.
SITE_FOLDER, SITE_FILE = "site", "site.yaml"
#: The link of a deployment root to the release that is deployed.
CURRENT = "current"
#: What a release has: the task prolog, and the folder of the wrappers.
PROLOG, WRAPPERS = "spank/task_prolog", "spank/bin"


def current(root: str) -> str:
    """Return the path of the link to the release that is deployed in a root."""
    return f"{root}/{CURRENT}"


def package_folder(name: str) -> Path | None:
    """Return a folder that belongs to lumisite: in a wheel it is inside the package, in a checkout beside it."""
    return next((top / name for top in (PACKAGE, PACKAGE.parent) if (top / name).is_dir()), None)
