"""The plan of an image: put the question together, ask, write the answer as a reviewed file, and explain a line of it.

The question is: which roots, which directories of the host, which binds of modules.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import yaml

from lumisite.binds.closure import Line, Sides, closure
from lumisite.binds.plugin import plugin_lines, unopened
from lumisite.errors import ResolveError
from lumisite.images.collectives import read_collectives
from lumisite.images.container import container_of
from lumisite.images.container import library_path as library_path_of_image
from lumisite.images.contents import plugins_in
from lumisite.images.family import recognise_family, recognised
from lumisite.images.recipe import compare_recipe
from lumisite.images.remarks import remarks
from lumisite.images.sif import Image
from lumisite.images.speed import LIBFABRIC, parts_for_speed
from lumisite.images.versions import read_holds
from lumisite.machine.ldcache import glob
from lumisite.machine.library_names import in_order, numbers_in
from lumisite.machine.loader import MACHINES, Loader, Processor, processor, read_rules
from lumisite.machine.tree import Tree, is_under, names_of, opened_by, resolve
from lumisite.site.decode import suggestion
from lumisite.site.entries import Bind
from lumisite.site.images import Holds
from lumisite.site.ledger import Situation, decide
from lumisite.site.library_path import library_path
from lumisite.site.model import Site
from lumisite.site.plans import UNMET, ImagePlan, PlanLine, PlannedImage
from lumisite.site.versions import Version
from lumisite.vendors import all_software, all_vendors, software_of

#: What every x86-64 server of the last ten years has, where a captured tree has no /proc/cpuinfo.
_ASSUMED = Processor(levels=("x86-64-v3", "x86-64-v2"))
#: Where a library keeps its files below its own directory. Images are built with GCC, so its builds come first.
_FOLDERS = (
    "lib64",
    "lib",
    "gtl/lib",
    "ofi/gnu/*/lib",
    "ofi/gnu/*/lib-abi-mpich",
    "ofi/*/*/lib",
    "ofi/*/*/lib-abi-mpich",
)

#: What is said of an image that no family knows and that lacks something.
UNKNOWN = "so how fast it runs between nodes is unknown: judge the log of a run with `lumisite transport`"

#: What a plan file begins with.
_HEADER = """\
# What one image needs from the host: found by `lumisite binds --write`, to be reviewed by a person, and compiled by
# `lumisite render` into the wrapper. Of a line, only `bind` and `without` do something. Yours to edit are `paths` and
# `accepted`; they stay when the file is written again.
"""


@dataclass(frozen=True)
class Plan:
    """What an image needs from a host: a line for each library, and `notes` on the whole."""

    family: str
    lines: tuple[Line, ...]
    notes: tuple[str, ...]
    holds: Holds = field(default_factory=Holds)

    @property
    def sound(self) -> bool:
        """Whether a container can have all that it needs."""
        return all(line.decision in ("bind", "skip") for line in self.lines)


@dataclass(frozen=True)
class Request:
    """What is asked: the site and its releases, the names of the image, and what the admin adds or overrides."""

    site: Site
    platform: str
    releases: Mapping[str, Version]
    image_paths: tuple[str, ...]
    family: str | None = None
    libraries: tuple[str, ...] = ()


def make_plan(request: Request, image: Image, host: Tree) -> Plan:
    """Work out the plan of an image; raises a `LumisiteError` for what cannot be answered."""
    site = request.site
    name, why = recognise_family(site, request.image_paths, image.tree, request.releases, request.family)
    family = site.families[name]
    roots = (*family.libraries, *request.libraries)
    known = request.family is not None or recognised(site, request.image_paths, image.tree) is not None
    held = read_collectives(site, image.tree)
    holds = read_holds(site, name, image.tree, held)
    said = remarks(site, request.image_paths[::-1], image.tree, held)
    notes = [f"image family {name} ({why})", *image.notes, *said]
    notes += compare_recipe(site, name, image.tree) if known else ()
    folders, lacking = library_folders(request, host) if roots else ((), ())
    sides, unknown = _sides(request, name, image.tree, host, folders)
    notes += lacking
    if not roots:
        notes.append(f"{name} needs no library of the host: {family.why}")
    lines = closure(roots, sides)
    followed = plugin_lines(site, sides, lines)
    if roots or followed:
        notes += _limits(sides, unknown)
    brought = {line.library for line in lines if line.decision in ("bind", "skip")}
    brought -= {line.library for line in followed if line.decision in UNMET}
    lines += followed
    none = unopened(site, sides, lines) if known and family.plugin != "none" else ()
    # What start-up scripts put on the library path is not read.
    if (family.activation != "none" or unknown) and plugins_in(image.tree):
        notes += (f"{line.library}: {line.reason}, unless start-up scripts name its folder" for line in none)
        notes += [UNKNOWN] if none else []
        none = ()
    loaded = next((line.target for line in followed if line.library == LIBFABRIC and line.decision != "bind"), None)
    lacks = () if known else _speed(site, image.tree, brought, loaded)
    return Plan(name, (*lines, *none), (*notes, *lacks), holds)


def _limits(sides: Sides, unknown: Sequence[str]) -> Iterator[str]:
    """Yield what limits the answer: what of the image could not be read, or is not known."""
    if unknown:
        yield f"LD_LIBRARY_PATH of the image is known only in part; left out: {', '.join(unknown)}"
    if sides.image.rules.interpreter is None:
        yield "the image has no dynamic loader for this machine; the usual directories are taken for it"
    shut: Mapping[str, str] = getattr(sides.image.tree, "unreadable", {})
    for at, command in shut.items():
        # What is below a closed folder is not closed itself.
        if not any(at != top and is_under(at, top) for top in shut):
            yield f"the image's {at} may not be read ({command})"


def _speed(site: Site, image: Tree, brought: Collection[str], loaded: str | None) -> tuple[str, ...]:
    """Say what an image that no family knows has and lacks for full speed on the site's network."""
    parts = tuple(parts_for_speed(site, image, brought, loaded))
    return (*map(str, parts), *([] if all(part.at for part in parts) else [UNKNOWN]))


