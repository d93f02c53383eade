"""Commands that read the site description and explain: check, resolve, why."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sized
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from lumisite.cli.parser import load_selection, say
from lumisite.errors import ResolveError, SiteError
from lumisite.site.load import load_plans, load_site

if TYPE_CHECKING:
    from lumisite.binds.plan import LibraryExplanation
    from lumisite.site.images import Holds
    from lumisite.site.model import Site


def run_check(arguments: argparse.Namespace) -> int:
    """Print all faults, or a line that says what was read."""
    if arguments.host:
        from lumisite.cli.host import check_deployed

        return check_deployed(arguments.file, arguments.root, arguments.host_root or "/", as_json=arguments.json)
    for option, value in (("--root", arguments.root), ("--host-root", arguments.host_root), ("--json", arguments.json)):
        if value:
            raise ResolveError(f"{option}: goes with --host only")
    try:
        loaded = load_site(arguments.file)
        plans = load_plans(loaded)
    except SiteError as error:
        print(error)
        say(_count(error.problems, "fault"))
        return error.exit_code
    site = loaded.site
    print(
        f"{loaded.file}: no faults: {_count(site.platforms, 'platform')}, {len(site.cpe)} CPE and "
        f"{len(site.rocm)} ROCm releases, {_count(site.families, 'image family')}, {_count(site.settings, 'setting')}, "
        f"{_count(site.modules, 'module')}" + (f", {_count(plans, 'plan')}" if plans else "")
    )
    return 0


def run_resolve(arguments: argparse.Namespace) -> int:
    """Print every candidate with its reason, the chosen ones marked."""
    _, selection = load_selection(arguments)
    if arguments.json:
        candidates = [asdict(one) for one in selection.candidates]
        chosen = {"platform": selection.platform, "cpe": selection.cpe, "rocm": selection.rocm}
        print(json.dumps({**chosen, "candidates": candidates}, indent=2, default=str))
        return 0
    print(selection)
    width = max(len(candidate.name) for candidate in selection.candidates)
    for candidate in selection.candidates:
        mark = "*" if candidate.chosen else " "
        print(f"{mark} {candidate.kind:8}  {candidate.name:{width}}  {candidate.reason}")
    return 0


def run_why(arguments: argparse.Namespace) -> int:
    """Explain each name; an unknown one is an error that names what comes close."""
    from lumisite.render.explain import explain

    loaded, selection = load_selection(arguments)
    libraries = _explain_libraries(arguments)
    holds = _holds(arguments, loaded.site)
    explanations = [
        libraries[name]
        if name in libraries
        else explain(loaded, selection, name, holds=holds, nodes=arguments.nodes, partition=arguments.partition)
        for name in arguments.names
    ]
    if arguments.json:
        print(json.dumps([asdict(explanation) for explanation in explanations], indent=2))
    else:
        print("\n\n".join(str(explanation) for explanation in explanations))
    return 0


def _explain_libraries(arguments: argparse.Namespace) -> dict[str, LibraryExplanation]:
    """Explain the names that are those of libraries, for the image that was given."""
    names = [name for name in arguments.names if _is_library(name)]
    if not names:
        return {}
    if arguments.image is None:
        raise ResolveError(f"{names[0]}: is a library, which is explained for one image (--image IMAGE)")
    from lumisite.binds.plan import explain_library
    from lumisite.cli.containers import plan_image

    request, plan = plan_image(arguments, arguments.image, cpe=arguments.cpe, rocm=arguments.rocm)
    return {name: explain_library(request, plan, arguments.image, name) for name in names}


def _is_library(name: str) -> bool:
    return ".so" in name and "/" not in name


def _holds(arguments: argparse.Namespace, site: Site) -> Holds:
    """Give what the image holds that runs, as far as it is asked for."""
    from lumisite.images.family import holds_of_image
    from lumisite.site.images import Holds

    holds = Holds()
    if arguments.image is not None and not all(map(_is_library, arguments.names)):
        holds, note = holds_of_image(site, arguments.image)
        if note:
            say(note)
    return holds if arguments.family is None else replace(holds, family=arguments.family)


def _count(things: Sized, name: str) -> str:
    if len(things) == 1:
        return f"1 {name}"
    return f"{len(things)} {name.removesuffix('y')}ies" if name.endswith("y") else f"{len(things)} {name}s"


RUNS = {"check": run_check, "resolve": run_resolve, "why": run_why}
