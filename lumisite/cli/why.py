"""`why`: where a variable, bind, module or library is from, what a code means, and what an error text points to."""

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
from lumisite.findings.catalogue import make_finding
from lumisite.findings.writers import line
from lumisite.site.load import load_site
from lumisite.text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lumisite.binds.plan_file import LibraryExplanation
    from lumisite.site.images import Holds
    from lumisite.site.load import LoadedSite
    from lumisite.site.model import Site
    from lumisite.site.selection import Selection
    from lumisite.vendors.symptom import SymptomMatch

#: An error text is quoted up to here, in characters.
MOST_QUOTE = 200
#: What is printed about a name: objects for JSON, and text.
Explained = tuple[list[dict[str, object]], str]


def add_why(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `why`."""
    parser.description = (
        "Explain a variable, a bound path or a module: the value, the rule that won, the reason and its evidence with"
        " its sources, and the entries that lost. What is not given of image, nodes and partition stays open, and "
        "each entry that could win is shown with its condition. What is inside the image is judged by --image; --use "
        "and --platform choose versions of modules. A library is explained for one image. An error text, or what is "
        'seen in words ("slow on two nodes"), leads to its causes and to the next command; `-` reads it from standard '
        "input, such as all that a job printed."
    )
    parser.add_argument(
        "names",
        metavar="NAME",
        nargs="+",
        help=(
            "a variable, an absolute path, a module, a SONAME, the code of a finding, an error text in quotes, or - for"
            " one on standard input"
        ),
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
    texts = {name: _read_text() if name == "-" else name for name in dict.fromkeys(arguments.names)}
    without_site = {
        name: found
        for name, text in texts.items()
        if (found := _explain_code(text) or _explain_symptom(text, is_text=name == "-"))
    }
    explained = {**without_site, **_explain_names(arguments, [n for n in arguments.names if n not in without_site])}
    records = [record for name in arguments.names for record in explained[name][0]]
    print_result(records, ["\n\n".join(explained[name][1] for name in arguments.names)], as_json=arguments.json)
    return 0


def _explain_names(arguments: argparse.Namespace, names: Sequence[str]) -> dict[str, Explained]:
    """Explain what the site has under these names; raises `LumisiteError`."""
    from lumisite.render.explain import explain

    if not names:
        return {}
    loaded, selection, targets = _deployed(arguments) if arguments.root else (*load_selection(arguments), {})
    libraries = _explain_libraries(arguments, names)
    content = _image_content(arguments, loaded.site, names)
    nodes, partition = arguments.nodes, arguments.partition
    found: dict[str, Explained] = {}
    for name in names:
        target = targets.get(name, name)
        try:
            explanation = libraries.get(name) or explain(
                loaded, selection, target, holds=content, nodes=nodes, partition=partition
            )
        except ResolveError as error:
            if error.finding.code != "unknown-name" or not (symptoms := _symptoms_of(name)):
                raise
            found[name] = symptoms  # an error text of one word, such as the name of a status
        else:
            found[name] = ([asdict(explanation)], str(explanation))
    return found


def _explain_code(name: str) -> Explained | None:
    """Return what the catalogue has about a code, for JSON and as text; `None` for what is no code."""
    from lumisite.findings.catalogue import find_entry
    from lumisite.findings.writers import describe

    found = find_entry(name)
    return None if found is None else ([asdict(found)], describe(name))


def _read_text() -> str:
    """Return standard input: of a long one the beginning, where the first error is, and the end."""
    from lumisite.cli.input import file_blocks
    from lumisite.vendors.symptom import MOST_TEXT

    half = MOST_TEXT // 2
    begin, end = bytearray(), bytearray()
    for block in file_blocks("-"):
        room = max(half - len(begin), 0)
        begin += block[:room]
        end = (end + block[room:])[-half:]
    return (begin + end).decode(errors="replace")


def _explain_symptom(name: str, *, is_text: bool = False) -> Explained | None:
    """Return what an error text or the name of a symptom points to; `None` for what is neither.

    Raises `ResolveError` for a text that no symptom fits.
    """
    from lumisite.vendors.symptom import is_symptom

    if not is_text and not is_symptom(name):
        return None
    found = _symptoms_of(name)
    if found is None:
        first = next(iter(name.strip().splitlines()), "-")
        raise ResolveError(make_finding("symptom-unknown", first[:MOST_QUOTE]))
    return found


def _symptoms_of(text: str) -> Explained | None:
    """Return the symptoms that fit a text, for JSON and as text; `None` where there are none."""
    from lumisite.vendors.symptom import find_symptoms

    found = find_symptoms(text)
    if not found:
        return None
    records: list[dict[str, object]] = [
        {"symptom": match.name, **asdict(match.symptom), "line": match.line} for match in found
    ]
    return records, "\n\n".join(map(_describe_symptom, found))


def _describe_symptom(match: SymptomMatch) -> str:
    symptom = match.symptom
    lines = [f"{match.name}: {symptom.title} ({symptom.program})"]
    if match.line != match.name:
        lines.append(f"line       {printable(match.line[:MOST_QUOTE])}")
    if symptom.follows:
        lines.append("note       this mostly follows from another error: look for the first one of the log")
    for cause in symptom.causes:
        lines.append(f"cause      {cause.text}")
        lines.append(f"  run      {cause.run}")
        lines.append(f"  more     lumisite why {' '.join((*cause.settings, *cause.codes))}")
    return "\n".join((*lines, f"source     {symptom.source}"))


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
    return {name: explain_library(request, plan, arguments.image, name) for name in libraries}


def _is_library(name: str) -> bool:
    return ".so" in name and "/" not in name


def _image_content(arguments: argparse.Namespace, site: Site, names: Sequence[str]) -> Holds | None:
    """Return what is known of the image that `--image` or `--family` names; `None` without both."""
    from lumisite.images.family import holds_of_image
    from lumisite.site.images import Holds

    content = None
    if arguments.image is not None and not all(map(_is_library, names)):
        content, note = holds_of_image(site, arguments.image)
        if note is not None:
            print_note(line(note))
    return content if arguments.family is None else replace(content or Holds(), family=arguments.family)
