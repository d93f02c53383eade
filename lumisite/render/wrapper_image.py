"""What the wrapper takes an image for: by the plan or the lock that the tree was rendered with, else by its names."""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from lumisite.site.images import Holds, family_by_path, holds_by_name, plugin_by_name
from lumisite.site.model import Site
from lumisite.site.plans import ImagePlan, LoadedPlan, holds_by_plan, literal_path

if TYPE_CHECKING:
    from lumisite.images.lock import LoadedLock


@dataclass(frozen=True)
class WrapperImage:
    """What the wrapper knows of an image, and the plan that it follows.

    `known_from` is `content` where somebody read the image, for a plan or a lock, else `name`.
    """

    holds: Holds
    known_from: str
    plan: ImagePlan | None = None


def wrapper_image(
    site: Site, platform: str, name: str, plans: Sequence[LoadedPlan] = (), lock: LoadedLock | None = None
) -> WrapperImage:
    """Return what the wrapper takes an image for that a user names.

    A plan that names the file itself comes first, one of which a pattern only fits it next, then the lock, the name.
    """
    typed = name if "://" in name else os.path.abspath(name)  # noqa: PTH100 - a Path would drop what the user typed
    file = name if "://" in name else os.path.realpath(typed)
    of_platform = [loaded.plan for loaded in plans if loaded.plan.platform == platform]
    for path in (file, typed):
        for plan in (plan for plan in of_platform if path in _literal_paths(plan)):
            if path in _links(plan) and _is_other_file(typed, str(plan.image and plan.image.file)):
                return WrapperImage(_of_family(site, plan.family), "name")
            return WrapperImage(holds_by_plan(plan), "content", plan)
    for path in (typed, file):
        for plan in of_platform:
            if any(literal_path(one) is None and fnmatchcase(path, one) for one in plan.paths):
                # Made for some other file: what was read in that is not known of this one.
                return WrapperImage(_of_family(site, plan.family), "name", plan)
    if lock is not None:
        from lumisite.images.lock import holds_by_lock  # which brings all that reads images

        for path, image in lock.lock.images.items():
            if (image.target or path) == file and not image.fault and image.versions:
                holds = holds_by_lock(site, path, image, platform)
                return WrapperImage(replace(holds, family=holds.family or family_by_path(site, file, typed)), "content")
    return WrapperImage(holds_by_name(site, file, typed), "name")


def _links(plan: ImagePlan) -> Sequence[str]:
    return () if plan.image is None else [str(literal_path(name)) for name in plan.image.names]


def _literal_paths(plan: ImagePlan) -> list[str]:
    """Return the paths that are known to be the file that a plan was made for."""
    literal = filter(None, map(literal_path, plan.paths))
    return [*literal, *([str(plan.image.file)] if plan.image is not None and plan.image.file else [])]


def _is_other_file(path: str, planned: str) -> bool:
    """Return whether a link is there, and leads to another file than when the plan was made."""
    return Path(path).exists() and os.path.realpath(path) != os.path.realpath(planned)


def _of_family(site: Site, family: str) -> Holds:
    """Return what is known of an image of a family that nobody read."""
    return Holds(family, plugin=plugin_by_name(site, family))
