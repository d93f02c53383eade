"""The HTML report in a real browser: every plot is there and drawn, nothing is fetched, run or complained about.

On a wide and on a narrow window, with and without plots, nothing is beside the window or cut, and the finding comes first.
"""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from PIL import Image

from lumisite.cli import main
from lumisite.facts.facts import Facts, Interface, Releases, format_facts
from tests.support.example_runs import Maintenance, write_runs
from tests.support.tools import tool

WIDTH = 1200
#: Measures the page as it is laid out; put into a copy, because the page itself runs nothing.
MEASURE = """<script>
const box = one => { const r = one.getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; };
parent.postMessage(JSON.stringify({
  height: document.documentElement.scrollHeight,
  width: document.documentElement.scrollWidth,
  first: document.body.innerText.trim().split('\\n')[0],
  size: parseFloat(getComputedStyle(document.querySelector('h1')).fontSize) /
    Math.max(...[...document.querySelectorAll('h2, p, td, th, li')].map(n => parseFloat(getComputedStyle(n).fontSize))),
  beside: [...document.querySelectorAll('body *')].filter(n => n.getClientRects().length && !n.closest('svg *')).filter(n => {
    const r = n.getBoundingClientRect();
    return r.left < 0 || r.right > innerWidth + 0.5 || (n.scrollWidth > n.clientWidth + 1 && n.clientWidth);
  }).map(n => n.outerHTML.slice(0, 200)),
  texts: [...document.querySelectorAll('svg text')].filter(n => {
    const r = n.getBoundingClientRect(), s = n.closest('svg').getBoundingClientRect();
    return r.width && (r.left < s.left - 1 || r.right > s.right + 1 || r.top < s.top - 1 || r.bottom > s.bottom + 1);
  }).map(n => n.textContent),
  smallest: Math.min(99, ...[...document.querySelectorAll('svg text')].map(n => n.getBoundingClientRect()).map(
    r => r.height).filter(h => h)),
  plots: [...document.querySelectorAll('figure')].map(one => ({
    title: one.querySelector('figcaption').innerText,
    alt: one.querySelector('[role=img]').getAttribute('aria-label'),
    box: box(one.querySelector('svg')),
    marks: [...one.querySelectorAll('svg path, svg use')].filter(p => p.getBBox().width + p.getBBox().height > 0).length,
    words: [...one.querySelectorAll('svg text')].map(t => t.textContent),
  })),
}), '*');
</script></body>"""


@dataclass(frozen=True)
class Plot:
    title: str
    alt: str
    box: tuple[float, float, float, float]
    marks: int
    words: tuple[str, ...]


