"""`why`: where a variable, bind, module or library is from, and which releases of a component are chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from lumisite.cli.commands import Command
from lumisite.cli.options import (
    FILE_NAME,
    PATH,
    host_root_option,
    json_option,
    requested_releases,
    selection_options,
    site_or_example_option,
)
from lumisite.cli.output import print_note, print_result
from lumisite.cli.site_choice import recorded_site, site_or_example
from lumisite.errors import ResolveError
from lumisite.findings.writers import line
from lumisite.render.explain import explain
from lumisite.site.images import Holds
from lumisite.site.load import LoadedSite, load_site
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
    help="A variable, an absolute path, a module, a SONAME, a component, or `platform`.",
)
@site_or_example_option
@click.option(
    "--root",
    metavar="ROOT",
    type=PATH,
    help="Explain what is deployed in this deployment root: its site, platform and releases.",
)
@selection_options
@click.option("--family", metavar="F", help="Image family (default: any).")
@click.option("--nodes", type=click.Choice(("one", "several")), help="Nodes of the job step (default: any).")
@click.option("--partition", metavar="NAME", help="Partition (default: any).")
@click.option(
    "--image",
    metavar="IMAGE",
    type=FILE_NAME,
    help="The image that runs: read where it is there, else known by its name.",
)
@host_root_option
@json_option
def command(
    names: tuple[str, ...],
    site: str,
    root: Path | None,
    platform: str | None,
    family: str | None,
    nodes: Literal["one", "several"] | None,
    partition: str | None,
    image: str | None,
    host_root: str,
    as_json: bool,
    **releases: Any,
) -> int:
    """Explain a variable, a bound path, a module, a library or the releases of a component.

    Of a variable, path or module: the value, the rule that won, the reason and its evidence with its sources, and the
    entries that lost. What is not given of image, nodes and partition stays open, and each entry that could win is
    shown with its condition. What is inside the image is judged by --image; --use and --platform choose versions of
    modules. A library is explained for one image. Of a component, or `platform`, the releases are listed: which
    `render` would use, and why each other one lost.
    """
    for name in names:
        if Path(name).is_file() and not name.startswith("/"):
            reader = "lint" if name.endswith((".sh", ".sbatch", ".slurm")) else "transport"
            raise ResolveError(f"{name}: is a file, and `why` takes names (`lumisite {reader} {name}` reads it)")
    requested = requested_releases(**releases)
    if root is not None:
        if platform or requested:
            raise ResolveError(
                "--root: the release says its platform and releases (leave --platform, --use and the like out)"
            )
        loaded, selection = _deployed(root, site)
    else:
        loaded = load_site(site_or_example(site))
        selection = resolve_selection(loaded.site, platform=platform, **requested)
    libraries = list(filter(_is_library, names))
    explained = _explain_libraries(libraries, loaded, selection, image, host_root, family) if libraries else {}
    content = _image_content(loaded.site, image if len(libraries) < len(names) else None, family)
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


def _deployed(path: Path, site: str) -> tuple[LoadedSite, Selection]:
    """Load the site of the release that is deployed, and choose its releases.

    Raises `LumisiteError`.
    """
    from lumisite.release.root import existing_root, inspect_release
    from lumisite.render.manifest import is_rendered_from

    root = existing_root(path)
    manifest = inspect_release(root, root.current).manifest if root.current else None
    if manifest is None or not manifest.release:
        raise ResolveError(
            f"--root: {root.path} has no release that can be read (`lumisite status {root.path} --all` lists them)"
        )
    name = site or recorded_site(manifest.site, root.release(root.current))
    if not name:
        raise ResolveError(f"--site: {manifest.release} is of site {manifest.site}, not embedded; name its description")
    loaded = load_site(name)
    if loaded.site.name != manifest.site:
        raise ResolveError(f"--site: release {manifest.release} is of site {manifest.site}, this is {loaded.site.name}")
    if not is_rendered_from(manifest, loaded):
        print_note(
            f"{loaded.file} is not as it was when {manifest.release} was rendered: its present text is explained"
        )
    stacks = {stack: list(versions) for stack, versions in manifest.stacks.items()}
    try:
        selection = resolve_selection(loaded.site, platform=manifest.platform, **stacks)
    except ResolveError as error:
        raise ResolveError(f"--root: {manifest.release} is no more what {loaded.file} describes: {error}") from None
    print_note(f"as release {manifest.release} has it")
    return loaded, selection


def _explain_libraries(
    names: Sequence[str],
    loaded: LoadedSite,
    selection: Selection,
    image: str | None,
    host_root: str,
    family: str | None,
) -> dict[str, LibraryExplanation]:
    """Explain libraries for an image."""
    if image is None:
        raise ResolveError(f"{names[0]}: is a library, which is explained for one image (--image IMAGE)")
    from lumisite.binds.plan_file import explain_library
    from lumisite.cli.binds import plan_image

    request, plan = plan_image(loaded.site, selection, image, host_root, family)
    planned = [one.library for one in plan.lines]
    full = {name: next((one for one in planned if one.startswith(f"{name}.so")), name) for name in names}
    return {name: explain_library(request, plan, image, full[name]) for name in names}


def _is_library(name: str) -> bool:
    return (".so" in name or name.startswith("lib")) and "/" not in name


def _image_content(site: Site, image: str | None, family: str | None) -> Holds | None:
    """Return what is known of an image, and of its family where that is named; `None` without both."""
    content = None
    if image is not None:
        from lumisite.images.known import know_image

        known = know_image(site, image)
        content = known.holds
        if known.note is not None:
            print_note(line(known.note))
    return content if family is None else replace(content or Holds(), family=family)
