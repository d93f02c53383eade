"""The lock of a site's images: what each name led to, and what it held, when an admin last agreed to it.

It is JSON with sorted keys, so that the same images always give the same bytes, and a version control system shows
what moved.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lumisite.errors import ToolError
from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding
from lumisite.images.contents import collectives_of
from lumisite.images.digest import Kind
from lumisite.images.inventory import Image
from lumisite.machine.host import LARGEST_READ_BYTES, open_file
from lumisite.site.decode import wrong_type
from lumisite.site.document import joined
from lumisite.site.images import Holds, family_by_path, told_release
from lumisite.site.json_file import JsonFile
from lumisite.site.load import LoadedSite
from lumisite.site.model import Site


@dataclass(frozen=True)
class LockedImage:
    """What the lock knows of one name; `fault` is what was wrong with it then."""

    target: str | None = None
    links: tuple[str, ...] = ()
    size: int | None = None
    digest: str | None = None
    family: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""


@dataclass(frozen=True)
class Lock:
    """The images of a site by path; `given` are the paths that were asked for, none means the site's directories."""

    site: str
    digest: Kind
    given: tuple[str, ...]
    images: Mapping[str, LockedImage]


@dataclass(frozen=True)
class LoadedLock:
    """A lock with the text that it was read from; `file` is the name that output may show."""

    lock: Lock
    file: str
    data: bytes


def lock_of(site: str, digest: Kind, given: Iterable[str], images: Iterable[Image]) -> Lock:
    """Lock what was found."""
    return Lock(site, digest, tuple(sorted(given)), {one.path: locked(one) for one in images})


def locked(image: Image) -> LockedImage:
    """Take of an image what a lock keeps; labels are left out, since the digest covers them."""
    versions = {name: version.value for name, version in image.versions.items()}
    return LockedImage(image.target, image.links, image.size, image.digest, image.family, versions, image.fault)


def holds_by_lock(site: Site, path: str, image: LockedImage) -> Holds:
    """Return what a lock says that an image holds.

    A plugin that was not found is not there, where the library was found that would open it. A family counts if it
    recognised the image, and does not only stand for what none recognises.
    """
    known = site.families.get(image.family or "")
    recognised = known is not None and known.default_for is None
    named = family_by_path(site, image.target or path, path)
    family = image.family if recognised or named == image.family else None
    read = {stack: told_release(image.versions.get(stack)) for stack in site.gpu_stacks}
    stacks = {stack: release for stack, release in read.items() if release is not None}
    plugin, openers = "ofi_plugin" in image.versions, {one.name for one in collectives_of(site)}
    looked_at = not openers.isdisjoint(image.versions)
    return Holds(family, stacks, plugin if plugin or looked_at else None)


def format_lock(lock: Lock) -> str:
    """Give the text of a lock; what an image lacks is left out."""
    return _FILE.encode(lock)


def parse_lock(content: bytes, where: str, site: str | None = None) -> Lock:
    """Read a lock; `where` is the file that errors name, `site` the site that it must be of. Raises `LumisiteError`."""

    def faults(lock: Lock) -> Iterator[Finding]:
        if site is not None and lock.site != site:
            yield make_finding("lock-of-another-site", "site", actual=lock.site, expected=site)
        for path, image in lock.images.items():
            here = joined("images", path)
            if not path.startswith("/"):
                yield wrong_type(path, "absolute path", "/images/a.sif").finding(here)
            if image.digest is not None and not re.fullmatch(f"{lock.digest}:[0-9a-f]{{64}}", image.digest):
                example = f"{lock.digest}: and 64 hexadecimal digits"
                yield wrong_type(image.digest, "digest", example).finding(f"{here}.digest")

    return _FILE.decode(content, Lock, where, (faults,))


def load_lock(loaded: LoadedSite, asked: Path | None) -> LoadedLock | None:
    """Read the lock that is asked for, else the one that the site names, beside its own file; errors name the file.

    Raises `ToolError`, or `LumisiteError` for a lock that is damaged or of another site.
    """
    images = loaded.site.images
    path = asked or (loaded.directory / images.lock if images is not None and images.lock is not None else None)
    if path is None:
        return None
    content = read_lock_file(path)
    if content is None:
        raise ToolError(f"cannot read {path}: it is not there (`lumisite images --lock {path}` writes it)")
    return LoadedLock(parse_lock(content, str(path), loaded.site.name), path.name, content)


def read_lock_file(path: Path) -> bytes | None:
    """Give what a lock's file holds, `None` where there is none; raises `ToolError`."""
    try:
        path.stat()
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        pass  # opening it says why, and names it
    source = open_file(str(path))
    if source.size > LARGEST_READ_BYTES:
        raise ToolError(f"cannot read {path}: it has {source.size} bytes (at most {LARGEST_READ_BYTES})")
    return source.read(0, LARGEST_READ_BYTES)


_FILE = JsonFile(
    name="lock of images",
    key="lumisite_images",
    written_by="lumisite images --lock FILE",
)
