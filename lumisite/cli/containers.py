"""Commands about containers: `binds`."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lumisite.cli.parser import add_host_option, add_json_option, add_site_option, check_host_root, say, write_whole
from lumisite.errors import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lumisite.binds.closure import Line
    from lumisite.binds.plan import Plan, Request
    from lumisite.cli.parser import Commands
    from lumisite.site.plans import ImagePlan


def add_commands(commands: Commands) -> None:
    """Add `binds`."""
    binds = commands.add_parser(
        "binds",
        help="what a container needs from the host, library by library",
        description="Print what an image needs from the host: each library with the decision to bind it, to skip it "
        "(the image has it), to refuse it (the image cannot run it), or that the host misses it; with the reason and "
        "the chain that led to it. The image is read, never run. Exit 0 when all is bound or skipped, 1 otherwise.",
    )
    binds.add_argument("image", metavar="IMAGE", help="a SIF, or the folder of an unpacked image")
    add_site_option(binds)
    add_host_option(binds)
    binds.add_argument("--family", metavar="F", help="image family (default: the one that recognises the image)")
    binds.add_argument(
        "--library",
        action="append",
        default=[],
        metavar="SONAME",
        help="a library to bring beside those of the family, such as libmpi.so.12; may be given several times",
    )
    binds.add_argument("--platform", metavar="P", help="what the machine is (default: the site's current platform)")
    binds.add_argument("--cpe", metavar="V", help="CPE release (default: the platform's own)")
    binds.add_argument("--rocm", metavar="V", help="ROCm release, for the default family (default: the platform's own)")
    binds.add_argument(
        "--write",
        type=Path,
        metavar="FILE",
        help="also store it as a plan, to be reviewed, for `render`; what you have edited in FILE before stays",
    )
    binds.add_argument(
        "--path",
        action="append",
        default=[],
        metavar="PATTERN",
        help="how jobs name the image, for its plan, and for its family where IMAGE itself tells none; may be given "
        "several times (default: IMAGE, and where it leads)",
    )
    add_json_option(binds)
    binds.set_defaults(call=run_binds)


def run_binds(arguments: argparse.Namespace) -> int:
    """Print the plan of one image, and store it."""
    import json

    from lumisite.errors import ResolveError

    for library in arguments.library:
        if not library.isprintable() or not library or "/" in library:
            raise ResolveError(f"--library: {library!r} is no SONAME, such as libmpi.so.12")
    request, plan = plan_image(
        arguments,
        arguments.image,
        cpe=[arguments.cpe] if arguments.cpe else [],
        rocm=[arguments.rocm] if arguments.rocm else [],
        libraries=tuple(arguments.library),
        paths=tuple(arguments.path),
    )
    for note in plan.notes:
        say(shown(note))
    if arguments.write is not None:
        _write_plan(arguments, request, plan)
    if arguments.json:
        entries = ",".join("\n  " + json.dumps(_entry(line)) for line in plan.lines)
        print(f"[{entries}\n]")
    elif plan.lines:
        print("\n".join(_table(plan.lines)))
    return 0 if plan.sound else 1


def plan_image(
    arguments: argparse.Namespace,
    image_path: str,
    *,
    cpe: Sequence[str],
    rocm: Sequence[str],
    libraries: tuple[str, ...] = (),
    paths: tuple[str, ...] = (),
) -> tuple[Request, Plan]:
    """Plan an image with a command's options `--site`, `--platform`, `--family` and `--host-root`."""
    from lumisite.binds.plan import Request, make_plan
    from lumisite.images.sif import open_image
    from lumisite.machine.host import DiskTree
    from lumisite.site.load import load_site
    from lumisite.site.selection import resolve_selection

    check_host_root(arguments.host_root)
    site = load_site(arguments.site).site
    chosen = resolve_selection(site, platform=arguments.platform, cpe=cpe, rocm=rocm)
    names = _names(image_path, arguments.host_root)
    image = open_image(names.on_disk)
    # What the name leads to counts more than the name, and both more than what jobs will call it.
    known = tuple(dict.fromkeys((*paths, names.typed, names.real)))
    request = Request(site, chosen.platform, chosen.cpe[0], chosen.rocm[0], known, arguments.family, libraries)
    return request, make_plan(request, image, DiskTree(arguments.host_root))


