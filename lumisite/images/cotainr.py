"""cotainr's `systems.json`, with the file behind each name of a base image.

Source: `cotainr/util.py` of cotainr 2025.7.1, which reads `base-image` of each system from the file beside its package.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lumisite.errors import DifferenceError, SiteError
from lumisite.images.inventory import Image
from lumisite.site.json_file import parse_json
from lumisite.site.model import Site

_KEY = "base-image"


@dataclass(frozen=True)
class Pinned:
    """What to write, and what an admin should know about it."""

    text: str
    notes: tuple[str, ...]


def base_images(site: Site) -> tuple[str, ...]:
    """Give the base images of the site that are files."""
    systems = site.images.cotainr if site.images is not None else {}
    return tuple(dict.fromkeys(one.base_image for one in systems.values() if one.base_image.startswith("/")))


def pin_systems(site: Site, images: Iterable[Image], before: bytes | None, where: str) -> Pinned:
    """Give the text of `systems.json`; raises `DifferenceError` with a line for each base image that is not sound.

    Systems and keys of the file as it is (`before`) that the site does not have are kept.
    """
    known = {image.path: image for image in images}
    systems = _parse(before, where)
    notes = [f"{where}: {name}: is not in the site description, and is kept" for name in systems]
    faults = []
    for name, system in (site.images.cotainr if site.images is not None else {}).items():
        notes = [note for note in notes if not note.startswith(f"{where}: {name}:")]
        pinned = str(system.base_image)
        if pinned.startswith("/"):
            image = known[pinned]
            if image.fault or image.target is None:
                faults.append(f"images.cotainr.{name}: {pinned}: {image.fault}")
            pinned = image.target or pinned
        elif "@sha256:" not in pinned:
            notes.append(f"images.cotainr.{name}: {pinned} may come to mean another image (one with @sha256: may not)")
        systems[name] = {**systems.get(name, {}), _KEY: pinned}
    if faults:
        raise DifferenceError("\n".join((*faults, f"lumisite: {where} was not written")))
    return Pinned(json.dumps(systems, sort_keys=True, indent=2) + "\n", tuple(notes))


def _parse(content: bytes | None, where: str) -> dict[str, Mapping[str, Any]]:
    if content is None:
        return {}
    try:
        found = parse_json(content, where)
    except SiteError as error:
        raise DifferenceError(f"{error}, so it is not replaced; name a new file") from None
    if not isinstance(found, dict) or not all(isinstance(one, dict) and _KEY in one for one in found.values()):
        raise DifferenceError(f"{where}: is no systems.json of cotainr, so it is not replaced; name a new file")
    return found
