"""cotainr's `systems.json`, with the file behind each name of a base image.

Source: `cotainr/util.py` of cotainr 2025.7.1, which reads `base-image` of each system from the file beside its package.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lumisite.errors import DifferenceError, SiteError
from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding
from lumisite.findings.writers import line
from lumisite.images.inventory import Reading, read_inventory
from lumisite.site.json_file import parse_json

_KEY = "base-image"


def pin_systems(reading: Reading, before: bytes | None, file: str) -> tuple[str, list[Finding]]:
    """Return the text of `systems.json`, and findings; with one of severity fault it must not be written.

    Systems and keys of the file as it is (`before`) that the site does not have are kept. Raises `DifferenceError`
    where that is another file.
    """
    systems = reading.site.images.cotainr if reading.site.images is not None else {}
    files = dict.fromkeys(system.base_image for system in systems.values() if system.base_image.startswith("/"))
    known = {image.path: image for image in read_inventory(reading, [(path, ()) for path in files])}
    pinned = _parse(before, file)
    findings = [make_finding("system-kept", file, name=name) for name in pinned if name not in systems]
    for name, system in systems.items():
        key, base = f"images.cotainr.{name}", str(system.base_image)
        image = known.get(base)
        if image is not None and image.fault is not None:
            findings.append(make_finding("base-image-unusable", key, path=base, reason=line(image.fault)))
        elif image is not None:
            base = image.target or base
        elif "@sha256:" not in base:
            findings.append(make_finding("base-image-unpinned", key, image=base))
        pinned[name] = {**pinned.get(name, {}), _KEY: base}
    return json.dumps(pinned, sort_keys=True, indent=2) + "\n", findings


def _parse(content: bytes | None, file: str) -> dict[str, Mapping[str, Any]]:
    if content is None:
        return {}
    try:
        systems: Any = parse_json(content, file)
    except SiteError:
        systems = None
    if not isinstance(systems, dict) or not all(map(_is_system, systems.values())):
        raise DifferenceError(make_finding("systems-file-unfit", file))
    return systems


def _is_system(value: object) -> bool:
    return isinstance(value, dict) and _KEY in value
