"""The bind plan of an image: find its roots, the directories of the host and the binds of modules, and decide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lumisite.binds.closure import PlannedLibrary, Sides, closure
from lumisite.binds.container import container_of
from lumisite.binds.host_libraries import ASSUMED_LEVELS, library_folders, loader_of_host
from lumisite.binds.plugin import plugin_lines
from lumisite.errors import ResolveError
from lumisite.findings.exit_code import exit_code
from lumisite.findings.finding import Finding, Severity
from lumisite.images.family import choose_family
from lumisite.images.sif import OpenedImage
from lumisite.images.versions import ReadImage
from lumisite.machine.loader import MACHINES, Loader, cpu_levels, read_rules
from lumisite.machine.tree import Tree, is_under
from lumisite.site.entries import Bind
from lumisite.site.images import Holds
from lumisite.site.ledger import Situation, decide
from lumisite.site.library_path import library_path
from lumisite.site.model import Site
from lumisite.site.plans import UNMET
from lumisite.site.versions import Version
from lumisite.text import listed, some


@dataclass(frozen=True)
class BindPlan:
    """What an image needs from a host: a line for each library, and `notes` on the whole."""

    family: str
    lines: tuple[PlannedLibrary, ...]
    notes: tuple[Finding, ...]
    holds: Holds = field(default_factory=Holds)

    @property
    def exit_code(self) -> int:
        """1 where a container cannot have all that it needs; else that of the notes."""
        return 1 if any(line.decision in UNMET for line in self.lines) else exit_code(self.notes)


@dataclass(frozen=True)
class PlanRequest:
    """What to plan: the site and its releases, the names of the image, and what the admin adds or overrides."""

    site: Site
    platform: str
    releases: Mapping[str, Version]
    image_paths: tuple[str, ...]
    family: str | None = None
    libraries: tuple[str, ...] = ()


def make_plan(request: PlanRequest, image: OpenedImage, host: Tree) -> BindPlan:
    """Return the plan of an image; raises a `LumisiteError` where there can be none."""
    site = request.site
    contents = ReadImage(site, image.tree)
    name, why = choose_family(site, request.image_paths, contents, request.releases, request.family)
    family = site.families[name]
    roots = (*family.libraries, *request.libraries)
    notes = [why, *image.notes]
    folders: tuple[str, ...] = ()
    if roots:
        folders, lacking = library_folders(site, request.platform, request.releases, host)
        notes += lacking
    else:
        notes.append(_note(f"needs no library of the host: {family.why}", name))
    sides = _sides(request, name, contents, host, folders)
    decided = closure(roots, sides)
    of_plugins, missing = plugin_lines(site, sides, decided)
    lines = (*decided, *of_plugins)
    unknown = contents.library_path[1]
    if lines:
        notes += _limits(sides, unknown)
    if missing is not None and why.code == "image-family" and family.plugin != "none":
        # What start-up scripts put on the library path is not read.
        if contents.plugins and (family.activation != "none" or unknown):
            plugins = some(contents.plugins, between=", ")
            message = f"no search finds the network plugin, unless start-up scripts name the folder of {plugins}"
            advice = "check the log of a run with `lumisite transport`"
            notes.append(Finding("speed-unknown", Severity.DOUBT, message, advice))
        else:
            lines = (*lines, missing)
    return BindPlan(name, lines, tuple(notes), contents.holds(name, request.platform))


def _note(message: str, subject: str = "") -> Finding:
    return Finding("plan-note", Severity.INFO, message, subject=subject)


def _limits(sides: Sides, unknown: Sequence[str]) -> Iterator[Finding]:
    """Yield what limits the answer: what of the image could not be read, or is not known."""
    if unknown:
        left_out = listed(unknown)
        yield _note(f"LD_LIBRARY_PATH of the image is known only in part; left out: {left_out}")
    if sides.image.rules.interpreter is None:
        yield _note("the image has no dynamic loader for this machine; the usual directories are taken for it")
    closed: Mapping[str, str] = getattr(sides.image.tree, "unreadable", {})
    for path, command in closed.items():
        # What is below a closed folder is not closed itself.
        if not any(path != top and is_under(path, top) for top in closed):
            yield _note(f"in the image, may not be read ({command})", path)


def _sides(request: PlanRequest, family: str, contents: ReadImage, host: Tree, folders: Sequence[str]) -> Sides:
    """Return where libraries are looked for; raises `ResolveError` for an image of another machine."""
    host_loader = loader_of_host(request.site, request.platform, host, folders)
    image = contents.tree
    rules = read_rules(image, cpu_levels(host, ASSUMED_LEVELS), contents.library_path[0])
    if rules.machine != host_loader.rules.machine:
        machine, host_machine = MACHINES[rules.machine], MACHINES[host_loader.rules.machine]
        message = f"is an image for {machine}, the host is {host_machine}"
        raise ResolveError(Finding("image-unfit", Severity.FAULT, message, "use an image for this machine", image.name))
    view = container_of(image, host, tuple(_binds(request, family)))
    first = library_path(request.site, request.platform, family)
    inside = replace(rules, library_path=(*first, *rules.library_path))
    return Sides(host_loader, Loader(image, rules), Loader(view, inside), view)


def _binds(request: PlanRequest, family: str) -> Iterator[tuple[str, str, str]]:
    """Yield the binds of the modules that images of this family are run with: source, target, module."""
    site = request.site
    installed = {stack: request.releases[stack] for stack in site.host_stacks if stack in request.releases}
    decision = decide(site, Situation(request.platform, installed, family))
    modules = request.site.loaded_with(request.site.families[family].modules)
    for bind in (verdict.entry for verdict in decision.binds if verdict.applies):
        if isinstance(bind, Bind) and bind.where in modules:
            yield bind.path, bind.target or bind.path, bind.where
