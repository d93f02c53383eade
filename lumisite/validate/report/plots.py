"""Draw the curves of a report as SVG inside a page: text stays text, and the same numbers give the same bytes.

Before is orange and dashed, after is blue and solid: told apart without colour too (palette: Okabe and Ito, 2008).
"""

from __future__ import annotations

import io
import re
from typing import Any

from lumisite.validate.report.advice import slower_metrics
from lumisite.validate.report.curves import Curve
from lumisite.validate.report.gather import RunReport
from lumisite.validate.samples import parse_name

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


def svg(curve: Curve, number: int) -> str:
    """Draw the SVG element with matplotlib's own objects; two of a page name their parts alike, but for `number`."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**STYLE, "svg.hashsalt": f"lumisite{number}"}):
        figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        for name, colour, line in SIDES:
            spreads = [(at, side) for at, point in enumerate(curve.points) if (side := getattr(point, name))]
            if spreads:
                places, sides = zip(*spreads, strict=True)
                low, middle, high = zip(*sides, strict=True)
                axes.plot(places, middle, line, color=colour, marker="o", label=name)
                axes.fill_between(places, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.set_xticks(range(len(curve.points)), [point.label for point in curve.points], rotation=30, ha="right")
        axes.set_ylim(bottom=0)
        axes.set_xlabel(curve.by)
        axes.set_ylabel(curve.unit or "value")
        axes.legend(loc="upper left")
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="p{number}-', text)
    return re.sub(r'(url\(#|xlink:href="#)', rf"\g<1>p{number}-", text)


def lead(report: RunReport) -> Curve | None:
    """Return the curve that shows the finding: of the largest drop, else the last one by message size."""
    metrics = sorted(slower_metrics(report.verdict), key=lambda metric: metric.change or 0.0)
    names = [parse_name(metric.metric) for metric in metrics]
    choices = [family for name in names for family in (f"{name.quantity}/{name.shape}", name.quantity)]
    choices += [curve.name for curve in reversed(report.curves) if curve.by == "message size"]
    by_name = {curve.name: curve for curve in reversed(report.curves)}
    return next((by_name[name] for name in choices if name in by_name), next(iter(report.curves), None))
