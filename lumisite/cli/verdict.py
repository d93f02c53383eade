"""`verdict`: whether the system became slower."""

from __future__ import annotations

import click

from lumisite.cli.commands import Command
from lumisite.cli.options import FILE_NAME, OR_NONE, Decorator, image_change_option, json_option, site_option
from lumisite.cli.output import print_result
from lumisite.cli.runs import read_samples
from lumisite.cli.site_choice import optional_site
from lumisite.errors import ResolveError
from lumisite.site.load import load_site
from lumisite.validate.report.gather import Side, make_report
from lumisite.validate.report.write import WRITERS
from lumisite.validate.verdict.system import Terms
from lumisite.validate.verdict.system import as_json as verdict_json


def _side_option(side: str) -> Decorator:
    text = f"Samples {side} the change, or the folder of a run; several times; - is standard input."
    return click.option(f"--{side}", metavar="FILE", type=FILE_NAME, multiple=True, help=text)


@click.command(cls=Command)
@_side_option("before")
@_side_option("after")
@site_option(OR_NONE)
@image_change_option
@json_option
def command(
    before: tuple[str, ...],
    after: tuple[str, ...],
    site: str,
    allow_image_change: bool,
    as_json: bool,
) -> int:
    """Judge samples and gates after a change against those before it.

    Both are files of JSON lines: samples with metric, value, better (higher or lower), run, nodes and time, gates with
    gate, verdict, cause, advice, run, nodes and time. A failed gate is a failure. The first five jobs after the change
    decide, five later ones on other nodes confirm. What is expected of each metric is taken from the site. Exit code 0:
    not slower, 1: a gate failed, or slower and confirmed, 4: not decided, with what to run next, 5: the system is fine
    but some nodes are not.
    """
    if not before or not after:
        one, two = "`lumisite verdict --before FILE --after RUN`", "`lumisite report RUN` shows one run alone"
        raise ResolveError(f"verdict: two sides are compared ({one}; {two})")
    name = optional_site(site)
    loaded = load_site(name) if name else None
    rules = loaded.site.validation if loaded else None
    terms = Terms.of(rules, allow_image_change=allow_image_change)
    report = make_report(Side(read_samples(before)), Side(read_samples(after)), terms, loaded)
    text = WRITERS["text"](report).rstrip("\n")
    print_result(verdict_json(report.verdict), [text], as_json=as_json)
    return report.verdict.exit_code
