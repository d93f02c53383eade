"""Who uses which command: the order of `lumisite --help`."""

from __future__ import annotations

from collections.abc import Mapping

#: Commands by what is at hand, and for whom.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "describe the machine (admins)": ("init", "check", "resolve"),
    "modules and releases (admins)": ("render", "diff", "deploy", "rollback", "releases", "status"),
    "jobs and images (user support)": ("why", "env", "masks", "binds", "images", "transport", "lint"),
    "before and after an update (engineers)": (
        *("facts", "changes", "baseline", "validate", "verdict", "report", "reframe"),
    ),
}
