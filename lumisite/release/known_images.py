"""Images that somebody has read, as the wrapper looks them up: by the file that a name leads to."""

from __future__ import annotations

import glob
from collections.abc import Iterator
from dataclasses import dataclass

from lumisite.release.helper_settings import plugin_word, rocm_word
from lumisite.release.image_plans import case_pattern
from lumisite.release.lock import Lock
from lumisite.site.images import Holds, family_by_path, told_release
from lumisite.site.model import Site


@dataclass(frozen=True)
class ImageCase:
    """What a file holds: its family, its ROCm release as a number, and yes or no for the plugin; empty is unknown."""

    pattern: str
    family: str
    rocm: str
    plugin: str


def image_cases(site: Site, lock: Lock | None) -> tuple[ImageCase, ...]:
    """Give a case for each file of a lock."""
    return tuple(
        ImageCase(
            pattern=case_pattern(glob.escape(path)),
            family=holds.family or "",
            rocm=rocm_word(holds.rocm),
            plugin=plugin_word(holds.plugin),
        )
        for path, holds in (_locked(site, lock) if lock is not None else ())
    )


def _locked(site: Site, lock: Lock) -> Iterator[tuple[str, Holds]]:
    """Give each file once with what was read in it; a plugin that was not found is not there."""
    seen = set()
    for path, image in lock.images.items():
        target = image.target or path
        if not image.fault and image.versions and target not in seen:
            seen.add(target)
            rocm = told_release(image.versions.get("rocm"))
            yield target, Holds(_family(site, image.family, target, path), rocm, "ofi_plugin" in image.versions)


def _family(site: Site, name: str | None, *paths: str) -> str | None:
    """Give a family that a lock names, if it recognised the image and does not only stand for what none recognises."""
    family = site.families.get(name or "")
    if family is None or (family.default_for is not None and family_by_path(site, *paths) != name):
        return None
    return name
