"""Pictures of the pages, drawn from text: graphs by Graphviz, a page by Chromium.

A picture begins with the sum of what it was drawn from, so that a stale one is found without drawing it again: two
versions of Graphviz draw one graph in two ways.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import lumisite.validate.report
from lumisite import __version__
from lumisite.cli import main

DOCS = Path(__file__).parents[1]
PAGE = Path(lumisite.validate.report.__file__).with_name("report.html.j2")


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


#: The report of the page: its runs, and the windows that it is seen in, in pixels.
REPORT = ("report", str(DOCS / "examples/after"), "--before", str(DOCS / "examples/before"))
WINDOWS = ((1200, 800), (390, 800))
GAP = 24


def report_text() -> str:
    """Give what the page of a report is made from."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        main(REPORT)
    return out.getvalue().replace(f"lumisite {__version__}", "") + PAGE.read_text()


def seen_in_windows(_: str) -> str:
    """Draw the page as a browser shows it, on a desk and on a phone. Raises `OSError` without Chromium."""
    images, left = [], 0
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "report.html")
        main([*REPORT, "-o", str(page)])
        for width, height in WINDOWS:
            # No window is narrower than 500 pixels, but a frame may be.
            frame = (
                f'<body style="margin:0"><iframe src="report.html" width="{width}" height="{height}" scrolling="no" '
            )
            Path(folder, "frame.html").write_text(f'{frame}style="border:0"></iframe>')
            shot = Path(folder, "shot.png")
            flags = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}/p")
            window = (f"--window-size={max(width, 500)},{height}", f"--screenshot={shot}")
            command = ["chromium", *flags, *window, f"file://{folder}/frame.html"]
            subprocess.run(command, check=True, capture_output=True)
            data = base64.b64encode(shot.read_bytes()).decode()
            box = f'x="{left}" y="0" width="{width}" height="{height}"'
            images.append(
                f'<svg {box} viewBox="0 0 {width} {height}"><image width="{max(width, 500)}" height="{height}" '
                f'href="data:image/png;base64,{data}"/></svg><rect {box} fill="none" stroke="#999"/>'
            )
            left += width + GAP
    size = f"{left - GAP} {WINDOWS[0][1]}"
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}">\n' + "\n".join(images) + "\n</svg>\n"


PICTURES = {
    f"pictures/{name}.svg": partial(drawn, f"pictures/{name}.svg", (DOCS / f"pictures/{name}.dot").read_text, graph)
    for name in ("job", "update")
} | {
    "pictures/report.svg": partial(drawn, "pictures/report.svg", report_text, seen_in_windows),
}
