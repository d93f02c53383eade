"""`lint`: known-bad lines in job scripts."""

from __future__ import annotations

import click

from lumisite.cli.commands import Command
from lumisite.cli.input import file_blocks
from lumisite.cli.options import FILE_NAME, OR_EXAMPLE, json_option, load_lock, site_option
from lumisite.cli.output import print_result
from lumisite.cli.site_choice import site_or_example
from lumisite.findings.finding import Finding, Severity
from lumisite.findings.writers import advice, subject_and_message
from lumisite.lint.rule_table import SIZE_LIMIT_BYTES, describe_check, lint_job, read_script, source_of
from lumisite.site.load import load_site
from lumisite.site.model import Site
from lumisite.text import counted


@click.command(cls=Command)
@click.argument(
    "scripts", metavar="SCRIPT...", nargs=-1, required=True, type=FILE_NAME, help="A job script; - is standard input."
)
@site_option(OR_EXAMPLE)
@json_option
def command(scripts: tuple[str, ...], site: str, as_json: bool) -> int:
    """Find lines in job scripts that are known to fail, hang or run slowly on this site.

    Each comes with the line that would be right, and the last line says what was checked. Exit 1 if there are any; a
    hint, which may be meant so, does not count.
    """
    loaded = load_site(site_or_example(site))
    loaded_lock = load_lock(loaded)
    locked = {} if loaded_lock is None else loaded_lock.lock.images
    found: list[Finding] = []
    checked: list[str] = []
    for name in scripts:
        data = bytearray()
        for block in file_blocks(name):
            data += block
            if len(data) > SIZE_LIMIT_BYTES:
                break
        job = read_script(bytes(data), name, loaded.site, locked)
        found += lint_job(job, name)
        checked.append(describe_check(job))
    faults = [finding for finding in found if finding.severity is Severity.FAULT]
    lines = [*map(_line, found), _last_line(checked, len(faults), len(found) - len(faults))]
    print_result([_row(loaded.site, finding) for finding in found], lines, as_json=as_json)
    return 1 if faults else 0


def _last_line(checked: list[str], faults: int, hints: int) -> str:
    """Return what was checked, and how much was found."""
    counts = [counted(number, name) for number, name in ((faults, "bad line"), (hints, "hint")) if number]
    scripts = counted(len(checked), "script")
    return f"{scripts}: {', '.join(counts) or 'nothing wrong'}; {'; '.join(dict.fromkeys(checked))}"


def _line(finding: Finding) -> str:
    hint = "" if finding.severity is Severity.FAULT else "hint: "
    return f"{finding.place}: {hint}{finding.code} {subject_and_message(finding)} ({advice(finding)})"


def _row(site: Site, finding: Finding) -> dict[str, object]:
    location = finding.place
    assert location is not None
    known = {"file": location.file, "line": location.line, "code": finding.code}
    known |= {
        "certain": finding.severity is Severity.FAULT,
        "reason": subject_and_message(finding),
        "right": advice(finding),
    }
    return {**known, "source": source_of(site, finding)}
