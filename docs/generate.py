"""The reference pages, made when the pages are built, and the pictures: `python -m docs.generate` draws these.

A page's text is made by the module beside it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from docs.pictures.draw import PICTURES
from docs.reference.cli import cli_page
from docs.reference.settings import settings_page
from docs.reference.site import plan_page, site_page

DOCS = Path(__file__).parent

PAGES: Mapping[str, Callable[[], str]] = {
    "reference/cli.md": cli_page,
    "reference/plan.md": plan_page,
    "reference/settings.md": settings_page,
    "reference/site.md": site_page,
}


def main() -> int:
    """Draw the stale pictures again."""
    for name, text in stale_pictures(DOCS).items():
        (DOCS / name).write_text(text, encoding="utf-8")
        print(f"docs/{name}: drawn")
    return 0


def stale_pictures(directory: Path) -> dict[str, str]:
    """Return the new text of each picture that `directory` does not hold as it should be."""
    texts = {name: draw() for name, draw in PICTURES.items()}
    on_disk = {name: (directory / name).read_bytes() if (directory / name).exists() else b"" for name in texts}
    return {name: text for name, text in texts.items() if on_disk[name] != text.encode()}


if __name__ == "__main__":
    sys.exit(main())
