"""`facts`: what this node is, as one JSON file."""

from __future__ import annotations

from pathlib import Path

import click

from lumisite.cli.commands import Command
from lumisite.cli.options import out_option, require_directory, site_option
from lumisite.cli.output import print_note, write_text
from lumisite.cli.site_choice import optional_site
from lumisite.facts.capture import capture, capture_undescribed
from lumisite.facts.facts import LARGEST_FACTS_BYTES, Facts, format_facts, parse_facts
from lumisite.findings.finding import Finding, Severity
from lumisite.findings.writers import line
from lumisite.machine.host import DiskTree
from lumisite.site.load import load_site, read_input


@click.command(cls=Command)
@site_option()
@click.option("--root", metavar="DIR", default="/", help="The host's root, or a copy (default: /).")
@out_option
def command(site: str, root: str, out: Path | None) -> int:
    """Write down what a maintenance may change under the containers.

    That is: system, kernel, glibc, Slurm, GPU driver, releases of stacks, libraries, interfaces, devices, GPUs, CPUs,
    kernel parameters, default modules, what starts containers, Slurm's files, image names and the deployed release.
    Only files are read; no program is run and no root is needed. What is not there is absent in the file; what may not
    be read is said, with the command that opens it. The same node gives the same bytes.
    """
    require_directory(root, "--root")
    if name := optional_site(site):
        captured = capture(DiskTree(root), load_site(name).site)
    else:
        message = "only hardware, drivers and releases are captured, which `init` takes"
        advice = "name a site with --site for the rest"
        print_note(line(Finding("facts-mismatch", Severity.INFO, message, advice)))
        captured = capture_undescribed(DiskTree(root))
    for finding in captured.findings:
        print_note(line(finding))
    write_text(format_facts(captured.facts), out)
    return 0


def load_facts(name: str) -> Facts:
    """Read a facts file, and no more of it than a facts file can have."""
    content = read_input(Path(name), LARGEST_FACTS_BYTES, "`lumisite facts -o FILE` writes one")
    return parse_facts(content, name)