def browse(home: Path, *arguments: str) -> tuple[str, list[str]]:
    """Run the browser without a display; give what it prints, and what the page made it complain about."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr", "--v=0"]
    offline = "--host-resolver-rules=MAP * ~NOTFOUND"
    browser = tool("chromium", "chromium-browser", "google-chrome")
    done = subprocess.run(
        [browser, *flags, offline, f"--user-data-dir={home}/profile", *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=900,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C.UTF-8"},
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def report(top: Path, came: Maintenance) -> Path:
    before, after = write_runs(top / "runs", came)
    page = top / "report.html"
    assert main(["report", str(after), "--before", str(before), "-o", str(page)]) in (0, 1, 5)
    return page


@dataclass(frozen=True)
class Layout:
    """A page as it is laid out; `beside` and `texts` are elements that are cut or beside the window, and words cut."""

    width: int
    height: int
    first: str
    size: float
    beside: list[str]
    texts: list[str]
    smallest: float
    plots: list[Plot]


def measured(page: Path, width: int = WIDTH) -> Layout:
    """Lay out a page in a frame of that width, as no window is narrower than 500 pixels; give how it came out."""
    copy, frame = page.with_name("measured.html"), page.with_name("frame.html")
    text = re.sub(r"<meta http-equiv=[^>]*>", "", page.read_text())
    assert text.count("</body>") == 1
    copy.write_text(text.replace("</body>", MEASURE))
    frame.write_text(
        f'<title></title><iframe src="measured.html" style="border:0;width:{width}px;height:4000px"></iframe>'
        "<script>onmessage = told => { document.title = told.data; };</script>"
    )
    out, complaints = browse(page.parent, "--window-size=1400,1000", "--dump-dom", frame.as_uri())
    assert complaints == []
    found = re.search(r"<title>(.*?)</title>", out)
    assert found is not None
    raw = json.loads(html.unescape(found[1]))
    plots = [Plot(p["title"], p["alt"], tuple(p["box"]), p["marks"], tuple(p["words"])) for p in raw.pop("plots")]
    return Layout(plots=plots, **raw)


def colours(page: Path, height: int, plots: Sequence[Plot]) -> Iterator[set[tuple[int, ...]]]:
    """Give the colours of each plot on a picture of the page."""
    picture = page.with_suffix(".png")
    _, complaints = browse(
        page.parent, f"--window-size={WIDTH},{height}", f"--screenshot={picture}", page.as_uri()
    )  # fmt: skip
    assert complaints == []
    with Image.open(picture) as whole:
        assert whole.size == (WIDTH, height)
        for plot in plots:
            x, y, width, height_px = plot.box
            part = whole.convert("RGB").crop((round(x), round(y), round(x + width), round(y + height_px)))
            yield {colour for _, colour in part.getcolors(1 << 24) or () if isinstance(colour, tuple)}


def rgb(text: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(text.removeprefix("#")))


def test_every_plot_is_seen_and_nothing_is_complained_about(tmp_path: Path) -> None:
    from lumisite.validate.report.plots import AFTER, BEFORE

    page = report(tmp_path, Maintenance(network=0.85, slow_node="nid005017", failed_gate="transport"))
    layout = measured(page)
    height, plots = layout.height, layout.plots
    assert layout.width == WIDTH, "the page is wider than the window"
    assert [plot.title for plot in plots] == [
        "collectives/all_reduce_busbw/2n by message size",  # the finding
        "collectives/all_reduce_busbw/1n by message size",
        "ddp/samples_per_s/comm by shape",
        "ddp/samples_per_s/compute by shape",
    ]
    for plot, seen in zip(plots, colours(page, height, plots), strict=True):
        assert plot.box[2] > 400, plot.title
        assert plot.box[3] > 200, plot.title
        assert plot.marks > 10, plot.title
        assert len(plot.alt) > 40, plot.title
        assert len(seen) > 20, plot.title
        assert {rgb(BEFORE), rgb(AFTER)} <= seen, plot.title
    assert {"1MiB", "4GiB", "GB/s"} <= set(plots[0].words)


@pytest.mark.parametrize(("width", "drawn"), [(390, True), (WIDTH, True), (390, False)])
def test_the_finding_comes_first_and_nothing_is_beside_the_window(
    width: int, drawn: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not drawn:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        monkeypatch.delitem(sys.modules, "lumisite.validate.report.plots", raising=False)  # of an earlier test
    came = Maintenance(network=0.85, slow_node="nid005009", failed_gate="transport")
    before, after = write_runs(tmp_path / "runs", came)
    file, page = after / "samples.jsonl", tmp_path / "report.html"
    file.write_text(file.read_text().replace("bind the host's", f"bind {'a_name_without_a_blank' * 8}, the host's"))
    assert main(["report", str(after), "--before", str(before), "-o", str(page)]) == 1
    layout = measured(page, width)
    assert layout.first.startswith("FAIL: transport failed (rank 3 used sockets")
    assert layout.first.endswith(
        "; 15 % slower between nodes; libfabric changed; nid005009 is 15 % slower than the others"
    )
    assert layout.size > 1.05  # nothing is as large
    assert layout.width == width
    assert layout.beside == []
    assert layout.texts == []
    assert bool(layout.plots) == drawn
    if drawn:
        assert layout.plots[0].box[1] < 1500, "the plot that shows it is not far below"
        assert layout.smallest > 7  # pixels


@pytest.mark.parametrize(("width", "gates"), [(390, 200), (WIDTH, 0)])
def test_long_names_and_causes_and_many_gates_and_none_are_not_cut(width: int, gates: int, tmp_path: Path) -> None:
    host = f"node-of-a-cloud-in-a-region-far-away-1.{'compute-pool-' * 10}x.example.org"
    before, after = write_runs(tmp_path / "runs", Maintenance(network=0.85, slow_node="nid005009"))
    for file in after.glob("*.json*"):
        file.write_text(file.read_text().replace("nid005009", host))
    rows = list(map(json.loads, (after / "samples.jsonl").read_text().splitlines()))
    gate = next(row for row in rows if "gate" in row) | {"verdict": "fail", "cause": f"{'a cause ' * 20}{'x' * 300}"}
    rows = [row for row in rows if "gate" not in row] + [{**gate, "gate": f"gate_{n:03}"} for n in range(gates)]
    (after / "samples.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    page = tmp_path / "report.html"
    assert main(["report", str(after), "--before", str(before), "-o", str(page)]) == 1
    layout = measured(page, width)
    assert layout.first.startswith(
        "FAIL: gate_000, gate_001 and 198 more failed; 15 %" if gates else "FAIL: 15 % slower"
    )
    assert layout.first.endswith(f"{host} is 15 % slower than the others")
    assert (layout.width, layout.beside, layout.texts) == (width, [], [])


def test_hostile_texts_stay_texts(tmp_path: Path) -> None:
    before, after = write_runs(tmp_path / "runs", Maintenance(failed_gate="binds"))
    hostile = '<script>document.title="owned"</script><img src=x onerror=alert(1)> $x^2$ & "quotes"'
    hostile_facts = Facts("lumi", products={hostile: Releases((hostile,))}, interfaces={hostile: Interface(hostile)})
    (after / "facts.json").write_text(format_facts(hostile_facts))
    for side in (before, after):
        text = (side / "samples.jsonl").read_text()
        text = text.replace('"unit": "1/s"', '"unit": "$\\\\frac{$"')
        quoted = json.dumps(f"ddp{hostile}")[1:-1]
        (side / "samples.jsonl").write_text(
            text.replace('"ddp/', f'"{quoted}/').replace("no <plugin>", f"no {json.dumps(hostile)[1:-1]}")
        )
    page = tmp_path / "report.html"
    assert main(["report", str(after), "--before", str(before), "-o", str(page)]) == 1
    out, complaints = browse(tmp_path, "--dump-dom", page.as_uri())
    assert complaints == []
    assert "<title>FAIL: binds failed (rank 3 used sockets: no &lt;script&gt;" in out
    assert "<script" not in out
    assert "<img" not in out
    assert any(hostile in plot.title for plot in measured(page).plots)
