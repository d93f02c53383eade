"""The lock of a site's images: what each name led to, and what it held, when an admin last agreed to it.

It is JSON with sorted keys, so that the same images always give the same bytes, and a version control system shows
what moved.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from lumisite.errors import LumisiteError, ToolError, wrong_type
from lumisite.findings.finding import Finding, Severity
from lumisite.images.network import PluginSearch, holds_of
from lumisite.machine.host import LARGEST_READ_BYTES, refused_with_command
from lumisite.site.decode import contradiction
from lumisite.site.images import Holds, family_by_path
from lumisite.site.json_file import JsonFile
from lumisite.site.load import LoadedSite
from lumisite.site.model import Site
from lumisite.site.read import read_file
from lumisite.site.yaml import joined
from lumisite.text import printable

CHANGED_CONTENT = "other content under the same name"


@dataclass(frozen=True)
class LockedImage:
    """What is known of one name of an image: what a lock keeps of it.

    `links` are the texts of the links on the way, `target` is the file at the end, of `size` bytes. What begins with
    `libfabric` is what its plugin finds, as in `PluginSearch`. `sets` are the variables of the ledger that the image
    sets itself. `fault` is the code of what was wrong with it; the rest is then what could be read all the same.
    """

    target: str | None = None
    links: tuple[str, ...] = ()
    size: int | None = None
    digest: str | None = None
    family: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    libfabric: str | None = None
    libfabric_folders: tuple[str, ...] | None = None
    libfabric_versions: Mapping[str, str] = field(default_factory=dict)
    sets: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""


@dataclass(frozen=True)
class Lock:
    """The images of a site by path; `given` are the paths of the command line, none means the site's directories."""

    site: str
    given: tuple[str, ...]
    images: Mapping[str, LockedImage]


@dataclass(frozen=True)
class LoadedLock:
    """A lock with the text that it was read from; `file` is the name that output may show."""

    lock: Lock
    file: str
    data: bytes


def holds_by_lock(site: Site, path: str, image: LockedImage, platform: str | None = None) -> Holds:
    """Return what a lock says that an image holds, on a platform (default: the current one).

    A family counts if it recognised the image, and does not only stand for what none recognises.
    """
    known = site.families.get(image.family or "")
    recognised = known is not None and known.default_for is None
    named = family_by_path(site, image.target or path, path)
    family = image.family if recognised or named == image.family else None
    search = PluginSearch(image.libfabric, image.libfabric_folders, image.libfabric_versions)
    return holds_of(site, platform or site.platform, family, image.versions, search, image.sets)


def format_lock(lock: Lock) -> str:
    """Return the text of a lock; what an image lacks is left out."""
    return _FILE.encode(lock)


def parse_lock(content: bytes, where: str, site: str | None = None) -> Lock:
    """Read a lock; `where` is the file that errors name, `site` the site that it must be of. Raises `LumisiteError`."""

    def faults(lock: Lock) -> Iterator[Finding]:
        if site is not None and lock.site != site:
            message = f"is of site {printable(lock.site)}, expected {site}"
            yield contradiction("site", message, "give `--site`, or another `--lock`")
        for path, image in lock.images.items():
            key = joined("images", path)
            if not path.startswith("/"):
                yield wrong_type(path, "full path", "/images/a.sif").finding(key)
            if image.digest is not None and not re.fullmatch("header:[0-9a-f]{64}", image.digest):
                yield wrong_type(image.digest, "digest", "header: and 64 hexadecimal digits").finding(f"{key}.digest")

    return _FILE.decode(content, Lock, where, (faults,))


def load_lock(loaded: LoadedSite) -> LoadedLock | None:
    """Read the lock that the site names, beside its own file; return `None` where it names none.

    Raises `ToolError`, or `LumisiteError` for a lock that is damaged or of another site.
    """
    images = loaded.site.images
    if images is None or images.lock is None:
        return None
    path = loaded.directory / images.lock
    content = read_optional(path)
    if content is None:
        raise ToolError(missing_lock(str(path)))
    return LoadedLock(parse_lock(content, str(path), loaded.site.name), path.name, content)


def missing_lock(file: str) -> Finding:
    """Return that there is no lock in a file."""
    advice = f"`lumisite images --lock {file}` writes it"
    return Finding("file-unreadable", Severity.FAULT, "no such file", advice, file)


def unlike_lock(loaded: LoadedSite, path: str, digits: str) -> Finding | None:
    """Return the finding for an image whose header digest does not begin as the site's lock has it, if any."""
    with suppress(LumisiteError):
        lock = load_lock(loaded)
        image = lock.lock.images.get(path) if lock else None
        if digits and image and image.digest and not image.digest.startswith(f"header:{digits}"):
            advice = "restore it, or lock the images again"
            return Finding("locked-image-changed", Severity.DOUBT, CHANGED_CONTENT, advice, path)
    return None


def read_optional(path: Path) -> bytes | None:
    """Return the content of a file, `None` where there is none; raises `ToolError`."""
    try:
        return read_file(path, LARGEST_READ_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise refused_with_command("read", error) from None


_FILE = JsonFile(
    name="lock of images",
    key="lumisite_images",
    written_by="lumisite images --lock FILE",
)