def library_folders(request: Request, host: Tree) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Give the host's folders with the site's libraries, and notes on what the host lacks and what comes near."""
    site = request.site
    stated = site.libraries(request.platform, request.releases).items()
    found: dict[str, None] = {}
    lacking = []
    for name, path in stated:
        place = resolve(host, path)
        if place.entry is None and not opened_by(host, posixpath.dirname(place.path)):
            near = in_order(names_of(host, path.rpartition("/")[0] or "/"))[:8]
            has = f" (it has {', '.join(near)} there)" if near else ""
            lacking.append(f"the site says that {name} is in {path}, which the host lacks{has}")
            continue
        # One that is closed to this user stays, so that the search says so.
        found.update(dict.fromkeys((*folders_below(host, path), path)))
    return tuple(found), tuple(lacking)


def folders_below(host: Tree, path: str) -> Iterator[str]:
    """Give the folders of libraries in a library's own directory, and the directory itself; none where it is not."""
    for folder in _FOLDERS:
        yield from sorted(glob(host, f"{path}/{folder}"), key=numbers_in, reverse=True)
    yield from glob(host, path)


def _sides(
    request: Request, family: str, image: Tree, host: Tree, folders: Sequence[str]
) -> tuple[Sides, tuple[str, ...]]:
    host_loader = loader_of_host(request, host, folders)
    directories, unknown = library_path_of_image(image)
    rules = read_rules(image, processor(host, _ASSUMED), directories)
    if rules.machine != host_loader.rules.machine:
        mine, theirs = MACHINES[rules.machine], MACHINES[host_loader.rules.machine]
        raise ResolveError(f"{image.name}: is an image for {mine}, the host {host.name} is {theirs}")
    view = container_of(image, host, tuple(_binds(request, family)))
    first = library_path(request.site, request.platform, family)
    inside = replace(rules, library_path=(*first, *rules.library_path))
    return Sides(host_loader, Loader(image, rules), Loader(view, inside), view), unknown


def loader_of_host(request: Request, host: Tree, folders: Sequence[str]) -> Loader:
    """Give what finds the host's libraries: in the site's folders first, then wherever the site says that some are."""
    rules = read_rules(host, processor(host, _ASSUMED), folders, captured=True)
    defaults = {}
    for stack, version in request.site.platforms[request.platform].defaults.items():
        if software := software_of(stack, request.site.stacks[stack].gpu):
            defaults[software.name] = software.tops(str(version))
    everywhere = dict.fromkeys((*rules.directories, *beyond(request.site, host, defaults)))
    return Loader(host, replace(rules, directories=tuple(everywhere)))


