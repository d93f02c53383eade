"""`why`: where a variable, bind, module or library is from, and which releases of a component are chosen."""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lumisite.cli.arguments import (
    add_host_root,
    add_json,
    add_selection,
    add_site_or_example,
    load_selection,
    requested_releases,
)
from lumisite.cli.output import print_note, print_result
from lumisite.errors import ResolveError
from lumisite.findings.writers import line
from lumisite.site.load import load_site

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lumisite.binds.plan_file import LibraryExplanation
    from lumisite.site.images import Holds
    from lumisite.site.load import LoadedSite
    from lumisite.site.model import Site
    from lumisite.site.selection import Selection


def add_why(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `why`."""
    parser.description = (
        "Explain a variable, a bound path or a module: the value, the rule that won, the reason and its evidence with"
        " its sources, and the entries that lost. What is not given of image, nodes and partition stays open, and "
        "each entry that could win is shown with its condition. What is inside the image is judged by --image; --use "
        "and --platform choose versions of modules. A library is explained for one image. Of a component, or "
        "`platform`, the releases are listed: which `render` would use, and why each other one lost."
    )
    parser.add_argument(
        "names",
        metavar="NAME",
        nargs="+",
        help="a variable, an absolute path, a module, a SONAME, a component, or `platform`",
    )
    add_site_or_example(parser)
    parser.add_argument(
        "--root",
        metavar="ROOT",
        help="explain what is deployed in this deployment root: its site, platform and releases",
    )
    add_selection(parser)
    parser.add_argument("--family", metavar="F", help="image family (default: any)")
    parser.add_argument("--nodes", choices=("one", "several"), help="nodes of the job step (default: any)")
    parser.add_argument("--partition", metavar="NAME", help="partition (default: any)")
    parser.add_argument(
        "--image", metavar="IMAGE", help="the image that runs: read where it is there, else told by its name"
    )
    add_host_root(parser)
    add_json(parser)


def run_why(arguments: argparse.Namespace) -> int:
    """Explain each name; an unknown one is an error that names what comes close."""
    from lumisite.render.explain import explain

    names = arguments.names
    for name in names:
        if Path(name).is_file() and not name.startswith("/"):
            reader = "lint" if name.endswith((".sh", ".sbatch", ".slurm")) else "transport"
            raise ResolveError(f"{name}: is a file, and `why` takes names (`lumisite {reader} {name}` reads it)")
    loaded, selection = _deployed(arguments) if arguments.root else load_selection(arguments)
    libraries = _explain_libraries(arguments, names)
    content = _image_content(arguments, loaded.site, names)
    records: list[dict[str, object]] = []
    texts: list[str] = []
    for name in names:
        if name in _components(selection):
            record, text = _explain_component(selection, name)
        else:
            explanation = libraries.get(name) or explain(
                loaded,
                selection,
                name,
                holds=content,
                nodes=arguments.nodes,
                partition=arguments.partition,
            )
            record, text = asdict(explanation), str(explanation)
        records.append(record)
        texts.append(text)
    print_result(records, ["\n\n".join(texts)], as_json=arguments.json)
    return 0


def _components(selection: Selection) -> set[str]:
    """Return the names of which `render` chooses releases: the components, and `platform`."""
    return {candidate.kind for candidate in selection.candidates}


def _explain_component(selection: Selection, name: str) -> tuple[dict[str, object], str]:
    """Return which releases of a component would be chosen and why the others lost, for JSON and as text."""
    candidates = [candidate for candidate in selection.candidates if candidate.kind == name]
    rows = [
        {"name": candidate.name, "chosen": candidate.chosen, "reason": candidate.reason} for candidate in candidates
    ]
    width = max(len(candidate.name) for candidate in candidates)
    lines = [f"{'*' if row['chosen'] else ' '} {row['name']:{width}}  {row['reason']}" for row in rows]
    return {"name": name, "kind": "component", "candidates": rows}, "\n".join([f"{name} ({selection})", *lines])


def _deployed(arguments: argparse.Namespace) -> tuple[LoadedSite, Selection]:
    """Load the site of the release that is deployed, and choose its releases.

    Raises `LumisiteError`.
    """
    from lumisite.cli.site_choice import recorded_site
    from lumisite.release.root import existing_root, inspect_release
    from lumisite.render.manifest import is_rendered_from
    from lumisite.site.selection import resolve_selection

    if arguments.platform or requested_releases(arguments):
        raise ResolveError(
            "--root: the release says its platform and releases (leave --platform, --use and the like out)"
        )
    root = existing_root(Path(arguments.root))
    manifest = inspect_release(root, root.current).manifest if root.current else None
    if manifest is None or not manifest.release:
        raise ResolveError(
            f"--root: {root.path} has no release that can be read (`lumisite status {root.path} --all` lists them)"
        )
    arguments.site = arguments.site or recorded_site(manifest.site, root.release(root.current))
    arguments.platform = manifest.platform
    if not arguments.site:
        raise ResolveError(f"--site: {manifest.release} is of site {manifest.site}, not embedded; name its description")
    loaded = load_site(arguments.site)
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


def _explain_libraries(arguments: argparse.Namespace, names: Sequence[str]) -> dict[str, LibraryExplanation]:
    """Explain the names that are those of libraries, for the image of `--image`."""
    libraries = list(filter(_is_library, names))
    if not libraries:
        return {}
    if arguments.image is None:
        raise ResolveError(f"{libraries[0]}: is a library, which is explained for one image (--image IMAGE)")
    from lumisite.binds.plan_file import explain_library
    from lumisite.cli.binds import plan_image

    request, plan = plan_image(arguments)
    planned = [one.library for one in plan.lines]
    full = {name: next((one for one in planned if one.startswith(f"{name}.so")), name) for name in libraries}
    return {name: explain_library(request, plan, arguments.image, full[name]) for name in libraries}


def _is_library(name: str) -> bool:
    return (".so" in name or name.startswith("lib")) and "/" not in name


def _image_content(arguments: argparse.Namespace, site: Site, names: Sequence[str]) -> Holds | None:
    """Return what is known of the image that `--image` or `--family` names; `None` without both."""
    from lumisite.images.known import know_image
    from lumisite.site.images import Holds

    content = None
    if arguments.image is not None and not all(map(_is_library, names)):
        known = know_image(site, arguments.image)
        content = known.holds
        if known.note is not None:
            print_note(line(known.note))
    return content if arguments.family is None else replace(content or Holds(), family=arguments.family)