@dataclass(frozen=True)
class _Names:
    """How an image is called: as it was `typed`, and the `real` file; both in the captured host `top`, if they are."""

    typed: str
    real: str
    top: str = ""
    on_disk: str = ""

    def leads(self, path: str) -> str:
        """Give where a path leads."""
        from lumisite.machine.host import DiskTree
        from lumisite.machine.tree import resolve

        return resolve(DiskTree(self.top), path).path if self.top else os.path.realpath(path)


def _names(image_path: str, host_root: str) -> _Names:
    """Give an image's names; in a captured host they are those that the image has on that host."""
    typed, top = os.path.abspath(image_path), os.path.abspath(host_root)  # noqa: PTH100
    if "\0" in image_path:  # opening it says so
        return _Names(image_path, image_path, "", image_path)
    if top == "/" or not typed.startswith(f"{top}/"):
        return _Names(typed, os.path.realpath(typed), "", image_path)
    inside = _Names(typed[len(top) :], "", top)
    real = inside.leads(inside.typed)
    return replace(inside, real=real, on_disk=top + real)


def _write_plan(arguments: argparse.Namespace, request: Request, plan: Plan) -> None:
    """Store a plan where the admin wants it; an earlier plan there keeps what was edited."""
    import glob

    from lumisite.binds.plan import format_plan
    from lumisite.errors import SiteError
    from lumisite.images.digest import digest_of
    from lumisite.machine.host import open_file
    from lumisite.site.load import parse_plan, read_input
    from lumisite.site.plans import PlannedImage, literal_path, plan_stages
    from lumisite.site.scalars import Line, Name

    file: Path = arguments.write
    old: ImagePlan | None = parse_plan(read_input(file), file) if file.exists() else None
    known = _names(arguments.image, arguments.host_root)
    real = known.real
    paths = tuple(arguments.path) or (tuple(map(glob.escape, request.image_paths)) if old is None else old.paths)
    literal = ((path, literal_path(path)) for path in paths)
    names = tuple(path for path, name in literal if name not in (None, real) and known.leads(str(name)) == real)
    image = None
    if not Path(known.on_disk).is_dir():
        source = open_file(known.on_disk)
        digest, links = Line(digest_of(source, "header")), tuple(map(Name, names))
        image = PlannedImage(bytes=source.size, digest=digest, file=Name(real) if links else None, names=links)
    # A path that is no text makes no plan: reading it back says so.
    content = format_plan(plan, request, paths, image, old).encode(errors="surrogateescape")
    left = 0
    try:
        parse_plan(content, file, plan_stages(request.site, {}))
    except SiteError as error:
        # Only what the image cannot have may be left for the reviewer to decide.
        if any(not problem.key.endswith(".decision") for problem in error.problems):
            raise
        left = len(error.problems)
    write_whole(file, content)
    next_step = "review it, then name it in `plans` of the site, or give it to `lumisite render --plan`"
    say(shown(f"{file} is written; {next_step}"))
    if left:
        have = "library has" if left == 1 else "libraries have"
        say(shown(f"{file}: render refuses it until {left} refused or missing {have} `accepted:` with a reason"))


def _entry(line: Line) -> dict[str, object]:
    return {
        "source": line.source or line.library,
        "target": line.target,
        "decision": line.decision,
        "reason": "; ".join((line.reason, *line.warnings)),
        "chain": " <- ".join(line.chain),
    }


def _table(lines: Sequence[Line]) -> Iterator[str]:
    """Give a row for each library, and below it where it comes from and goes to, the reason and the warnings."""
    rows = [("decision", "library", "wanted", "found", "chain")]
    rows += [
        (line.decision, line.library, line.wanted or "-", line.found or "-", " <- ".join(line.chain)) for line in lines
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    head, *texts = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    yield head
    for line, text in zip(lines, texts, strict=True):
        yield text
        if line.decision == "bind":
            yield f"    {shown(f'{line.source}:{line.target}')}"
        yield f"    {line.reason}"
        yield from (f"    warning: {note}" for note in line.warnings)
