"""Site descriptions for tests: the embedded twin with some of its text replaced."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lumisite.errors import SiteError
from lumisite.site.load import EMBEDDED, LoadedSite, site_of


def site_text(*changes: tuple[str, str]) -> str:
    """Give the twin's description with each old text, which must be there, replaced by the new one."""
    text = (EMBEDDED / "twin.yaml").read_text()
    for old, new in changes:
        assert old in text, f"the twin's description has no {old!r}"
        text = text.replace(old, new, 1)
    return text


def lumi_with_lock() -> str:
    """Write LUMI's description, with the file `lock` beside it as its lock of images; return the name of the file."""
    text = (EMBEDDED / "lumi.yaml").read_text()
    assert text.count("\nimages:\n") == 1
    Path("with-lock.yaml").write_text(text.replace("\nimages:\n", "\nimages:\n  lock: lock\n"))
    return "with-lock.yaml"


def load_text(text: str, file: str = "site.yaml") -> LoadedSite:
    return site_of(text.encode(), Path(file))


def site_faults(*changes: tuple[str, str]) -> list[str]:
    """Return the key and the message of each fault of a changed twin."""
    with pytest.raises(SiteError) as caught:
        load_text(site_text(*changes))
    return [f"{finding.subject}: {finding.message}" for finding in caught.value.findings]


def printed_codes(text: str) -> str:
    """Return the findings in a command's output, one a line: `place: key: code`."""
    lines = re.finditer(r"^(?:lumisite: )?(\S+: )(\S+: )?.* \[([a-z0-9-]+)\]$", text, re.MULTILINE)
    return "\n".join(f"{line[1]}{line[2] or ''}{line[3]}" for line in lines)
