"""The site of the releases in a deployment root."""

from __future__ import annotations

from lumisite.cli.site_choice import recorded_site
from lumisite.release.root import Root, manifests


def site_of_root(root: Root) -> str:
    """Return the site of the releases in a root, as `recorded_site` does; empty where it is not known here."""
    named = next((manifest.site for manifest in manifests(root)), "")
    return recorded_site(named, root.release(root.current) if root.current else None)