def beyond(site: Site, host: Tree, defaults: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Give folders with libraries where a host's own loader does not look.

    They are those from which the site binds a single library, those of software that a module puts on LD_LIBRARY_PATH
    (the folders of `defaults` first, then the newest), and of products with a folder of their own, such as a plugin.
    """
    for bind in site.binds:
        if ".so" in posixpath.basename(bind.path):
            yield posixpath.dirname(bind.path)
    patterns = []
    for _, software in all_software():
        first = defaults.get(software.name, ())
        tops = (*first, *(f"{start}*" for start in (*software.series, *software.folders)))
        patterns += [f"{top}/{folder}" for top in tops for folder in software.libraries]
    for pattern in (*patterns, *(one for maker in all_vendors() for one in maker.host_libraries)):
        yield from sorted(glob(host, pattern), key=numbers_in, reverse=True)


def _binds(request: Request, family: str) -> Iterator[tuple[str, str, str]]:
    """Give the binds of the modules that images of this family are run with: source, target, module."""
    site = request.site
    installed = {stack: request.releases[stack] for stack in site.host_stacks if stack in request.releases}
    decision = decide(site, Situation(request.platform, installed, family))
    modules = request.site.loaded_with(request.site.families[family].modules)
    for bind in (verdict.entry for verdict in decision.binds if verdict.applies):
        if isinstance(bind, Bind) and bind.where in modules:
            yield bind.path, bind.target or bind.path, bind.where


def format_plan(
    plan: Plan, request: Request, paths: tuple[str, ...], image: PlannedImage | None, old: ImagePlan | None
) -> str:
    """Give the text of a plan file: the same plan always gives the same bytes.

    `paths` recognise the image, and `image` is the file that was read. What `old`, the plan that the file held before,
    accepts stays accepted where decision and reason are as before.
    """
    earlier = () if old is None else old.lines
    accepted = {(line.library, line.decision, line.reason): line.accepted for line in earlier}
    document = {
        "plan": "2",
        "site": request.site.name,
        "platform": request.platform,
        "stacks": dict(request.releases),
        "family": plan.family,
        "paths": paths,
        "image": None if image is None else vars(image),
        "holds": {"stacks": dict(plan.holds.stacks), "plugin": plan.holds.plugin},
        "library_path": library_path(request.site, request.platform, plan.family),
        "notes": plan.notes,
        "lines": tuple(
            {
                **{item.name: getattr(line, item.name) for item in fields(PlanLine)},
                "soname": line.soname if line.soname != line.library else None,
                "chain": " <- ".join(line.chain),
                "accepted": accepted.get((line.library, line.decision, line.reason)),
            }
            for line in plan.lines
        ),
    }
    return _HEADER + yaml.safe_dump(_plain(document), sort_keys=False, allow_unicode=True, width=1_000_000)


def _plain(value: Any) -> Any:
    """Turn a value into what YAML has; what is not known or empty is left out of a table."""
    if isinstance(value, dict):
        table = {name: _plain(one) for name, one in value.items()}
        return {name: one for name, one in table.items() if one not in (None, "", [], {})}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, Version) else value


@dataclass(frozen=True)
class LibraryExplanation:
    """One line of a plan, by what `why --json` calls its parts, and what it was made for."""

    name: str
    kind: Literal["library"]
    situation: str
    line: Mapping[str, Any]

    def __str__(self) -> str:
        line = self.line
        rows = [
            ("chain", " <- ".join(line["chain"])),
            ("needed", "; ".join(line["needed_by"])),
            ("wanted", line["wanted"]),
            ("found", line["found"]),
            ("bind", f"{line['source']}:{line['target']}" if line["decision"] == "bind" else ""),
            ("by", line["by"]),
            ("without", line["without"]),
            *(("warning", note) for note in line["notes"]),
        ]
        said = [f"{self.name} (library; {self.situation})", f"  {line['decision']}: {line['reason']}"]
        return "\n".join([*said, *(f"    {name:7} {value}" for name, value in rows if value)])


def explain_library(request: Request, plan: Plan, image: str, name: str) -> LibraryExplanation:
    """Explain one library; raises `ResolveError` for one that the plan does not speak of."""
    lines = [one for one in plan.lines if one.library == name]
    # Of several copies, what a container cannot have matters most.
    line = next((one for one in lines if one.decision in UNMET), lines[0] if lines else None)
    if line is None:
        known = [one.library for one in plan.lines]
        raise ResolveError(
            f"{name}: is in no chain from a root of the family {plan.family}, so {image} needs none "
            f"({suggestion(name, known)})"
        )
    versions = "".join(f", {stack} {version}" for stack, version in request.releases.items())
    situation = f"{image}, family {plan.family}, platform {request.platform}{versions}"
    own: dict[str, Any] = {"name": line.library, "source": line.source or line.library, "notes": line.warnings}
    own |= {"wanted": line.wanted or "-", "found": line.found or "-"}
    order = ("name", "decision", "source", "target", "wanted", "found", "reason", "chain", "notes")
    shown = (*order, "by", "without", "needed_by", "soname")
    return LibraryExplanation(
        name, "library", situation, {item: own.get(item, getattr(line, item, None)) for item in shown}
    )
