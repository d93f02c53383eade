"""Draw the plots of a report as SVG inside a page: text stays text, and the same numbers give the same bytes.

Every plot has a sentence for those who do not see it. Before is orange and dashed, after is blue and solid: told apart
without colour too (palette: Okabe and Ito, 2008).
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lumisite.text import figure
from lumisite.validate.metric_names import parse_name, size_text
from lumisite.validate.report.advice import slower_metrics
from lumisite.validate.report.gather import Curve, RunReport, Scaling

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BEFORE, AFTER = "#E69F00", "#0072B2"
#: The two sides: name, colour and line.
SIDES = (("before", BEFORE, "--"), ("after", AFTER, "-"))
WIDTH_IN, HEIGHT_IN = 5.2, 3.2
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "axes.grid": True,
    "text.parse_math": False,
}


@dataclass(frozen=True)
class Plot:
    """A drawing of the numbers `about` a metric or family, which `rows` tell too."""

    title: str
    about: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    draw: Callable[[Axes], None]

    @property
    def sentence(self) -> str:
        """What it shows."""
        cells = "; ".join(" ".join(filter(None, row)) for row in self.rows)
        return f"{self.title}. {', '.join(filter(None, self.head))}: {cells}."

    def svg(self, number: int) -> str:
        """Draw the SVG element with matplotlib's own objects; two figures name their parts alike, but for `number`."""
        import matplotlib
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure

        # Names of clip paths and markers must differ between plots on one page, and so must ids.
        with matplotlib.rc_context({**STYLE, "svg.hashsalt": f"lumisite{number}"}):
            figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
            FigureCanvasSVG(figure)
            self.draw(figure.add_subplot())
            stream = io.StringIO()
            figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
        text = stream.getvalue()
        text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
        text = re.sub(r'\bid="', f'id="p{number}-', text)
        return re.sub(r'(url\(#|xlink:href="#)', rf"\g<1>p{number}-", text)


def plots(report: RunReport) -> tuple[Plot, ...]:
    """Return a plot of everything that the report has numbers for."""
    return (*map(_curve, report.curves), *map(_scaling, report.scalings))


def _curve(curve: Curve) -> Plot:
    old, new = ({point.size: point.middle for point in side} for side in (curve.before, curve.after))
    sizes = sorted({*old, *new})

    def draw(axes: Axes) -> None:
        for name, colour, line in SIDES:
            if points := getattr(curve, name):
                measured = [point.size for point in points]
                axes.plot(measured, [point.middle for point in points], line, color=colour, marker="o", label=name)
                low, high = [point.low for point in points], [point.high for point in points]
                axes.fill_between(measured, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [size_text(size) for size in sizes], rotation=30, ha="right")
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set_xlabel("message size")
        axes.set_ylabel(curve.unit or "value")
        axes.legend(loc="upper left")

    rows = [(size_text(size), figure(old.get(size)), figure(new.get(size))) for size in sizes]
    return Plot(f"{curve.name} by message size", curve.name, ("size", "before", "after"), rows, draw)


def _scaling(scaling: Scaling) -> Plot:
    def draw(axes: Axes) -> None:
        for (name, colour, _), shift, hatch in zip(SIDES, (-0.2, 0.2), ("//", ""), strict=True):
            heights = [getattr(bar, name) or 0.0 for bar in scaling.bars]
            if any(heights):
                centres = [index + shift for index in range(len(heights))]
                axes.bar(centres, heights, 0.38, color=colour, hatch=hatch, edgecolor="white", label=name)
        axes.set_xticks(range(len(scaling.bars)), [bar.shape for bar in scaling.bars])
        axes.set_ylabel(scaling.unit or scaling.name)
        axes.legend()

    rows = [(bar.shape, figure(bar.before), figure(bar.after)) for bar in scaling.bars]
    return Plot(f"{scaling.name}: scaling", scaling.name, ("shape", "before", "after"), rows, draw)


def lead(report: RunReport, every: Sequence[Plot]) -> Plot | None:
    """Return the plot that shows the finding: of the largest drop, else the last curve."""
    metrics = sorted(slower_metrics(report.verdict), key=lambda metric: metric.change or 0.0)
    names = [parse_name(metric.metric) for metric in metrics]
    choices = [about for name in names for about in (f"{name.quantity}/{name.shape}", name.quantity)]
    if report.curves:
        choices.append(report.curves[-1].name)
    by_name = {plot.about: plot for plot in reversed(every)}
    return next((by_name[about] for about in choices if about in by_name), next(iter(every), None))
