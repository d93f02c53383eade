"""Commands that read the site description and explain: check, resolve, why."""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lumisite.cli.arguments import add_host_root, add_json, add_json_or_sarif, add_selection, add_site_or_example
from lumisite.cli.parser import asked_for, load_selection, print_sarif, say, say_untried, tell
from lumisite.errors import ResolveError, SiteError
from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding, Place
from lumisite.findings.writers import advice, line, message
from lumisite.site.load import load_plans, load_site
from lumisite.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lumisite.binds.plan_file import LibraryExplanation
    from lumisite.site.images import Holds
    from lumisite.site.load import LoadedSite
    from lumisite.site.model import Site
    from lumisite.site.selection import Selection


def add_check(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `check`."""
    parser.description = (
        "Read a site description and print every fault as file:line:column: key: what is wrong, or as JSON with file,"
        " line, column, key and message, or as SARIF. Exit 0 when there is none, 2 otherwise. With --host, check the "
        "deployed release against this node instead: exit 1 when something that its modules need is not there as "
        "they need it, 5 when only this node can be meant."
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        default="",
        help="a YAML file, or an embedded site's name (default: as for --site)",
    )
    parser.add_argument("--host", action="store_true", help="check the deployed release of the site against this node")
    parser.add_argument("--root", metavar="ROOT", help="with --host: the deployment root (default: the site's)")
    parser.add_argument(
        "--host-root", metavar="DIR", help="with --host: the root of the node, or of a copy of it (default: /)"
    )
    parser.add_argument(
        "--other-node",
        metavar="FILE",
        action="append",
        default=[],
        type=Path,
        help="with --host: what --json printed on another node of the kind; a fault of all of them drains no node",
    )
    parser.add_argument("--site", metavar="NAME|FILE", help="the same as FILE")
    add_json_or_sarif(parser)


def add_resolve(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `resolve`."""
    parser.description = (
        "Show the platform and the releases of its stacks that `render` would use, and why each other one lost."
    )
    add_site_or_example(parser)
    add_selection(parser)
    add_json(parser)


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


def run_check(arguments: argparse.Namespace) -> int:
    """Print all faults, or a line that says what was read."""
    if arguments.host:
        if arguments.sarif:
            raise ResolveError(make_finding("option-excluded", "--sarif", other="--host"))
        from lumisite.cli.host import check_deployed

        return check_deployed(
            arguments.file,
            arguments.root,
            arguments.host_root or "/",
            arguments.other_node,
            as_json=arguments.json,
        )
    of_host = (("--root", arguments.root), ("--host-root", arguments.host_root), ("--other-node", arguments.other_node))
    for option, value in of_host:
        if value:
            raise ResolveError(make_finding("option-needed", option, other="--host"))
    try:
        loaded = load_site(arguments.file)
        plans = load_plans(loaded)
    except SiteError as error:
        if arguments.sarif:
            print_sarif(error.findings)
        else:
            tell(list(map(_fault_row, error.findings)), [str(error)], as_json=arguments.json)
        say(counted(len(error.findings), "fault"))
        return error.exit_code
    if arguments.sarif:
        print_sarif([])
        return 0
    if arguments.json:
        print("[]")
        return 0
    site = loaded.site
    releases = [f"{len(stack.releases)} {stack.title}" for stack in site.stacks.values()]
    say_untried(site)
    have = {"image family": site.families, "setting": site.settings, "module": site.modules, "plan": plans}
    print(
        f"{loaded.file}: no faults: {counted(len(site.platforms), 'platform')}, "
        + (f"{' and '.join(releases)} releases, " if releases else "")
        + ", ".join(counted(len(things), name) for name, things in have.items() if things or name != "plan")
    )
    return 0


def _fault_row(finding: Finding) -> dict[str, object]:
    """Return a fault as `check --json` prints it."""
    place = finding.place or Place("")
    return {
        "file": place.file,
        "line": place.line,
        "column": place.column,
        "key": finding.subject,
        "code": finding.code,
        "message": message(finding),
        "advice": advice(finding),
    }


def run_resolve(arguments: argparse.Namespace) -> int:
    """Print every candidate with its reason, the chosen ones marked."""
    _, selection = load_selection(arguments)
    chosen = {"platform": selection.platform, **selection.stacks}
    candidates = [{**vars(candidate), "reason": message(candidate.reason)} for candidate in selection.candidates]
    width = max(len(row["name"]) for row in candidates)
    rows = (
        f"{'*' if row['chosen'] else ' '} {row['kind']:8}  {row['name']:{width}}  {row['reason']}" for row in candidates
    )
    tell({**chosen, "candidates": candidates}, (str(selection), *rows), as_json=arguments.json)
    return 0


def run_why(arguments: argparse.Namespace) -> int:
    """Explain each name; an unknown one is an error that names what comes close."""
    from lumisite.findings.catalogue import find_entry
    from lumisite.findings.writers import describe
    from lumisite.render.explain import explain

    entries = [found for name in arguments.names if (found := find_entry(name))]
    if len(entries) == len(arguments.names):
        tell(list(map(asdict, entries)), ["\n\n".join(map(describe, arguments.names))], as_json=arguments.json)
        return 0

    loaded, selection, led = _deployed(arguments) if arguments.root else (*load_selection(arguments), {})
    libraries = _explain_libraries(arguments)
    holds = _holds(arguments, loaded.site)
    explanations = [
        libraries[name]
        if name in libraries
        else explain(
            loaded, selection, led.get(name, name), holds=holds, nodes=arguments.nodes, partition=arguments.partition
        )
        for name in arguments.names
    ]
    lines = ("\n\n".join(map(str, explanations)),)
    tell([asdict(explanation) for explanation in explanations], lines, as_json=arguments.json)
    return 0


def _deployed(arguments: argparse.Namespace) -> tuple[LoadedSite, Selection, Mapping[str, str]]:
    """Load the site of the release that is deployed, choose what it has, and give what its other names lead to.

    Raises `LumisiteError`.
    """
    from lumisite.cli.chosen import own_site
    from lumisite.release.root import existing_root, inspect_release
    from lumisite.render.manifest import sha256_of
    from lumisite.site.selection import resolve_selection

    if arguments.platform or asked_for(arguments):
        raise ResolveError(
            "--root: the release says its platform and releases (leave --platform, --use and the like out)"
        )
    root = existing_root(Path(arguments.root))
    manifest = inspect_release(root, root.current).manifest if root.current else None
    if manifest is None or not manifest.release:
        raise ResolveError(
            f"--root: {root.path} has no release that can be read (`lumisite releases {root.path}` tells)"
        )
    arguments.site, arguments.platform = arguments.site or own_site(manifest.site), manifest.platform
    if not arguments.site:
        raise ResolveError(f"--site: {manifest.release} is of site {manifest.site}, not embedded; name its description")
    loaded = load_site(arguments.site)
    if loaded.site.name != manifest.site:
        raise ResolveError(f"--site: release {manifest.release} is of site {manifest.site}, this is {loaded.site.name}")
    if manifest.inputs.get(loaded.file, "") != sha256_of(loaded.data):
        say(f"{loaded.file} is not as it was when {manifest.release} was rendered: its present text is explained")
    stacks = {stack: list(versions) for stack, versions in manifest.stacks.items()}
    try:
        selection = resolve_selection(loaded.site, platform=manifest.platform, **stacks)
    except ResolveError as error:
        raise ResolveError(f"--root: {manifest.release} is no more what {loaded.file} describes: {error}") from None
    say(f"as release {manifest.release} has it")
    led = {name: manifest.names[name] for name in arguments.names if "/" in name and name in manifest.names}
    for name, to in led.items():
        if not to:
            raise ResolveError(f"{name}: is gone, and nothing replaces it; `module load {name}` says why")
        say(f"{name} leads to {to}")
    return loaded, selection, led


def _explain_libraries(arguments: argparse.Namespace) -> dict[str, LibraryExplanation]:
    """Explain the names that are those of libraries, for the image that was given."""
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


def _holds(arguments: argparse.Namespace, site: Site) -> Holds | None:
    """Return what is known of the image that was asked about; `None` where none was."""
    from lumisite.images.family import holds_of_image
    from lumisite.site.images import Holds

    holds = None
    if arguments.image is not None and not all(map(_is_library, arguments.names)):
        holds, note = holds_of_image(site, arguments.image)
        if note is not None:
            say(line(note))
    return holds if arguments.family is None else replace(holds or Holds(), family=arguments.family)
