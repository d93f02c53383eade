"""Draw the plots of a report as SVG inside a page: text stays text, and the same numbers give the same bytes.

Every plot has a sentence for those who do not see it. Before is orange and dashed, after is blue and solid: told apart
without colour too (palette: Okabe and Ito, 2008).
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from lumisite.validate.metric_names import size_text
from lumisite.validate.report.gather import Curve, Distribution, NodeMap, Report, Scaling

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BEFORE, AFTER, BAD = "#E69F00", "#0072B2", "#D55E00"
#: Nodes in a row of the map, and how far from the median its colours reach.
ROW, REACH = 32, 0.10
WIDTH_IN, HEIGHT_IN = 7.0, 3.4
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "lumisite",
    "font.family": "sans-serif",
    "axes.grid": True,
    "text.parse_math": False,
}


@dataclass(frozen=True)
class Plot:
    """A drawing: its title, what it shows in a sentence, the SVG element, and the numbers as a table."""

    title: str
    sentence: str
    svg: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def plots(report: Report) -> Iterator[Plot]:
    """Draw everything that the report has numbers for."""
    drawers = [
        *(partial(_curve, curve) for curve in report.curves),
        *(partial(_distribution, spread) for spread in report.distributions),
        *(partial(_scaling, scaling) for scaling in report.scalings),
        *(partial(_map, nodes) for nodes in report.maps),
    ]
    for number, draw in enumerate(drawers, start=1):
        yield draw(number)


def _curve(curve: Curve, number: int) -> Plot:
    def draw(axes: Axes) -> None:
        for points, colour, line, name in ((curve.before, BEFORE, "--", "before"), (curve.after, AFTER, "-", "after")):
            if points:
                sizes = [point.size for point in points]
                axes.plot(sizes, [point.middle for point in points], line, color=colour, marker="o", label=name)
                low, high = [point.low for point in points], [point.high for point in points]
                axes.fill_between(sizes, low, high, color=colour, alpha=0.2, linewidth=0)
        sizes = sorted({point.size for point in (*curve.before, *curve.after)})
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [size_text(size) for size in sizes], rotation=30, ha="right")
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set_xlabel("message size")
        axes.set_ylabel(curve.unit or "value")
        axes.legend()

    old = {point.size: point.middle for point in curve.before}
    new = {point.size: point.middle for point in curve.after}
    rows = tuple((size_text(size), *_pair(old.get(size), new.get(size))) for size in sorted({*old, *new}))
    return _plot(f"{curve.name} by message size", rows, ("size", "before", "after", "change"), draw, number)


def _distribution(spread: Distribution, number: int) -> Plot:
    def draw(axes: Axes) -> None:
        for name, values, colour, line in (
            ("before", spread.before, BEFORE, "--"),
            ("after", spread.after, AFTER, "-"),
        ):
            if values:
                percents = [100 * n / (len(values) - 1) for n in range(len(values))]
                axes.plot(values, percents, line, color=colour, label=name)
        axes.set_xlabel(spread.unit or "value")
        axes.set_ylabel("% of steps at most")
        axes.legend()

    def at(values: Sequence[float], part: float) -> float | None:
        return values[round(part * (len(values) - 1))] if values else None

    rows = tuple(
        (name, *_pair(at(spread.before, part), at(spread.after, part)))
        for name, part in (("median", 0.5), ("p90", 0.9), ("p99", 0.99), ("largest", 1.0))
    )
    return _plot(f"{spread.name}, all steps of all ranks", rows, ("", "before", "after", "change"), draw, number)


def _scaling(scaling: Scaling, number: int) -> Plot:
    def draw(axes: Axes) -> None:
        for shift, colour, hatch, name in ((-0.2, BEFORE, "//", "before"), (0.2, AFTER, "", "after")):
            heights = [(bar.before if name == "before" else bar.after) or 0.0 for bar in scaling.bars]
            if any(heights):
                places = [place + shift for place in range(len(heights))]
                axes.bar(places, heights, 0.38, color=colour, hatch=hatch, edgecolor="white", label=name)
                for place, height, bar in zip(places, heights, scaling.bars, strict=True):
                    part = bar.efficiency_before if name == "before" else bar.efficiency_after
                    if part is not None and height:
                        axes.annotate(f"{part:.0%}", (place, height), ha="center", va="bottom")
        axes.set_xticks(range(len(scaling.bars)), [bar.shape for bar in scaling.bars])
        axes.set_ylabel(scaling.unit or scaling.name)
        axes.legend()

    rows = tuple((bar.shape, *_pair(bar.before, bar.after)) for bar in scaling.bars)
    return _plot(f"{scaling.name}: scaling", rows, ("shape", "before", "after", "change"), draw, number)


def _map(nodes: NodeMap, number: int) -> Plot:
    def draw(axes: Axes) -> None:
        columns = [place % ROW for place in range(len(nodes.nodes))]
        lines = [place // ROW for place in range(len(nodes.nodes))]
        parts = [100 * (part - 1) for _, part in nodes.nodes]
        shown = axes.scatter(
            columns, lines, c=parts, marker="s", s=90, cmap="cividis", vmin=-100 * REACH, vmax=100 * REACH
        )
        for place, (node, _) in enumerate(nodes.nodes):
            if node in nodes.slow:
                axes.plot(place % ROW, place // ROW, marker="x", color=BAD, markersize=12, markeredgewidth=3)
                axes.annotate(node, (place % ROW, place // ROW), xytext=(0, 8), textcoords="offset points", ha="center")
        axes.set_xlim(-1, min(ROW, len(nodes.nodes)))
        axes.set_ylim(max(lines) + 1, -1.5)
        axes.set_xticks([])
        axes.set_yticks(range(max(lines) + 1), [nodes.nodes[ROW * line][0] for line in range(max(lines) + 1)])
        axes.grid(visible=False)
        axes.figure.colorbar(shown, ax=axes, label="% from the median")

    parts = nodes.nodes
    slowest = sorted(parts, key=lambda one: (one[1], one[0]))[:10]
    rows = tuple((node, f"{100 * (part - 1):+.1f} %", "slow" if node in nodes.slow else "") for node, part in slowest)
    return _plot(
        f"{nodes.metric}: nodes", rows, ("slowest nodes", "from the median", ""), draw, number, len(nodes.nodes)
    )


def _pair(old: float | None, new: float | None) -> tuple[str, str, str]:
    shown = ["-" if value is None else f"{value:.5g}" for value in (old, new)]
    return shown[0], shown[1], f"{new / old - 1:+.1%}" if old and new else "-"


def _plot(
    title: str,
    rows: tuple[tuple[str, ...], ...],
    head: tuple[str, ...],
    draw: Callable[[Axes], None],
    number: int,
    places: int = 0,
) -> Plot:
    """Draw with matplotlib's own objects, without pyplot and its state."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    # Names of clip paths and markers must differ between plots on one page.
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": f"lumisite{number}"}):
        height = max(HEIGHT_IN, 0.25 * (places / ROW) + 1.2) if places else HEIGHT_IN
        figure = Figure(figsize=(WIDTH_IN, height), layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure.add_subplot())
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    cells = "; ".join(" ".join(filter(None, row)) for row in rows[:12])
    sentence = f"{title}. {', '.join(filter(None, head))}: {cells}."
    return Plot(title, sentence, _element(stream.getvalue(), number), head, rows)


def _element(svg: str, number: int) -> str:
    """Cut out the element, and make its ids its own: two figures name their parts alike."""
    text = svg[svg.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="p{number}-', text)
    return re.sub(r'(url\(#|xlink:href="#)', rf"\g<1>p{number}-", text)
