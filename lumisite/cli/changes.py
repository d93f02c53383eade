"""`changes`: what a maintenance changed, and whom it hits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import click

from lumisite.cli.commands import Command
from lumisite.cli.facts import load_facts
from lumisite.cli.options import FILE_NAME, json_option
from lumisite.cli.output import print_note, print_result
from lumisite.cli.site_choice import recorded_site
from lumisite.errors import ResolveError
from lumisite.facts.change import Change
from lumisite.facts.change_kinds import BY_NAME
from lumisite.facts.facts import Facts
from lumisite.facts.report import ChangeReport, make_report, report_json
from lumisite.findings.finding import Finding, Severity
from lumisite.findings.writers import line
from lumisite.site.load import load_plans, load_site
from lumisite.text import counted, printable


@click.command(cls=Command)
@click.argument("before", metavar="BEFORE", type=FILE_NAME, help="The facts file from before.")
@click.argument("after", metavar="AFTER", type=FILE_NAME, help="The facts file from after.")
@click.option("--site", metavar="NAME|FILE", default="", help="The site (default: the one that the files name).")
@json_option
def command(before: str, after: str, site: str, as_json: bool) -> int:
    """Compare two captures of a node, before and after a maintenance.

    Each change comes with the modules, image families, masks and entries of the site description that it touches; then
    a paragraph for users. Exit 0 when nothing changed, 1 when something did.
    """
    old, new = load_facts(before), load_facts(after)
    loaded = load_site(site or _recorded_site(old, before))
    report = make_report(old, new, loaded.site, load_plans(loaded))
    if old.host != new.host:
        hosts = [printable(facts.host or "unknown") for facts in (old, new)]
        message = f"is of host {hosts[0]}, {printable(after)} of {hosts[1]}"
        print_note(line(Finding("facts-mismatch", Severity.INFO, message, subject=before)))
    print_result(report_json(report), _report_lines(report), as_json=as_json)
    return 1 if report.changes else 0


def _report_lines(report: ChangeReport) -> list[str]:
    """Return the whole report: the changes of each kind with what they touch, and the paragraph for users."""
    if not report.changes:
        return ["nothing changed"]
    now = f"fits platform {report.now}" if report.now else "fits no platform that is described"
    lines = [f"{counted(len(report.changes), 'change')}; the node was platform {report.was}, and now {now}", ""]
    for name, changes in groupby(report.changes, lambda change: change.kind):
        lines += _lines_of_kind(name, list(changes))
    return [*lines, "", "-- for users (copy this)", *report.users]


def _lines_of_kind(name: str, changes: Sequence[Change]) -> Iterator[str]:
    """Yield what depends on a kind and what to do, its changes, and what they touch."""
    advice = dict.fromkeys(printable(change.advice) for change in changes if change.advice)
    yield " -> ".join((f"{name}: {BY_NAME[name].affects}", *(["; ".join(advice)] if advice else [])))
    yield from (f"  {change.sentence}" for change in changes)
    parts: dict[str, dict[str, None]] = {}
    for touched in (touched for change in changes for touched in change.touches):
        parts.setdefault(touched.what, {})[printable(touched.name)] = None
    if parts:
        words = (f"{what} {', '.join(names)}" for what, names in parts.items())
        yield f"  touches {'; '.join(words)}"


def _recorded_site(facts: Facts, file: str) -> str:
    """Return the site that a file names: a name in a file opens nothing but an embedded site, or the one chosen."""
    name = recorded_site(facts.site)
    if not name:
        site = f"is of site {printable(facts.site)}, which is not embedded" if facts.site else "was read without a site"
        raise ResolveError(
            Finding("facts-mismatch", Severity.FAULT, site, "name the site description with --site", file)
        )
    return name
