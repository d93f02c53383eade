"""The bind plan of an image: find its roots, the directories of the host and the binds of modules; decide; write it."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import yaml

from lumisite.binds.closure import Line, Sides, closure
from lumisite.binds.plugin import plugin_lines, unopened
from lumisite.errors import ResolveError
from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding, exit_code
from lumisite.findings.writers import sentence
from lumisite.images.container import container_of
from lumisite.images.container import library_path as library_path_of_image
from lumisite.images.contents import Contents
from lumisite.images.family import choose_family
from lumisite.images.remarks import compare_recipe, remarks
from lumisite.images.sif import Image
from lumisite.images.speed import LIBFABRIC, find_speed_parts
from lumisite.images.versions import ReadImage
from lumisite.machine.ldcache import glob
from lumisite.machine.library_names import in_order, numbers_in
from lumisite.machine.loader import MACHINES, Loader, Processor, processor, read_rules
from lumisite.machine.tree import Tree, is_under, names_of, opened_by, resolve
from lumisite.site.decode import alternatives
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
    notes: tuple[Finding, ...]
    holds: Holds = field(default_factory=Holds)

    @property
    def exit_code(self) -> int:
        """1 where a container cannot have all that it needs; else that of the notes."""
        if any(line.decision in UNMET for line in self.lines):
            return 1
        return exit_code(self.notes)


@dataclass(frozen=True)
class Request:
    """What to plan: the site and its releases, the names of the image, and what the admin adds or overrides."""

    site: Site
    platform: str
    releases: Mapping[str, Version]
    image_paths: tuple[str, ...]
    family: str | None = None
    libraries: tuple[str, ...] = ()


def make_plan(request: Request, image: Image, host: Tree) -> Plan:
    """Return the plan of an image; raises a `LumisiteError` where there can be none."""
    site = request.site
    contents = ReadImage(site, image.tree)
    name, why = choose_family(site, request.image_paths, contents, request.releases, request.family)
    family = site.families[name]
    roots = (*family.libraries, *request.libraries)
    known = why.code == "image-family"
    notes = [why, *image.notes]
    notes += remarks(contents, request.image_paths[::-1])
    notes += compare_recipe(contents, name) if known else ()
    folders, lacking = library_folders(request, host) if roots else ((), ())
    sides, unknown = _sides(request, name, image.tree, host, folders)
    notes += lacking
    if not roots:
        notes.append(make_finding("family-needs-nothing", name, why=family.why))
    lines = closure(roots, sides)
    followed = plugin_lines(site, sides, lines)
    if roots or followed:
        notes += _limits(sides, unknown)
    brought = {line.library for line in lines if line.decision not in UNMET}
    brought -= {line.library for line in followed if line.decision in UNMET}
    lines += followed
    none = unopened(site, sides, lines) if known and family.plugin != "none" else ()
    # What start-up scripts put on the library path is not read.
    if none and (family.activation != "none" or unknown) and contents.plugins:
        unused = contents.plugins
        notes += [make_finding("plugin-uncertain", line.library, unused=unused) for line in none]
        notes.append(make_finding("speed-unknown"))
        none = ()
    if not known:
        loaded = next((line.target for line in followed if line.library == LIBFABRIC and line.decision != "bind"), None)
        notes += _speed(site, contents, brought, loaded)
    return Plan(name, (*lines, *none), tuple(notes), contents.holds(name))


def _limits(sides: Sides, unknown: Sequence[str]) -> Iterator[Finding]:
    """Yield what limits the answer: what of the image could not be read, or is not known."""
    if unknown:
        yield make_finding("library-path-unknown", unknown=tuple(unknown))
    if sides.image.rules.interpreter is None:
        yield make_finding("image-without-loader")
    closed: Mapping[str, str] = getattr(sides.image.tree, "unreadable", {})
    for path, command in closed.items():
        # What is below a closed folder is not closed itself.
        if not any(path != top and is_under(path, top) for top in closed):
            yield make_finding("image-path-closed", path, command=command)


def _speed(site: Site, image: Contents, planned: Collection[str], loaded: str | None) -> Iterator[Finding]:
    """Yield what an image that no family recognises has and lacks for full speed on the site's network."""
    parts = tuple(find_speed_parts(site, image, planned, loaded))
    yield from parts
    if any(part.code == "speed-part-missing" for part in parts):
        yield make_finding("speed-unknown")


