"""Write a report as one HTML file with plots: nothing is fetched, nothing runs, and tables say what the plots show."""

from __future__ import annotations

from lumisite.errors import ToolError
from lumisite.validate.report.contents import headline, report_blocks
from lumisite.validate.report.gather import Report

#: Words that a cell may have as its colour.
STATES = ("pass", "warn", "fail", "unconfirmed", "inconclusive", "bad-nodes")


def report_html(report: Report) -> str:
    """Write the page. Raises `ToolError` where matplotlib is not installed."""
    import jinja2

    try:
        from lumisite.validate.report.plots import plots

        drawn = tuple(plots(report))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise ToolError(
            "plots need matplotlib, which is not installed (pip install 'lumisite[report]', or --format markdown)"
        ) from None
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("lumisite.validate.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        comment_start_string="{##",
        comment_end_string="##}",
        trim_blocks=True,
    )
    return environment.get_template("report.html.j2").render(
        title=headline(report.verdict),
        state=report.verdict.verdict,
        blocks=tuple(report_blocks(report)),
        plots=drawn,
        states=STATES,
    )
