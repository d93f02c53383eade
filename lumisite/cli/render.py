"""`render`: the modulefiles and the helper, written as a tree."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from lumisite.cli.commands import Command
from lumisite.cli.options import (
    OR_EXAMPLE,
    PATH,
    load_lock,
    requested_releases,
    selection_options,
    site_option,
)
from lumisite.cli.output import print_lines, print_note, warn_untried
from lumisite.cli.site_choice import site_or_example
from lumisite.errors import LumisiteError
from lumisite.findings.finding import Finding, Severity
from lumisite.findings.writers import line
from lumisite.machine.host import DiskTree
from lumisite.paths import CURRENT, MODULES
from lumisite.release.files import write_tree
from lumisite.render.render import render_tree
from lumisite.render.stored_plans import other_images, plan_summaries
from lumisite.render.templates import load_templates
from lumisite.site.load import load_plans, load_site
from lumisite.site.selection import resolve_selection
from lumisite.text import printable


@click.command(cls=Command)
@site_option(OR_EXAMPLE)
@selection_options
@click.option("-o", "--out", metavar="DIR", type=PATH, default="site-out", help="Where to write (default: site-out).")
def command(site: str, platform: str | None, out: Path, **releases: Any) -> int:
    """Write modules/, spank/ and MANIFEST.json for the releases asked for.

    The same input gives the same bytes; OUT is replaced as a whole or not at all. Each path is printed, then how to
    try the modules.
    """
    real = Path(os.path.realpath(out))
    if real.name == CURRENT:
        # The modulefiles take a folder of this name for the link of a deployment root, and look beside it.
        message = f"{printable(str(out))} has the name of a deployment's link"
        raise LumisiteError(Finding("out-unfit", Severity.FAULT, message, "name another folder", "--out"))
    loaded = load_site(site_or_example(site))
    selection = resolve_selection(loaded.site, platform=platform, **requested_releases(**releases))
    plans = load_plans(loaded)
    templates = load_templates()
    files = render_tree(loaded, selection, templates, plans, load_lock(loaded))
    write_tree(files, out)
    for loaded_plan in plans:
        if loaded_plan.plan.platform != selection.platform:  # its image is then treated by its family alone
            message = f"is for platform {loaded_plan.plan.platform}, so it is left out"
            advice = f"`lumisite binds IMAGE --write` makes one for {selection.platform}"
            print_note(line(Finding("plan-note", Severity.INFO, message, advice, loaded_plan.file)))
    for finding in other_images(plan_summaries(loaded.site, plans), DiskTree("/")):
        if finding.code != "plan-image-missing":  # images need not be where a render is made
            print_note(line(finding))
    warn_untried(loaded.site)
    print_lines(str(out / path) for path in files)
    print_note(str(selection))
    print_note(f"try it: module use {real / MODULES}")
    print_note(f"deploy it: lumisite deploy {out} {loaded.site.root}")
    return 0
