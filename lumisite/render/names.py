"""Names that a site does not have."""

from __future__ import annotations

from collections.abc import Iterable

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding
from lumisite.site.decode import alternatives


def unknown_name(subject: str, name: str, kind: str, site: str, known: Iterable[str]) -> Finding:
    """Return a finding about a name of some kind, with the known name that is most like it."""
    return make_finding("name-unknown", subject, name=name, kind=kind, site=site, **alternatives(name, known))