def library_folders(request: Request, host: Tree) -> tuple[tuple[str, ...], tuple[Finding, ...]]:
    """Return the host's folders with the site's libraries, and findings on those that the host lacks."""
    found: dict[str, None] = {}
    lacking = []
    for name, path in request.site.libraries(request.platform, request.releases).items():
        place = resolve(host, path)
        if place.entry is None and not opened_by(host, posixpath.dirname(place.path)):
            beside = tuple(in_order(names_of(host, path.rpartition("/")[0] or "/")))
            lacking.append(make_finding("site-library-missing", path, library=name, beside=beside))
            continue
        # One that is closed to this user stays, so that the search reports it.
        found.update(dict.fromkeys((*folders_below(host, path), path)))
    return tuple(found), tuple(lacking)


def folders_below(host: Tree, path: str) -> Iterator[str]:
    """Yield the folders of libraries in a library's own directory, and the directory itself, where it exists."""
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
        machine, host_machine = MACHINES[rules.machine], MACHINES[host_loader.rules.machine]
        finding = make_finding("image-of-other-machine", image.name, machine=machine, host=host_machine)
        raise ResolveError(finding)
    view = container_of(image, host, tuple(_binds(request, family)))
    first = library_path(request.site, request.platform, family)
    inside = replace(rules, library_path=(*first, *rules.library_path))
    return Sides(host_loader, Loader(image, rules), Loader(view, inside), view), unknown


def loader_of_host(request: Request, host: Tree, folders: Sequence[str]) -> Loader:
    """Return the loader of the host: it looks in the site's folders first, then where else the site has some."""
    rules = read_rules(host, processor(host, _ASSUMED), folders, captured=True)
    defaults = {}
    for stack, version in request.site.platforms[request.platform].defaults.items():
        if software := software_of(stack, request.site.stacks[stack].gpu):
            defaults[software.name] = software.tops(str(version))
    everywhere = dict.fromkeys((*rules.directories, *beyond(request.site, host, defaults)))
    return Loader(host, replace(rules, directories=tuple(everywhere)))


def beyond(site: Site, host: Tree, defaults: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Yield folders with libraries where a host's own loader does not look.

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
    for pattern in (*patterns, *(pattern for maker in all_vendors() for pattern in maker.host_libraries)):
        yield from sorted(glob(host, pattern), key=numbers_in, reverse=True)


def _binds(request: Request, family: str) -> Iterator[tuple[str, str, str]]:
    """Yield the binds of the modules that images of this family are run with: source, target, module."""
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
    """Return the text of a plan file: the same plan always has the same bytes.

    `paths` recognise the image, and `image` is the file that was read. What `old`, the plan that the file held before,
    accepts stays accepted where the decision and what it follows from are as before.
    """
    earlier = () if old is None else old.lines
    accepted = {(line.library, line.decision, line.because): line.accepted for line in earlier}
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
        "notes": tuple(map(sentence, plan.notes)),
        "lines": tuple(
            {
                **{item.name: getattr(line, item.name) for item in fields(PlanLine)},
                "soname": line.soname if line.soname != line.library else None,
                "chain": " <- ".join(line.chain),
                "accepted": accepted.get((line.library, line.decision, line.because)),
            }
            for line in plan.lines
        ),
    }
    return _HEADER + yaml.safe_dump(_plain(document), sort_keys=False, allow_unicode=True, width=1_000_000)


def _plain(value: Any) -> Any:
    """Return a value as YAML's types; what is unknown or empty is left out of a table."""
    if isinstance(value, dict):
        table = {name: _plain(item) for name, item in value.items()}
        return {name: item for name, item in table.items() if item not in (None, "", [], {})}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Version) else value


@dataclass(frozen=True)
class LibraryExplanation:
    """One line of a plan, by the names of `why --json`, and what it was made for."""

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
        head = [f"{self.name} (library; {self.situation})", f"  {line['decision']}: {line['reason']}"]
        return "\n".join([*head, *(f"    {name:7} {value}" for name, value in rows if value)])


def explain_library(request: Request, plan: Plan, image: str, name: str) -> LibraryExplanation:
    """Explain one library; raises `ResolveError` for one that is not in the plan."""
    lines = [line for line in plan.lines if line.library == name]
    if not lines:
        more = alternatives(name, [line.library for line in plan.lines])
        raise ResolveError(make_finding("library-not-planned", name, family=plan.family, image=image, **more))
    # Of several copies, what a container cannot have matters most.
    line = next((line for line in lines if line.decision in UNMET), lines[0])
    versions = "".join(f", {stack} {version}" for stack, version in request.releases.items())
    situation = f"{image}, family {plan.family}, platform {request.platform}{versions}"
    values = {
        "name": line.library,
        "decision": line.decision,
        "source": line.source or line.library,
        "target": line.target,
        "wanted": line.wanted or "-",
        "found": line.found or "-",
        "reason": line.reason,
        "chain": line.chain,
        "notes": line.warnings,
        "by": line.by,
        "without": line.without,
        "needed_by": line.needed_by,
        "soname": line.soname,
    }
    return LibraryExplanation(name, "library", situation, values)
