"""cotainr's `systems.json`, with the file behind each name of a base image.

Source: `cotainr/util.py` of cotainr 2025.7.1, which reads `base-image` of each system from the file beside its package.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lumisite.errors import DifferenceError, SiteError
from lumisite.images.inventory import Reading, read_inventory
from lumisite.site.json_file import parse_json

_KEY = "base-image"


def pin_systems(reading: Reading, before: bytes | None, where: str) -> tuple[str, list[str]]:
    """Give the text of `systems.json`, and what an admin should know about it.

    Systems and keys of the file as it is (`before`) that the site does not have are kept. Raises `DifferenceError` with
    a line for each base image that is not sound.
    """
    systems = reading.site.images.cotainr if reading.site.images is not None else {}
    files = dict.fromkeys(system.base_image for system in systems.values() if system.base_image.startswith("/"))
    known = {image.path: image for image in read_inventory(reading, [(path, ()) for path in files])}
    pinned = _parse(before, where)
    notes = [f"{where}: {name}: is not in the site description, and is kept" for name in pinned if name not in systems]
    faults = []
    for name, system in systems.items():
        base = str(system.base_image)
        if base in known:
            if known[base].fault:
                faults.append(f"images.cotainr.{name}: {base}: {known[base].fault}")
            base = known[base].target or base
        elif "@sha256:" not in base:
            notes.append(f"images.cotainr.{name}: {base} may come to mean another image (one with @sha256: may not)")
        pinned[name] = {**pinned.get(name, {}), _KEY: base}
    if faults:
        raise DifferenceError("\n".join((*faults, f"lumisite: {where} was not written")))
    return json.dumps(pinned, sort_keys=True, indent=2) + "\n", notes


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
