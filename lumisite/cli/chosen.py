"""The site that is meant where none is asked for."""

from __future__ import annotations

import fnmatch
import os
import re
import socket

from lumisite.site import load
from lumisite.site.document import parse_yaml

#: The site where nothing says which.
_OTHERWISE = "lumi"


def default_site() -> tuple[str, str]:
    """Give the site that is meant where none is asked for, and why; raises `ResolveError`."""
    if name := os.environ.get("LUMISITE_SITE", ""):
        load.require_site(name, "LUMISITE_SITE")
        return name, "by LUMISITE_SITE"
    host = socket.gethostname()  # the whole name would take a name server, which may be slow
    for name in load.embedded_sites():
        for sign in _known_by(name):
            if os.path.lexists(sign) if sign.startswith("/") else fnmatch.fnmatchcase(host, sign):
                return name, f"as {sign} is here" if sign.startswith("/") else f"as this host is {host}"
    return _OTHERWISE, "the default"


def own_site(name: str) -> str:
    """Give a site's name out of a file, such as a manifest, if a site is embedded by it: else it opens nothing."""
    return name if name in load.embedded_sites() else ""


def _known_by(name: str) -> tuple[str, ...]:
    """Give what tells that a machine is an embedded site: to decode all of each file would take a second."""
    text = load.read_input(load.EMBEDDED / f"{name}.yaml").decode()
    match = re.search(r"^known_by:.*(?:\n[ -].*)*", text, re.MULTILINE)
    return () if match is None else tuple(parse_yaml(match[0].encode(), name).value["known_by"])
