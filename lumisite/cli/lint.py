"""`lint`: known-bad lines in job scripts."""

from __future__ import annotations

import argparse

from lumisite.cli.arguments import add_json, add_lock, add_site_or_example
from lumisite.cli.input import file_blocks
from lumisite.cli.output import print_result
from lumisite.findings.finding import Finding
from lumisite.findings.writers import advice, message
from lumisite.images.lock import load_lock
from lumisite.lint.rules import SIZE_LIMIT_BYTES, lint_script
from lumisite.site.load import load_site
from lumisite.text import printable


def add_lint(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `lint`."""
    parser.description = (
        "Find lines in job scripts that are known to fail, hang or run slowly on this site, each with the line that "
        "would be right. Exit code 1 if there are any."
    )
    parser.add_argument("scripts", metavar="SCRIPT", nargs="+", help="a job script; - is standard input")
    add_lock(parser)
    add_site_or_example(parser)
    add_json(parser)


def run_lint(arguments: argparse.Namespace) -> int:
    """Print every bad line."""
    loaded = load_site(arguments.site)
    lock = load_lock(loaded, arguments.lock)
    locked = {} if lock is None else lock.lock.images
    found: list[Finding] = []
    for name in arguments.scripts:
        data = bytearray()
        for block in file_blocks(name):
            data += block
            if len(data) > SIZE_LIMIT_BYTES:
                break
        found += lint_script(bytes(data), name, loaded.site, locked)
    print_result([_as_json(finding) for finding in found], map(_line, found), as_json=arguments.json)
    return 1 if found else 0


def _reason(finding: Finding) -> str:
    return f"{printable(finding.subject)}: {message(finding)}"


def _line(finding: Finding) -> str:
    return f"{finding.place}: {finding.code} {_reason(finding)} ({advice(finding)})"


def _as_json(finding: Finding) -> dict[str, object]:
    location = finding.place
    assert location is not None
    known = {"file": location.file, "line": location.line, "rule": finding.code}
    return {**known, "reason": _reason(finding), "right": advice(finding), "source": finding.values["source"]}
