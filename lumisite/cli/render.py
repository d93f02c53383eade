"""`render`: the modulefiles and the helper, written as a tree."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from lumisite.cli.commands import Command
from lumisite.cli.options import (
    PATH,
    load_lock,
    lock_option,
    plan_option,
    real_path,
    requested_releases,
    selection_options,
    site_or_example_option,
)
from lumisite.cli.output import print_note, warn_untried
from lumisite.cli.site_choice import site_or_example
from lumisite.errors import LumisiteError
from lumisite.findings.finding import Finding, Severity
from lumisite.findings.writers import line
from lumisite.machine.host import DiskTree
from lumisite.paths import CURRENT, MODULES
from lumisite.release.files import write_tree
from lumisite.render.plan_images import other_images, plan_summaries
from lumisite.render.render import render_tree
from lumisite.render.templates import load_templates
from lumisite.site.load import load_plans, load_site
from lumisite.site.selection import resolve_selection
from lumisite.text import printable


@click.command(cls=Command)
@site_or_example_option
@selection_options
@click.option("-o", "--out", metavar="DIR", type=PATH, default="site-out", help="Where to write (default: site-out).")
@plan_option
@lock_option
def command(
    site: str, platform: str | None, out: Path, plan_files: Sequence[Path], lock: Path | None, **releases: Any
) -> int:
    """Write modules/, spank/ and MANIFEST.json for the releases asked for.

    The same input gives the same bytes; OUT is replaced as a whole or not at all. Each path is printed, then how to
    try the modules.
    """
    if real_path(out).name == CURRENT:
        # The modulefiles take a folder of this name for the link of a deployment root, and look beside it.
        message = f"{printable(str(out))} has the name of a deployment's link"
        raise LumisiteError(Finding("out-unfit", Severity.FAULT, message, "name another folder", "--out"))
    loaded = load_site(site_or_example(site, quiet=True))
    selection = resolve_selection(loaded.site, platform=platform, **requested_releases(**releases))
    plans = load_plans(loaded, plan_files)
    templates = load_templates()
    files = render_tree(loaded, selection, templates, plans, load_lock(loaded, lock))
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
    for path in files:
        print(out / path)
    modules = real_path(out) / MODULES
    deploy = f"lumisite deploy {out} {loaded.site.root}"
    print(f"{selection}\ntry it:    module use {modules}\ndeploy it: {deploy}", file=sys.stderr)
    return 0
