"""What a node is, and what a maintenance changed: `facts` and `changes`."""

from __future__ import annotations

import argparse
from pathlib import Path

from lumisite.cli.arguments import add_host_root, add_output, add_site, check_root
from lumisite.cli.output import print_note, print_result, write_text
from lumisite.cli.site_choice import recorded_site
from lumisite.errors import ResolveError
from lumisite.facts.capture import capture, capture_undescribed
from lumisite.facts.change import Change
from lumisite.facts.facts import LARGEST_FACTS_BYTES, Facts, format_facts, parse_facts
from lumisite.facts.report import ChangeReport, make_report, report_json
from lumisite.findings.finding import Finding, Severity
from lumisite.findings.writers import line
from lumisite.machine.host import DiskTree
from lumisite.site.load import LoadedSite, load_plans, load_site, read_input
from lumisite.text import counted, printable


def add_facts(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `facts`."""
    parser.description = (
        "Write down what a maintenance may change under the containers: system, kernel, glibc, Slurm, GPU driver, "
        "releases of stacks, libraries, interfaces, devices, GPUs, CPUs, kernel parameters, default modules, what "
        "starts containers, Slurm's files, image names and the deployed release. Only files are read; no program is "
        "run and no root is needed. What is "
        "not there is absent in the file; what may not be read is said, with the command that opens it. The same node"
        " gives the same bytes."
    )
    add_site(parser)
    add_host_root(parser, "--root")
    add_output(parser)


def add_changes(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `changes`."""
    parser.description = (
        "Compare two captures of a node, before and after a maintenance. Each change comes with the modules, image "
        "families, masks and entries of the site description that it touches; then a paragraph for users. Exit 0 when "
        "nothing changed, 1 when something did."
    )
    either = parser.add_mutually_exclusive_group()
    parser.add_argument("before", metavar="BEFORE", help="the facts file from before")
    parser.add_argument("after", metavar="AFTER", help="the facts file from after")
    parser.add_argument(
        "--site",
        metavar="NAME|FILE",
        help=(
            "the site: the name of an embedded one, or a YAML file (default: the one that the files name, by "
            "LUMISITE_SITE or embedded)"
        ),
    )
    either.add_argument("--users", action="store_true", help="print only the paragraph for users")
    either.add_argument("--json", action="store_true", help="print the result as JSON")


def run_facts(arguments: argparse.Namespace) -> int:
    """Capture a node."""
    root = arguments.host_root
    check_root(root)
    if arguments.site:
        captured = capture(DiskTree(root), load_site(arguments.site).site)
    else:
        message = "only hardware, drivers and releases are captured, which `init` takes"
        advice = "name a site with --site for the rest"
        print_note(line(Finding("facts-without-site", Severity.INFO, message, advice)))
        captured = capture_undescribed(DiskTree(root))
    for finding in captured.findings:
        print_note(line(finding))
    write_text(format_facts(captured.facts), arguments.output)
    return 0


def run_changes(arguments: argparse.Namespace) -> int:
    """Compare two captures."""
    before, after = load_facts(arguments.before), load_facts(arguments.after)
    loaded = _site(arguments, before, after)
    report = make_report(before, after, loaded.site, load_plans(loaded))
    if before.host != after.host:
        hosts = [printable(facts.host or "unknown") for facts in (before, after)]
        message = f"is of host {hosts[0]}, {printable(arguments.after)} of {hosts[1]}"
        print_note(line(Finding("facts-of-two-hosts", Severity.INFO, message, subject=arguments.before)))
    lines = report.users if arguments.users else _report_lines(report)
    print_result(report_json(report), lines or [""], as_json=arguments.json)
    return 1 if report.changes else 0


def _report_lines(report: ChangeReport) -> list[str]:
    """Return the whole report: changes with what they touch, and the paragraph for users."""
    if not report.changes:
        return ["nothing changed"]
    now = f"fits platform {report.now}" if report.now else "fits no platform that is described"
    lines = [f"{counted(len(report.changes), 'change')}; the node was platform {report.was}, and now {now}", ""]
    for change in report.changes:
        advice = f" ({printable(change.advice)})" if change.advice else ""
        lines += [f"{change.sentence}{advice} [{change.kind}]", *_touched_lines(change)]
    return [*lines, "", "-- for users (copy this)", *report.users]


def _touched_lines(change: Change) -> list[str]:
    """Return a line for all parts of one sort that a change touches for the same reason."""
    together: dict[tuple[str, str], list[str]] = {}
    for touched in change.touches:
        together.setdefault((touched.what, printable(touched.why)), []).append(printable(touched.name))
    return [f"  {what:8} {', '.join(names)}: {why}" for (what, why), names in together.items()]


def _site(arguments: argparse.Namespace, before: Facts, after: Facts) -> LoadedSite:
    """Load the site of `--site`, or the embedded one that both files name: a name in a file opens nothing else."""
    if before.site != after.site:
        sites = [printable(facts.site) for facts in (before, after)]
        message = f"is of site {sites[0]}, {printable(arguments.after)} is of {sites[1]}"
        advice = "compare two captures of one site"
        raise ResolveError(Finding("facts-mismatch", Severity.FAULT, message, advice, arguments.before))
    name = arguments.site or recorded_site(before.site)
    if not name:
        site = (
            f"is of site {printable(before.site)}, which is not embedded" if before.site else "was read without a site"
        )
        advice = "name the site description with --site"
        raise ResolveError(Finding("facts-mismatch", Severity.FAULT, site, advice, arguments.before))
    return load_site(name)


def load_facts(name: str) -> Facts:
    """Read a facts file, and no more of it than a facts file can have."""
    content = read_input(Path(name), LARGEST_FACTS_BYTES, "`lumisite facts -o FILE` writes one")
    return parse_facts(content, name)
