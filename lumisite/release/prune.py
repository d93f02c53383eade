"""Which releases a deploy keeps: the newest five, and what a running job could use."""

from __future__ import annotations

import time
from contextlib import suppress

from lumisite.release.files import TEMPORARY, remove
from lumisite.release.root import Root, inspect_release
from lumisite.release.tree import utc

#: How many releases stay, the newest ones.
KEPT = 5
#: For so many days after it was current a release stays for jobs: none waits and runs for longer than that.
DAYS_FOR_JOBS = 30


def old_releases(root: Root, new: str, keep: int) -> list[str]:
    """Return the releases that go when `new` is deployed into a root, the newest first.

    The newest `keep` stay, the current one, to which rollback will go, what was current in the last `DAYS_FOR_JOBS`
    days, which jobs may use, and what the history does not know.
    """
    deployed = dict.fromkeys(step.release for step in reversed(root.steps) if step.action == "deploy")
    newest = [new, *(name for name in deployed if name != new)][:keep]
    since = utc(time.time() - DAYS_FOR_JOBS * 24 * 3600)
    used = {step.before for step in root.steps if step.time >= since}
    kept = {*newest, *used, root.current}
    return [name for name in deployed if name not in kept and root.release(name).is_dir()]


def remove_old(root: Root, new: str, keep: int) -> list[str]:
    """Remove the `old_releases` that are as they were deployed, and return their names; the caller holds the lock."""
    removed = []
    for name in old_releases(root, new, keep):
        if inspect_release(root, name).edits:  # somebody's work
            continue
        path = root.release(name)
        with suppress(OSError):  # another admin's
            path.rename(gone := path.with_name(f"{TEMPORARY}{name}"))
            remove(gone)
            removed.append(name)
    return removed
