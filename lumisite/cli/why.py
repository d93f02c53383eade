"""`why`: where a variable, a bound path, a module or a library is from, and what a code of a finding means."""

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
    from collections.abc import Mapping

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
        "and --platform choose versions of modules. A library is explained for one image."
    )
    parser.add_argument(
        "names",
        metavar="NAME",
        nargs="+",
        help="a variable, an absolute path, a module, a SONAME, or the code of a finding",
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
    from lumisite.findings.catalogue import find_entry
    from lumisite.findings.writers import describe
    from lumisite.render.explain import explain

    entries = [found for name in arguments.names if (found := find_entry(name))]
    if len(entries) == len(arguments.names):
        print_result(list(map(asdict, entries)), ["\n\n".join(map(describe, arguments.names))], as_json=arguments.json)
        return 0

    loaded, selection, targets = _deployed(arguments) if arguments.root else (*load_selection(arguments), {})
    libraries = _explain_libraries(arguments)
    content = _image_content(arguments, loaded.site)
    explanations = [
        libraries[name]
        if name in libraries
        else explain(
            loaded,
            selection,
            targets.get(name, name),
            holds=content,
            nodes=arguments.nodes,
            partition=arguments.partition,
        )
        for name in arguments.names
    ]
    lines = ("\n\n".join(map(str, explanations)),)
    print_result([asdict(explanation) for explanation in explanations], lines, as_json=arguments.json)
    return 0


def _deployed(arguments: argparse.Namespace) -> tuple[LoadedSite, Selection, Mapping[str, str]]:
    """Load the site of the release that is deployed, choose its releases, and map its other names to modules.

    Raises `LumisiteError`.
    """
    from lumisite.cli.site_choice import recorded_site
    from lumisite.release.root import existing_root, inspect_release
    from lumisite.render.manifest import sha256_of
    from lumisite.site.selection import resolve_selection

    if arguments.platform or requested_releases(arguments):
        raise ResolveError(
            "--root: the release says its platform and releases (leave --platform, --use and the like out)"
        )
    root = existing_root(Path(arguments.root))
    manifest = inspect_release(root, root.current).manifest if root.current else None
    if manifest is None or not manifest.release:
        raise ResolveError(
            f"--root: {root.path} has no release that can be read (`lumisite releases {root.path}` tells)"
        )
    arguments.site, arguments.platform = arguments.site or recorded_site(manifest.site), manifest.platform
    if not arguments.site:
        raise ResolveError(f"--site: {manifest.release} is of site {manifest.site}, not embedded; name its description")
    loaded = load_site(arguments.site)
    if loaded.site.name != manifest.site:
        raise ResolveError(f"--site: release {manifest.release} is of site {manifest.site}, this is {loaded.site.name}")
    if manifest.inputs.get(loaded.file, "") != sha256_of(loaded.data):
        print_note(
            f"{loaded.file} is not as it was when {manifest.release} was rendered: its present text is explained"
        )
    stacks = {stack: list(versions) for stack, versions in manifest.stacks.items()}
    try:
        selection = resolve_selection(loaded.site, platform=manifest.platform, **stacks)
    except ResolveError as error:
        raise ResolveError(f"--root: {manifest.release} is no more what {loaded.file} describes: {error}") from None
    print_note(f"as release {manifest.release} has it")
    targets = {name: manifest.names[name] for name in arguments.names if "/" in name and name in manifest.names}
    for name, target in targets.items():
        if not target:
            raise ResolveError(f"{name}: is gone, and nothing replaces it; `module load {name}` says why")
        print_note(f"{name} leads to {target}")
    return loaded, selection, targets


def _explain_libraries(arguments: argparse.Namespace) -> dict[str, LibraryExplanation]:
    """Explain the names that are those of libraries, for the image of `--image`."""
    names = [name for name in arguments.names if _is_library(name)]
    if not names:
        return {}
    if arguments.image is None:
        raise ResolveError(f"{names[0]}: is a library, which is explained for one image (--image IMAGE)")
    from lumisite.binds.plan_file import explain_library
    from lumisite.cli.binds import plan_image

    request, plan = plan_image(arguments)
    return {name: explain_library(request, plan, arguments.image, name) for name in names}


def _is_library(name: str) -> bool:
    return ".so" in name and "/" not in name


def _image_content(arguments: argparse.Namespace, site: Site) -> Holds | None:
    """Return what is known of the image that `--image` or `--family` names; `None` without both."""
    from lumisite.images.family import holds_of_image
    from lumisite.site.images import Holds

    content = None
    if arguments.image is not None and not all(map(_is_library, arguments.names)):
        content, note = holds_of_image(site, arguments.image)
        if note is not None:
            print_note(line(note))
    return content if arguments.family is None else replace(content or Holds(), family=arguments.family)
