"""`why`: where a variable, bind, module or library is from, and which releases of a component are chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from lumisite.cli.commands import Command
from lumisite.cli.options import (
    FILE_NAME,
    OR_EXAMPLE,
    host_root_option,
    json_option,
    requested_releases,
    selection_options,
    site_option,
)
from lumisite.cli.output import print_note, print_result
from lumisite.cli.site_choice import site_or_example
from lumisite.errors import ResolveError
from lumisite.findings.writers import line
from lumisite.render.explain import explain
from lumisite.site.images import Holds
from lumisite.site.load import load_site
from lumisite.site.model import Site
from lumisite.site.selection import Selection, resolve_selection

if TYPE_CHECKING:
    from lumisite.binds.plan_file import LibraryExplanation


@click.command(cls=Command)
@click.argument(
    "names",
    metavar="NAME...",
    nargs=-1,
    required=True,
    help="A variable, path, module, SONAME, component, or `platform`.",
)
@site_option(OR_EXAMPLE)
@selection_options
@click.option("--nodes", type=click.Choice(("one", "several")), help="Nodes of the job step (default: any).")
@click.option("--partition", metavar="NAME", help="Partition (default: any).")
@click.option("--image", metavar="IMAGE", type=FILE_NAME, help="The image that runs (default: any).")
@host_root_option
@json_option
def command(
    names: tuple[str, ...],
    site: str,
    platform: str | None,
    nodes: Literal["one", "several"] | None,
    partition: str | None,
    image: str | None,
    host_root: str,
    as_json: bool,
    **releases: Any,
) -> int:
    """Explain a variable, a bound path, a module, a library or the releases of a component.

    Of a variable, path or module: the value, the rule that won, the reason and its evidence with its sources, and the
    entries that lost. What is not given of image, nodes and partition stays open. A library is explained for one image.
    Of a component, or `platform`, the releases are listed: which `render` would use, and why each other one lost.
    """
    for name in names:
        if Path(name).is_file() and not name.startswith("/"):
            reader = "lint" if name.endswith((".sh", ".sbatch", ".slurm")) else "transport"
            raise ResolveError(f"{name}: is a file, and `why` takes names (`lumisite {reader} {name}` reads it)")
    loaded = load_site(site_or_example(site))
    selection = resolve_selection(loaded.site, platform=platform, **requested_releases(**releases))
    libraries = list(filter(_is_library, names))
    explained = _explain_libraries(libraries, loaded.site, selection, image, host_root) if libraries else {}
    content = _image_content(loaded.site, image) if image and len(libraries) < len(names) else None
    components = {candidate.kind for candidate in selection.candidates}
    records: list[dict[str, object]] = []
    texts: list[str] = []
    for name in names:
        if name in components:
            record, text = _explain_component(selection, name)
        else:
            explanation = explained.get(name) or explain(
                loaded, selection, name, holds=content, nodes=nodes, partition=partition
            )
            record, text = asdict(explanation), str(explanation)
        records.append(record)
        texts.append(text)
    print_result(records, ["\n\n".join(texts)], as_json=as_json)
    return 0


def _explain_component(selection: Selection, name: str) -> tuple[dict[str, object], str]:
    """Return which releases of a component would be chosen and why the others lost, for JSON and as text."""
    candidates = [candidate for candidate in selection.candidates if candidate.kind == name]
    rows = [
        {"name": candidate.name, "chosen": candidate.chosen, "reason": candidate.reason} for candidate in candidates
    ]
    width = max(len(candidate.name) for candidate in candidates)
    lines = [f"{'*' if row['chosen'] else ' '} {row['name']:{width}}  {row['reason']}" for row in rows]
    return {"name": name, "kind": "component", "candidates": rows}, "\n".join([f"{name} ({selection})", *lines])


def _is_library(name: str) -> bool:
    return (".so" in name or name.startswith("lib")) and "/" not in name


def _explain_libraries(
    names: Sequence[str], site: Site, selection: Selection, image: str | None, host_root: str
) -> dict[str, LibraryExplanation]:
    """Explain libraries for an image."""
    if image is None:
        raise ResolveError(f"{names[0]}: is a library, which is explained for one image (--image IMAGE)")
    from lumisite.binds.plan_file import explain_library
    from lumisite.cli.binds import plan_image

    request, plan = plan_image(site, selection, image, host_root)
    planned = [one.library for one in plan.lines]
    full = {name: next((one for one in planned if one.startswith(f"{name}.so")), name) for name in names}
    return {name: explain_library(request, plan, image, full[name]) for name in names}


def _image_content(site: Site, image: str) -> Holds | None:
    """Return what is known of an image."""
    from lumisite.images.known import know_image

    known = know_image(site, image)
    if known.note is not None:
        print_note(line(known.note))
    return known.holds
