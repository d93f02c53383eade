"""Markdown that GitHub and MkDocs read alike."""

from __future__ import annotations

import re
from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out a table of Markdown cells."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def plain(text: str) -> str:
    r"""Keep text as it reads, except that `code` stays code.

    >>> plain("a|b, *c*, __d, E_F `<g|h>` <i>")
    'a&#124;b, \\*c\\*, \\_\\_d, E_F <code>&lt;g&#124;h></code> &lt;i>'
    """
    return "".join(
        _code(part) if index % 2 else _escaped(part) for index, part in enumerate(re.split(r"`([^`]*)`", text))
    )


def _code(text: str) -> str:
    # A bar would end a table's cell even inside backticks.
    return f"<code>{text.replace('<', '&lt;').replace('|', '&#124;')}</code>" if "|" in text else f"`{text}`"


def _escaped(text: str) -> str:
    text = re.sub(r"[*\[\]\\]|(?<![^\W_])_|_(?![^\W_])", lambda match: f"\\{match[0]}", text)
    return text.replace("<", "&lt;").replace("|", "&#124;")
