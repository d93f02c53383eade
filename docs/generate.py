"""Writes the reference pages and pictures: `python -m docs.generate`. A page's text is made by the module beside it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from docs.draw import PICTURES
from docs.reference.cli import cli_page
from docs.reference.findings import findings_page
from docs.reference.settings import settings_page
from docs.reference.site import plan_page, site_page
from docs.reference.symptoms import symptoms_page

DOCS = Path(__file__).parent

PAGES: Mapping[str, Callable[[], str]] = {
    "reference/cli.md": cli_page,
    "reference/findings.md": findings_page,
    "reference/plan.md": plan_page,
    "reference/settings.md": settings_page,
    "reference/site.md": site_page,
    "reference/symptoms.md": symptoms_page,
    **PICTURES,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Write the pages, or with `--check` name those that are stale; returns 0, or 1 when there are any."""
    parser = argparse.ArgumentParser(prog="python -m docs.generate", description="Write pages and pictures.")
    parser.add_argument("--check", action="store_true", help="write nothing; name the stale pages and exit 1")
    arguments = parser.parse_args(argv)
    stale = stale_pages(DOCS)
    for name, text in stale.items():
        if arguments.check:
            print(f"docs/{name}: is stale (python -m docs.generate writes it anew)")
        else:
            (DOCS / name).parent.mkdir(exist_ok=True)
            (DOCS / name).write_text(text, encoding="utf-8")
            print(f"docs/{name}: written")
    return 1 if stale and arguments.check else 0


def stale_pages(directory: Path) -> dict[str, str]:
    """Give the new text of each page that `directory` does not hold as it should be."""
    texts = {name: make() for name, make in PAGES.items()}
    on_disk = {name: (directory / name).read_bytes() if (directory / name).exists() else b"" for name in texts}
    return {name: text for name, text in texts.items() if on_disk[name] != text.encode()}


if __name__ == "__main__":
    sys.exit(main())
