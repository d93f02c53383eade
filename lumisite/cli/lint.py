"""Known-bad lines in job scripts: `lint`."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from lumisite.cli.transport import file_blocks
from lumisite.lint.find import SIZE_LIMIT_BYTES, Finding, lint_script
from lumisite.site.load import load_site


def run_lint(arguments: argparse.Namespace) -> int:
    """Print every bad line."""
    site = load_site(arguments.site).site
    findings: list[tuple[str, Finding]] = []
    for name in arguments.scripts:
        data = bytearray()
        for block in file_blocks(name):
            data += block
            if len(data) > SIZE_LIMIT_BYTES:
                break
        findings += [(name, finding) for finding in lint_script(bytes(data), name, site)]
    if arguments.json:
        print(json.dumps([{"file": name, **asdict(finding)} for name, finding in findings], indent=2))
    else:
        for name, finding in findings:
            print(f"{name}:{finding.line}: {finding.reason} ({finding.right})")
    return 1 if findings else 0


RUNS = {"lint": run_lint}
