"""Pictures of the pages, drawn from text: graphs by Graphviz, a terminal by rich.

A picture begins with the sum of what it was drawn from, so that a stale one is found without drawing it again: two
versions of Graphviz draw one graph in two ways.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.text import Text

from lumisite.cli import main

DOCS = Path(__file__).parent
#: The image of the example is LUMI AI Factory's, whose name alone decides.
ENV = "lumisite env lumi-multitorch-full-u24r70f21m50t210-20260807_115122.sif --site lumi --nodes 2"
#: What of a long output a picture shows.
LINES = 34
WIDTH = 110


def drawn(name: str, source: Callable[[], str], draw: Callable[[str], str]) -> str:
    """Give the picture that is there if it was drawn from what `source` gives now, else a new one."""
    text = source()
    mark = f"<!-- drawn from {hashlib.sha256(text.encode()).hexdigest()[:16]} -->\n"
    path = DOCS / name
    there = path.read_text() if path.exists() else ""
    return there if there.startswith(mark) else mark + draw(text)


def graph(text: str) -> str:
    """Draw a graph in Graphviz's language. Raises `OSError` where its `dot` is not installed."""
    svg = subprocess.run(["dot", "-Tsvg"], input=text, capture_output=True, text=True, check=True).stdout
    return svg[svg.index("<svg") :]


def shown_on_terminal() -> str:
    """Run the command of the picture, and give the first lines of what a terminal shows."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        main(ENV.split()[1:])
    told = re.sub(r"/tmp/lumisite-[0-9]+", "/tmp/lumisite-1000", out.getvalue())  # whoever draws it
    lines = [f"$ {ENV}", *told.splitlines()]
    return "\n".join([*(line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…" for line in lines[:LINES]), "…"])


def terminal(text: str) -> str:
    """Draw text as a terminal shows it."""
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(Text(text))
    svg = console.export_svg(title="lumisite env", unique_id="env")
    return re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)  # which would be fetched from elsewhere


PICTURES = {
    f"pictures/{name}.svg": partial(drawn, f"pictures/{name}.svg", (DOCS / f"pictures/{name}.dot").read_text, graph)
    for name in ("job", "update")
} | {"pictures/env.svg": partial(drawn, "pictures/env.svg", shown_on_terminal, terminal)}
