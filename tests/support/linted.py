"""What `lint` finds in a script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lumisite.findings.finding import Finding
from lumisite.images.lock import LockedImage
from lumisite.lint.rules import lint_script
from lumisite.site.load import load_site
from lumisite.site.model import Site

LUMI = load_site("lumi").site


def findings(text: str, site: Site = LUMI, locked: Mapping[str, LockedImage] | None = None) -> list[Finding]:
    """Return what is found, without where it is known from."""
    bad = lint_script(text.encode(), "s", site, locked)
    values = [{name: value for name, value in finding.values.items() if name != "source"} for finding in bad]
    return [replace(finding, values=of_it) for finding, of_it in zip(bad, values, strict=True)]


def found(text: str, site: Site = LUMI, locked: Mapping[str, LockedImage] | None = None) -> list[str]:
    """Return line and code of each finding."""
    return [f"{one.place.line} {one.code}" for one in findings(text, site, locked) if one.place]
