"""All entries of the catalogue, for tests that look at each of them."""

from __future__ import annotations

from collections.abc import Mapping

from lumisite.findings.catalogue import FOLDER, CatalogueEntry, load_group


def catalogue() -> Mapping[str, CatalogueEntry]:
    """Return all entries by code; raises `ValueError` for a code that two files have."""
    entries: dict[str, CatalogueEntry] = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        found = load_group(path.stem)
        if twice := entries.keys() & found.keys():
            raise ValueError(f"{path.name}: {', '.join(twice)}: in another file too")
        entries |= found
    return entries
