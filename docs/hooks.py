"""What MkDocs must know beyond its configuration.

The reference pages are made from the program when the pages are built, and are in no checkout.

A fence such as ```` ```console no-run ```` or ```` ```yaml append=site.yaml ```` says in its second word what the test
does with the block. Python-Markdown takes one word only, so the rest is dropped before it reads the page.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parents[1]))  # MkDocs runs this file by its path

from docs.generate import PAGES


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated reference pages."""
    for name, page in PAGES.items():
        files.append(File.generated(config, name, content=page()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Leave of each fence's words only the language."""
    return re.sub(r"^(```+\w+)[ ].*$", r"\1", markdown, flags=re.MULTILINE)
