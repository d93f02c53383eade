"""The templates of reports: one a form, with the filters that write numbers and findings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lumisite.findings import writers
from lumisite.findings.finding import Finding
from lumisite.text import change, columns, counted, figure, percent, some


def fill(name: str, **values: object) -> str:
    """Return a template of this package, `FOLDER/NAME`, filled with values."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("lumisite.validate", "."),
        autoescape=name.endswith(".html.j2"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=not name.endswith(".html.j2"),
    )
    environment.filters |= {
        "advice": writers.advice,
        "aligned": aligned,
        "change": change,
        "counted": counted,
        "figure": figure,
        "message": writers.message,
        "messages": messages,
        "nodes": some,
        "percent": percent,
        "trim_end": str.rstrip,
    }
    return environment.get_template(name).render(values)


def aligned(text: str) -> str:
    """Align the cells of lines, which tabs separate, as columns."""
    rows = [line.split("\t") for line in text.split("\n") if line]
    return "".join(f"{line}\n" for line in columns(rows)) if rows else ""


def messages(findings: Iterable[Finding]) -> str:
    """Return what findings say, each with its advice in brackets."""
    return "; ".join(writers.sentence(replace(finding, subject="")) for finding in findings)
