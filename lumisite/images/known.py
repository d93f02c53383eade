"""What is known of an image that a command names: read in its file, else as a lock has it, else by its name."""

from __future__ import annotations

import os.path
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lumisite.errors import LumisiteError
from lumisite.findings.finding import Finding, Severity
from lumisite.images.environment import UNKNOWN, variables_of
from lumisite.images.family import recognise_family
from lumisite.images.fit import vendors_by_words
from lumisite.images.lock import Lock, LockedImage, holds_by_lock
from lumisite.images.sif import open_image
from lumisite.images.versions import ReadImage
from lumisite.site.images import Holds, holds_by_name, releases_by_name
from lumisite.site.model import Site
from lumisite.site.versions import Version
from lumisite.vendors import vendor
from lumisite.vendors.model import Vendor


@dataclass(frozen=True)
class KnownImage:
    """What is known of an image.

    `releases` are those of stacks in it, by forms of names too that no setting goes by, `built_for` the vendors for
    whose GPUs it is. `read` is the image where its file was read, `is_locked` whether a lock has it, `note` says why it
    could not be read.
    """

    holds: Holds = field(default_factory=Holds)
    releases: Mapping[str, Version] = field(default_factory=dict)
    built_for: tuple[Vendor, ...] = ()
    read: ReadImage | None = None
    is_locked: bool = False
    note: Finding | None = None

    def in_container(self, before: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of the ledger in a container that is started with the variables `before`."""
        if self.read is None:
            return {**self.holds.sets, **before}
        after = variables_of(self.read.tree, before)
        return {name: after[name].replace(UNKNOWN, "") for name in {**before, **self.holds.sets} if name in after}


def know_image(site: Site, path: str, platform: str | None = None, lock: Lock | None = None) -> KnownImage:
    """Return what is known of an image on a platform (default: the current one)."""
    if "\0" in path:
        return KnownImage(note=_unread(path, "no file has this name", "correct the path of the image"))
    typed = os.path.abspath(path)  # noqa: PTH100 - a Path would drop what the user typed
    real = os.path.realpath(typed)
    try:
        image = ReadImage(site, open_image(real).tree)
        recognised = recognise_family(site, (typed, real), image)
        holds = image.holds(None if recognised is None else recognised[0], platform)
        built_for = map(vendor, image.gpu_vendors) if image.gpu_vendors else vendors_by_words(path, {})
        return KnownImage(holds, holds.stacks, tuple(built_for), image)
    except LumisiteError as error:
        known = know_unread(site, (typed, real), {} if lock is None else lock.images, platform)
        if known.is_locked:
            return known
        message = f"{error.finding.message}; its releases and family are inferred from the file name"
        return replace(known, note=_unread(path, message, error.finding.advice))


def know_unread(
    site: Site, names: tuple[str, str], locked: Mapping[str, LockedImage], platform: str | None = None
) -> KnownImage:
    """Return what is known of an image whose file is not read: what a lock has of it, else what its names tell.

    `names` are the path that was typed, and where that leads.
    """
    typed, real = names
    for name, image in locked.items():
        if not image.fault and (name == typed or image.target == real):
            holds = holds_by_lock(site, name, image, platform)
            return KnownImage(holds, holds.stacks, vendors_by_words(typed, image.versions), is_locked=True)
    releases = releases_by_name(site, real, typed)
    return KnownImage(holds_by_name(site, real, typed), releases, vendors_by_words(typed, {}))


def _unread(path: str, message: str, advice: str) -> Finding:
    return Finding("image-unread", Severity.INFO, message, advice, path)
