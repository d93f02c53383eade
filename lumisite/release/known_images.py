"""Images that somebody has read, as the wrapper looks them up: by the file that a name leads to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lumisite.release.helper_settings import plugin_word, rocm_word
from lumisite.release.image_plans import case_pattern
from lumisite.release.lock import Lock
from lumisite.site.decode import UnfitError
from lumisite.site.images import Holds
from lumisite.site.model import Site
from lumisite.site.versions import parse_version


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
            pattern=case_pattern("".join(f"[{c}]" if c in "*?[" else c for c in path)),
            family=holds.family if holds.family is not None and holds.family in site.families else "",
            rocm=rocm_word(holds.rocm),
            plugin=plugin_word(holds.plugin),
        )
        for path, holds in (_locked(lock) if lock is not None else ())
    )


def _locked(lock: Lock) -> Iterator[tuple[str, Holds]]:
    seen = set()
    for path, image in lock.images.items():
        target = image.target or path
        if not image.fault and image.family and target not in seen:
            seen.add(target)
            yield target, holds_of(image.family, image.versions)


def holds_of(family: str | None, versions: Mapping[str, str]) -> Holds:
    """Take what an image holds from the versions that were read in it: a plugin that was not found is not there."""
    try:
        rocm = parse_version(versions["rocm"]) if "rocm" in versions else None
    except UnfitError:
        rocm = None
    return Holds(family, rocm, "ofi_plugin" in versions)
