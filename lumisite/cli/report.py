"""`report`: what a run found."""

from __future__ import annotations

from pathlib import Path

import click

from lumisite.cli.commands import Command
from lumisite.cli.options import FILE_NAME, image_change_option, json_option, out_option
from lumisite.cli.output import print_lines, print_note, write_text
from lumisite.cli.runs import read_side
from lumisite.cli.site_choice import recorded_site
from lumisite.site.load import LoadedSite, load_site
from lumisite.validate.report.gather import Side, make_report
from lumisite.validate.report.write import WRITERS
from lumisite.validate.verdict.system import Terms

#: What is written to a file of an ending: html is one file, with plots where matplotlib is installed.
_FORMATS = {".html": "html", ".htm": "html", ".json": "json"}


@click.command(cls=Command)
@click.argument(
    "runs",
    metavar="RUN...",
    nargs=-1,
    required=True,
    type=FILE_NAME,
    help="A run after the change; several are judged together.",
)
@click.option(
    "--before", metavar="FILE", type=FILE_NAME, multiple=True, help="A run from before the change; several times."
)
@click.option("--site", metavar="NAME|FILE", default="", help="The site (default: the one that the run was made for).")
@image_change_option
@json_option
@out_option
def command(
    runs: tuple[str, ...],
    before: tuple[str, ...],
    site: str,
    allow_image_change: bool,
    as_json: bool,
    out: Path | None,
) -> int:
    """Show runs of `validate` against a baseline.

    That is: the verdict, what to do, what changed on the machine, gates, metrics, nodes. A run is the folder that
    `validate` wrote, or a file of samples. A FILE of the ending .html is one page, with plots where matplotlib is
    installed, one of .json the same as --json. The exit code is that of the verdict: 0 fine, 1 failed, 4 not decided, 5
    only some nodes.
    """
    form = "json" if as_json else _FORMATS.get(out.suffix if out else "", "text")
    old, new = read_side(before) if before else None, read_side(runs)
    loaded = _site_of(site, new)
    rules = loaded.site.validation if loaded else None
    terms = Terms.of(rules, allow_image_change=allow_image_change)
    if loaded is None and new.facts is not None and (name := recorded_site(new.facts.site)):
        loaded = load_site(name)  # the site of the capture shows what changes touch, and nothing else
    report = make_report(old, new, terms, loaded)
    text = WRITERS[form](report)
    if form == "text" and out is None:
        print_lines([text.rstrip("\n")])
    else:
        write_text(text, out)
    return report.verdict.exit_code


def _site_of(site: str, run: Side) -> LoadedSite | None:
    """Load the site that is named, or the one that the run was made for."""
    if site:
        return load_site(site)
    named = str(run.about.get("site_file", ""))
    if not named:
        return None
    if name := recorded_site(named) or (named if "/" in named and Path(named).is_file() else ""):
        return load_site(name)
    print_note(f"the site of the run, {named!r}, was not found: its expectations are left out")
    return None
