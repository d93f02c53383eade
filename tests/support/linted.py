"""What `lint` finds in a script."""

from __future__ import annotations

from collections.abc import Mapping

from lumisite.findings.finding import Finding
from lumisite.images.lock import LockedImage
from lumisite.lint.rule_table import lint_job, read_script
from lumisite.site.load import load_site
from lumisite.site.model import Site

LUMI = load_site("lumi").site


def findings(text: str, site: Site = LUMI, locked: Mapping[str, LockedImage] | None = None) -> list[Finding]:
    """Return what is found, but the hint that no module is loaded, which most pieces of scripts would have."""
    found = lint_job(read_script(text.encode(), "s", site, locked), "s")
    return [finding for finding in found if finding.code != "module-not-loaded"]


def found(text: str, site: Site = LUMI, locked: Mapping[str, LockedImage] | None = None) -> list[str]:
    """Return line and code of each finding, hints among them."""
    return [f"{one.place.line} {one.code}" for one in findings(text, site, locked) if one.place]
