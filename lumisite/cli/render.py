"""`render`: the modulefiles and the helper, written as a tree."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lumisite.cli.arguments import add_plan_and_lock, add_selection, add_site_or_example, load_selection, real_path
from lumisite.cli.output import print_note, warn_untried
from lumisite.errors import LumisiteError
from lumisite.findings.finding import Finding, Severity
from lumisite.findings.writers import line
from lumisite.images.lock import load_lock
from lumisite.machine.host import DiskTree
from lumisite.release.files import write_tree
from lumisite.render.plan_images import other_images, plan_summaries
from lumisite.render.render import render_tree
from lumisite.render.templates import load_templates
from lumisite.site.load import load_plans
from lumisite.text import printable


def add_render(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `render`."""
    parser.description = (
        "Write modules/, spank/ and MANIFEST.json for the releases asked for. The same input gives the same "
        "bytes; OUT is replaced as a whole or not at all."
    )
    add_site_or_example(parser)
    add_selection(parser)
    parser.add_argument(
        "--out", metavar="DIR", type=Path, default=Path("site-out"), help="where to write (default: %(default)s)"
    )
    add_plan_and_lock(parser)


def run_render(arguments: argparse.Namespace) -> int:
    """Render and write; print each path, then how to try the modules."""
    if real_path(arguments.out).name == "current":
        # The modulefiles take a folder of this name for the link of a deployment root, and look beside it.
        message = f"{printable(str(arguments.out))} has the name of a deployment's link"
        raise LumisiteError(Finding("out-unfit", Severity.FAULT, message, "name another folder", "--out"))
    loaded, selection = load_selection(arguments)
    plans = load_plans(loaded, arguments.plan)
    lock = load_lock(loaded, arguments.lock)
    templates = load_templates()
    files = render_tree(loaded, selection, templates, plans, lock)
    write_tree(files, arguments.out)
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
        print(arguments.out / path)
    modules = real_path(arguments.out) / "modules"
    deploy = f"lumisite deploy {arguments.out} {loaded.site.root}"
    print(f"{selection}\ntry it:    module use {modules}\ndeploy it: {deploy}", file=sys.stderr)
    return 0
