"""What MkDocs must know beyond its configuration.

A fence such as ```` ```console no-run ```` or ```` ```yaml append=site.yaml ```` says in its second word what the test
does with the block. Python-Markdown takes one word only, so the rest is dropped before it reads the page.
"""

from __future__ import annotations

import re
from typing import Any


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Leave of each fence's words only the language."""
    return re.sub(r"^(```+\w+)[ ].*$", r"\1", markdown, flags=re.MULTILINE)
