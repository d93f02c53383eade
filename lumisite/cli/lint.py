"""Known-bad lines in job scripts: `lint`."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from lumisite.cli.arguments import add_json, add_lock, add_site_or_example
from lumisite.cli.parser import tell
from lumisite.cli.transport import file_blocks
from lumisite.images.lock import load_lock
from lumisite.lint.find import SIZE_LIMIT_BYTES, Finding, lint_script
from lumisite.site.load import load_site


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
    findings: list[tuple[str, Finding]] = []
    for name in arguments.scripts:
        data = bytearray()
        for block in file_blocks(name):
            data += block
            if len(data) > SIZE_LIMIT_BYTES:
                break
        findings += [(name, finding) for finding in lint_script(bytes(data), name, loaded.site, locked)]
    lines = (f"{name}:{finding.line}: {finding.reason} ({finding.right})" for name, finding in findings)
    tell([{"file": name, **asdict(finding)} for name, finding in findings], lines, as_json=arguments.json)
    return 1 if findings else 0
