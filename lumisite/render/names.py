"""Names that a site does not have."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding


def unknown_name(subject: str, name: str, kind: str, site: str, known: Iterable[str]) -> Finding:
    """Return a finding about a name of some kind, with the known name that is most like it."""
    names = tuple(map(str, known))
    near = "".join(difflib.get_close_matches(name, names, n=1, cutoff=0.6))
    return make_finding("name-unknown", subject, name=name, kind=kind, site=site, near=near, known=names)
