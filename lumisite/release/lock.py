"""The lock of a site's images: what each name led to, and what it held, when an admin last agreed to it.

It is JSON with sorted keys, so that the same images always give the same bytes, and a version control system shows
what moved.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lumisite.binds.digest import KINDS, Kind
from lumisite.binds.inventory import Image
from lumisite.errors import LumisiteError, SiteError, shown
from lumisite.site.document import Node, Table, parse_document

FORMAT = 1
LARGEST_LOCK_BYTES = 64 * 1024 * 1024

_DIGEST = re.compile(r"(header|whole):[0-9a-f]{64}")


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


def format_lock(lock: Lock) -> str:
    """Give the text of a lock; what an image lacks is left out."""
    document = {
        "lumisite_images": FORMAT,
        "site": lock.site,
        "digest": lock.digest,
        "given": list(lock.given),
        "images": {path: _entry(image) for path, image in lock.images.items()},
    }
    return json.dumps(document, sort_keys=True, indent=2) + "\n"


def _entry(image: LockedImage) -> dict[str, Any]:
    entry = {
        "target": image.target,
        "links": list(image.links),
        "size": image.size,
        "digest": image.digest,
        "family": image.family,
        "versions": dict(image.versions),
        "fault": image.fault,
    }
    return {name: value for name, value in entry.items() if value not in (None, "", [], {})}


@dataclass(frozen=True)
class _Reader:
    """A lock that may hold anything; each fault names the file, the line and the key."""

    content: bytes
    where: str

    def fault(self, path: tuple[str, ...], what: str) -> LumisiteError:
        line = _line(self.content, path)
        place = f"{self.where}:{line}" if line else self.where
        name = ".".join(shown(part) for part in path)
        return LumisiteError(f"{place}: {name}: {what}" if name else f"{place}: {what}")

    def document(self) -> dict[str, Any]:
        again = f"write a new lock with `lumisite images --lock`, to a new file, if {self.where} cannot be restored"
        try:
            document = json.loads(self.content.decode(), object_pairs_hook=_once)
        except json.JSONDecodeError as error:
            raise LumisiteError(
                f"{self.where}:{error.lineno}:{error.colno}: is no JSON: {error.msg} ({again})"
            ) from None
        except UnicodeDecodeError as error:
            line = self.content.count(b"\n", 0, error.start) + 1
            raise LumisiteError(f"{self.where}:{line}: byte {error.start} is not UTF-8 ({again})") from None
        except (ValueError, RecursionError) as error:
            raise LumisiteError(f"{self.where}: is no lock of images: {str(error) or 'nested too deep'}") from None
        if not isinstance(document, dict) or "lumisite_images" not in document:
            raise LumisiteError(f"{self.where}:1: is no lock of images (it would have the key lumisite_images)")
        return document

    def take(self, mapping: Mapping[str, Any], path: tuple[str, ...], kind: type, right: str) -> Any:
        """Give what stands at the last name of `path`, which must be there."""
        if path[-1] not in mapping:
            raise self.fault(path[:-1], f"{path[-1]} is missing ({right} would be right)")
        value = mapping[path[-1]]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise self.fault(path, f"{_short(value)} is wrong ({right} would be right)")
        return value

    def texts(self, mapping: Mapping[str, Any], path: tuple[str, ...]) -> tuple[str, ...]:
        values = self.take(mapping, path, list, "a list of texts")
        if not all(isinstance(value, str) for value in values):
            raise self.fault(path, f"{_short(values)} is wrong (a list of texts would be right)")
        return tuple(values)


def parse_lock(content: bytes, where: str, site: str | None = None) -> Lock:
    """Read a lock; `where` is the file that errors name, `site` the site that it must be of.

    Raises `LumisiteError`, with `FILE:LINE: key: what is wrong (what would be right)`.
    """
    reader = _Reader(content, where)
    document = reader.document()
    found = document["lumisite_images"]
    if found != FORMAT or isinstance(found, bool):
        raise reader.fault(("lumisite_images",), f"{_short(found)} is a format that is not read here ({FORMAT} is)")
    name = reader.take(document, ("site",), str, "the name of a site")
    if site is not None and name != site:
        raise reader.fault(
            ("site",), f"is a lock of site {shown(name)}, not of {site} (give --site, or another --lock)"
        )
    digest = reader.take(document, ("digest",), str, " or ".join(KINDS))
    if digest not in KINDS:
        raise reader.fault(("digest",), f"{_short(digest)} is not known here ({' or '.join(KINDS)} would be right)")
    given = reader.texts(document, ("given",))
    images = reader.take(document, ("images",), dict, "an object with a key for each image")
    return Lock(name, digest, given, {path: _image(reader, images, path, digest) for path in images})


def _image(reader: _Reader, images: Mapping[str, Any], path: str, digest: Literal["header", "whole"]) -> LockedImage:
    at = ("images", path)
    if not path.startswith("/"):
        raise reader.fault(at, "is no absolute path")
    entry = reader.take(images, at, dict, "an object")
    texts = {
        name: reader.take(entry, (*at, name), str, "a text")
        for name in ("target", "family", "digest", "fault")
        if name in entry
    }
    if "digest" in texts and (not _DIGEST.fullmatch(texts["digest"]) or not texts["digest"].startswith(digest)):
        right = f"{digest}: and 64 hexadecimal digits"
        raise reader.fault((*at, "digest"), f"{_short(texts['digest'])} is wrong ({right} would be right)")
    versions = reader.take(entry, (*at, "versions"), dict, "an object") if "versions" in entry else {}
    for name in versions:
        reader.take(versions, (*at, "versions", name), str, "a text")
    size = reader.take(entry, (*at, "size"), int, "a number of bytes") if "size" in entry else None
    links = reader.texts(entry, (*at, "links")) if "links" in entry else ()
    return LockedImage(
        texts.get("target"), links, size, texts.get("digest"), texts.get("family"), versions, texts.get("fault", "")
    )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {shown(twice)} stands twice in one object")
    return found


def _line(content: bytes, path: tuple[str, ...]) -> int:
    """Give the line of a key (of the last part of its path that is there), 0 when it cannot be told.

    JSON is read as YAML for that, whose reader in this project knows where everything stands.
    """
    try:
        node: Node = parse_document(content, "")
    except (SiteError, ValueError):
        return 0
    line = node.line
    for part in path:
        place = [(key, value) for key, value in node.pairs if key.text == part] if isinstance(node, Table) else []
        if not place:
            break
        line, node = place[0][0].line, place[0][1]
    return line


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
