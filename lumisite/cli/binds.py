"""`binds`: what an image needs from the host, and the bind plan of it."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from lumisite.binds.closure import PlannedLibrary
from lumisite.binds.plan import BindPlan, PlanRequest, make_plan
from lumisite.binds.plan_file import format_plan, reason_of
from lumisite.cli.commands import Command
from lumisite.cli.options import (
    FILE_NAME,
    PATH,
    host_root_option,
    json_option,
    platform_option,
    require_directory,
    site_option,
)
from lumisite.cli.output import print_json, print_lines, print_note, write_whole
from lumisite.cli.site_choice import required_site
from lumisite.errors import ResolveError, SiteError
from lumisite.findings import writers
from lumisite.images.digest import digest_of
from lumisite.images.sif import open_image
from lumisite.machine.host import DiskTree, open_file
from lumisite.machine.tree import resolve
from lumisite.site import scalars
from lumisite.site.load import load_site, parse_plan, read_input
from lumisite.site.model import Site
from lumisite.site.plans import ImagePlan, PlannedImage, literal_path
from lumisite.site.selection import Selection, resolve_selection
from lumisite.text import columns, printable


@click.command(cls=Command)
@click.argument("image", metavar="IMAGE", type=FILE_NAME, help="A SIF, or the folder of an unpacked image.")
@site_option()
@host_root_option
@click.option("--family", metavar="F", help="Image family (default: the one that recognises the image).")
@click.option("--library", "libraries", metavar="SONAME", multiple=True, help="One more library; several times.")
@platform_option
@click.option(
    "--write", metavar="FILE", type=PATH, help="Also store it as a plan; what was edited in FILE before stays."
)
@click.option(
    "--path", "paths", metavar="PATTERN", multiple=True, help="How jobs name the image; several times (default: IMAGE)."
)
@json_option
def command(
    image: str,
    site: str,
    host_root: str,
    family: str | None,
    libraries: tuple[str, ...],
    platform: str | None,
    write: Path | None,
    paths: tuple[str, ...],
    as_json: bool,
) -> int:
    """Print what an image needs from the host, library by library.

    Each library comes with the decision to bind it, to skip it (the image has it), to refuse it (the image cannot run
    it), or that the host misses it; with reason and chain. The image is read, never run. Exit 0 when all is bound or
    skipped, 1 otherwise, 4 where only start-up scripts of the image may lead to its network plugin.
    """
    for library in libraries:
        if not library or "/" in library:
            raise ResolveError(f"--library: {printable(library)} is no SONAME (such as libmpi.so.12)")
    loaded = load_site(required_site(site))
    selection = resolve_selection(loaded.site, platform=platform)
    request, plan = plan_image(loaded.site, selection, image, host_root, family, libraries, paths)
    for note in plan.notes:
        print_note(writers.line(note))
    if write is not None:
        _write_plan(write, _Names(image, host_root), paths, request, plan)
    if as_json:
        print_json(list(map(_entry, plan.lines)))
    elif plan.lines:
        print_lines(_table(plan.lines))
    return plan.exit_code


def plan_image(
    site: Site,
    selection: Selection,
    image: str,
    host_root: str,
    family: str | None = None,
    libraries: tuple[str, ...] = (),
    paths: tuple[str, ...] = (),
) -> tuple[PlanRequest, BindPlan]:
    """Plan the image of a name; `paths` are patterns that jobs will name it by."""
    require_directory(host_root)
    names = _Names(image, host_root)
    # The target of the name counts more than the name, and both more than the names that jobs will use.
    known = tuple(dict.fromkeys((*paths, names.typed, names.real)))
    request = PlanRequest(site, selection.platform, selection.default.releases, known, family, libraries)
    return request, make_plan(request, open_image(names.on_disk), DiskTree(host_root))


class _Names:
    """The names of an image: as it was `typed`, and the `real` file; both in the captured host `top`, if they are."""

    def __init__(self, image_path: str, host_root: str) -> None:
        typed, top = os.path.abspath(image_path), os.path.abspath(host_root)  # noqa: PTH100 - links stay
        is_inside = top != "/" and typed.startswith(f"{top}/")
        self.top = top if is_inside else ""
        self.typed = typed[len(self.top) :]
        self.real = self.follow(self.typed)
        self.on_disk = self.top + self.real if is_inside else image_path

    def follow(self, path: str) -> str:
        """Return the real path of a name."""
        return resolve(DiskTree(self.top), path).path if self.top else os.path.realpath(path)


def _write_plan(file: Path, image_names: _Names, paths: tuple[str, ...], request: PlanRequest, plan: BindPlan) -> None:
    """Store a plan where the admin wants it; an earlier plan there keeps what was edited."""
    old: ImagePlan | None = parse_plan(read_input(file), file) if file.exists() else None
    real = image_names.real
    paths = paths or (tuple(map(glob.escape, request.image_paths)) if old is None else old.paths)
    literal = ((path, literal_path(path)) for path in paths)
    links = tuple(path for path, name in literal if name not in (None, real) and image_names.follow(str(name)) == real)
    image = None
    if not Path(image_names.on_disk).is_dir():
        source = open_file(image_names.on_disk)
        image = PlannedImage(
            bytes=source.size,
            digest=scalars.Line(digest_of(source)),
            file=scalars.Name(real) if links else None,
            names=tuple(map(scalars.Name, links)),
        )
    # A path that is no text makes no plan: reading it back fails.
    content = format_plan(plan, request, paths, image, old).encode(errors="surrogateescape")
    left = 0
    try:
        parse_plan(content, file, request.site)
    except SiteError as error:
        # Only what the image cannot have may be left for the reviewer to decide.
        if any(finding.code != "library-unmet" for finding in error.findings):
            raise
        left = len(error.findings)
    write_whole(file, content)
    next_step = "review it, then name it in `plans` of the site"
    print_note(printable(f"{file} is written; {next_step}"))
    if left:
        have = "library has" if left == 1 else "libraries have"
        print_note(
            printable(f"{file}: render refuses it until {left} refused or missing {have} `accepted:` with a reason")
        )


def _entry(line: PlannedLibrary) -> dict[str, object]:
    return {
        "source": line.source or line.library,
        "target": line.target,
        "decision": line.decision,
        "reason": "; ".join((reason_of(line), *map(printable, line.warnings))),
        "chain": " <- ".join(line.chain),
    }


def _table(lines: Sequence[PlannedLibrary]) -> Iterator[str]:
    """Yield a row for each library, and below it where it comes from and goes to, the reason and the warnings."""
    rows = [("decision", "library", "chain")]
    rows += [(line.decision, line.library, " <- ".join(line.chain)) for line in lines]
    head, *texts = columns(rows)
    yield head
    for line, text in zip(lines, texts, strict=True):
        yield text
        if line.decision == "bind":
            yield f"    {printable(f'{line.source}:{line.target}')}"
        yield f"    {reason_of(line)}"
        yield from (f"    warning: {printable(note)}" for note in line.warnings)
