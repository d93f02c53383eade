"""Decide for each library that a container needs from the host: bind it, or skip, refuse or miss it, and why.

Pure: what is on the host and in the image comes in as loaders. One walk finds, one loop decides, and each decision has
the sentences that it follows from.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from lumisite.binds.container import ContainerTree
from lumisite.binds.copies import built_without, compare, lacks_version, suffices, summary, users_of
from lumisite.binds.never_bound import is_never_bound
from lumisite.findings.finding import Finding
from lumisite.findings.writers import message
from lumisite.machine.elf import ElfInfo
from lumisite.machine.library_names import in_order, newest, stem
from lumisite.machine.loader import Found, Loaded, Loader, Need, Search, walk
from lumisite.machine.tree import is_under, resolve
from lumisite.text import listed, some

Decision: TypeAlias = Literal["bind", "skip", "refuse", "missing"]


@dataclass(frozen=True)
class PlannedLibrary:
    """What was decided for one library, `why` in sentences, and the `chain` from it to a root.

    `source` is the file on the host, `target` the path in the container, and `by` the module that binds it already.
    `without` is a file that a module binds and that this image must not have.
    """

    library: str
    decision: Decision
    why: tuple[str, ...]
    chain: tuple[str, ...]
    soname: str | None = None
    source: str | None = None
    target: str | None = None
    by: str | None = None
    without: str | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sides:
    """Where libraries are looked for: the `host`, the `image` alone, and the `container` with its modules' binds."""

    host: Loader
    image: Loader
    container: Loader
    view: ContainerTree


@dataclass(frozen=True)
class _Case:
    """One library: the needs for it in their order, and its copies on the host, in the image, in the container."""

    name: str
    needs: tuple[Need, ...]
    host: Search
    image: Search
    container: Search
    decision: Decision = "bind"
    why: tuple[str, ...] = ()

    @property
    def is_root(self) -> bool:
        """Whether it is needed by itself."""
        return self.needs[0].requester is None

    def decided(self, decision: Decision, *why: str) -> _Case:
        """Return the case with a decision and what it follows from."""
        return replace(self, decision=decision, why=why)

    def texts(self, findings: Iterable[Finding]) -> Iterator[str]:
        """Yield what a search reports of candidates, each with its path."""
        for finding in findings:
            subject = "" if finding.subject == self.name else f"{finding.subject} "
            yield subject + message(finding)


#: All libraries by name, in the loader's order, under each other name that one is needed by too.
_Cases: TypeAlias = Mapping[str, _Case]


def closure(roots: Sequence[str], sides: Sides) -> tuple[PlannedLibrary, ...]:
    """Decide for roots, SONAMEs that must come from the host, and for all that they need; raises nothing.

    The order is the loader's, roots first. A library that only a refused one needs is not in the answer, unless it is
    why that one is refused.
    """
    names = tuple(dict.fromkeys(roots))
    cases = {case.name: _first(case, names, sides) for case in _cases(names, sides)}
    while _revise(cases, sides):
        pass
    reached = _reached(cases)
    return tuple(_planned(case, reached[name], sides) for name, case in cases.items() if name in reached)


def _cases(roots: Iterable[str], sides: Sides) -> Iterator[_Case]:
    needed = []
    for name in roots:
        search = sides.host.search(name)
        loaded = None if search.found is None or is_never_bound(name) else Loaded(name, search.found)
        needed.append(Need(name, None, loaded, search))
    by_name: dict[str, list[Need]] = {}
    for need in walk(sides.host, needed):
        by_name.setdefault(need.name, []).append(need)
    for name, needs in by_name.items():
        first = needs[0]
        host = first.search if first.loaded is None else replace(first.search, found=first.loaded.found)
        requester = None if first.requester is None else _inside(first.requester)
        image, container = sides.image.search(name, requester), sides.container.search(name, requester)
        yield _Case(name, tuple(needs), host, image, container)


def _inside(loaded: Loaded) -> Loaded:
    """Return a host library as the container's loader sees it: at another path, so that $ORIGIN finds nothing."""
    # A folder that is no absolute path is passed over.
    found, parent = replace(loaded.found, path="elsewhere/library"), loaded.parent
    return Loaded(loaded.name, found, None if parent is None else _inside(parent))


def _first(case: _Case, roots: Sequence[str], sides: Sides) -> _Case:
    """Decide by the two copies alone."""
    host, image = case.host.found, case.image.found
    if is_never_bound(case.name):
        if image is None:
            return case.decided("refuse", f"the image has no {case.name}, which is never bound by itself")
        text = f"part of the C or GCC run time, never bound by itself; the image has {summary(image) or '-'}"
        return case.decided("skip", text)
    if case.host.trouble:
        return case.decided("refuse", *case.texts([case.host.trouble]))
    if host is None:
        return _absent(case, sides)
    if case.image.trouble:
        return case.decided("refuse", "the image's own copy is broken", *case.texts([case.image.trouble]))
    if image is None:
        return case.decided("bind", "the image has none")
    relation, why = compare(image, host)
    if relation == "older":
        return case.decided("bind", why)
    if case.is_root and (lacking := built_without(case.name, host, image, roots, sides.image)):
        text = f"the image's copy was built without {listed(lacking)}, so its traffic would go over TCP"
        return case.decided("bind", text)
    return case.decided("skip", why)


def _absent(case: _Case, sides: Sides) -> _Case:
    """Decide where the host has no copy that its loader would take."""
    start, none = stem(case.name), "the host has none"
    others = in_order(name for name in sides.host.names if name.startswith(start) and name[len(start) :].isdigit())
    if case.host.closed:
        none = f"the host has none that can be read: {listed(case.host.closed)}"
    elif others and case.name not in others:
        none = f"the host has none; it has {some(others, between=', ')}"
    passed = case.texts(case.host.passed)
    image = case.image.found
    if image is None:
        return case.decided("missing", none, *passed)
    copy = f"the image has its own, {image.path}"
    return case.decided("missing" if case.is_root else "skip", none, copy, *passed)


def _needed_versions(case: _Case, cases: _Cases) -> set[str]:
    """Return the symbol versions that the bound libraries need of this one."""
    requesters = (need.requester for need in case.needs if need.requester is not None)
    bound = (loaded.found.info for loaded in requesters if cases[loaded.name].decision == "bind")
    return {version for info in bound for version in info.verneed.get(case.name, ())}


def _revise(cases: dict[str, _Case], sides: Sides) -> bool:
    """Undo one bind that could not be loaded; return whether there was one. Each round leaves fewer binds."""
    for name in _reached(cases):
        case, image = cases[name], cases[name].image.found
        if case.decision != "bind" or case.host.found is None:
            continue
        info = case.host.found.info
        troubles = [*_troubles(info, cases)] or [*_lacked(case, info, cases, sides)]
        if not troubles:
            continue
        if image is not None and not case.is_root and suffices(image.info, _needed_versions(case, cases)):
            cases[name] = case.decided("skip", "the image's copy is older but has all that is needed", *troubles)
        else:
            cases[name] = case.decided("refuse", *(case.why if image is not None else ()), *troubles)
        return True
    return False


def _lacked(case: _Case, info: ElfInfo, cases: _Cases, sides: Sides) -> Iterator[str]:
    """Yield the first version that the image's own objects, but for those that are bound over, lack in a library."""
    has_own = case.image.found is not None
    # Of a library without versions the loader asks for none; of a root that replaces one with versions, who knows.
    if not info.verdef and not (case.is_root and has_own):
        return
    for user, versions in users_of(case.name, sides.image, has_own=has_own):
        is_bound = user in cases and cases[user].decision == "bind"
        lacking = set(versions) - set(info.verdef)
        if lacking and not is_bound:
            yield lacks_version(info, lacking, user)
            return


def _troubles(info: ElfInfo, cases: _Cases) -> Iterator[str]:
    """Yield what the container lacks for a host library."""
    for name, versions in info.verneed.items():
        needed = cases.get(name)
        if needed is None:
            continue
        side = "host" if needed.decision == "bind" else "image"
        found = (needed.host if side == "host" else needed.image).found
        if found is not None and not suffices(found.info, set(versions)):
            lacking, has = newest(set(versions) - set(found.info.verdef)), newest(found.info.verdef)
            yield f"needs {lacking} of {name}, where the {side} has up to {has}"
    for name in info.needed:
        needed = cases[name]
        if needed.decision == "refuse" or (needed.decision == "missing" and needed.image.found is None):
            yield f"needs {name}, whose decision is {needed.decision}"


def _reached(cases: _Cases) -> dict[str, tuple[str, ...]]:
    """Return the names that count, each with the chain that leads from it to a root.

    They are the roots, what a bound library needs, and what is why one is refused.
    """
    reached: dict[str, tuple[str, ...]] = {name: (name, "root") for name, case in cases.items() if case.is_root}
    for name in (waiting := list(reached)):
        found, decision = cases[name].host.found, cases[name].decision
        if found is None or decision not in ("bind", "refuse") or is_never_bound(name):
            continue
        for needed in found.info.needed:
            if needed not in reached and (decision == "bind" or cases[needed].decision in ("refuse", "missing")):
                reached[needed] = (needed, *reached[name])
                waiting.append(needed)
    return reached


def _planned(case: _Case, chain: tuple[str, ...], sides: Sides) -> PlannedLibrary:
    host, image = case.host.found, case.image.found
    planned = PlannedLibrary(
        case.name,
        case.decision,
        case.why,
        chain,
        soname=None if host is None else host.info.soname,
        # A library that is needed by its path is called so.
        source=_named(sides.host, host.path) if host else case.name if case.name.startswith("/") else None,
        target=image.path if case.decision == "skip" and image is not None else None,
    )
    if case.decision == "bind" and host is not None:
        return _placed(planned, case, host, sides)
    if case.decision in ("skip", "refuse") and not is_never_bound(case.name):
        return _without_module(planned, case, sides)
    return planned


def _named(loader: Loader, path: str) -> str:
    """Return the path of a library with its folder as it really is (/lib64 is often a link), and the name needed."""
    return posixpath.join(resolve(loader.tree, posixpath.dirname(path)).path, posixpath.basename(path))


def _placed(planned: PlannedLibrary, case: _Case, host: Found, sides: Sides) -> PlannedLibrary:
    """Return a bind with its target, the module that makes it, and why the image's loader finds it there."""
    found, source = case.container.found, str(planned.source)
    bound = None if found is None else sides.view.bound_at(found.real)
    if found is not None and bound is not None and sides.view.host_path(found.real) == host.real:
        why = f"{bound.by} binds {bound.source} already, and the loader finds it {found.how}"
        return replace(planned, source=found.path, target=found.path, by=bound.by, why=(*planned.why, why))
    target, placed = _target(case, source, sides)
    reasons = (*planned.why, placed)
    module = next((bound for bound in sides.view.bound if is_under(source, bound.target)), None)
    if module is not None:
        text = f"{module.by} binds {module.source}, but this image's loader does not look there"
        reasons = (*reasons, text)
    return replace(planned, target=target, why=reasons)


def _target(case: _Case, source: str, sides: Sides) -> tuple[str, str]:
    """Return where to bind a host library, so that the image's loader finds it, and why there."""
    if case.container.found is not None:
        over = case.container.found
        return over.real, f"put over the copy that the loader finds {over.how}"
    if "/" in case.name:
        return case.name, "it is needed by this path"
    rules, tree, folder = sides.container.rules, sides.image.tree, posixpath.dirname(source)
    target = source
    if folder not in (*rules.library_path, *rules.directories) or tree.look(resolve(tree, source).path) is not None:
        folders = (resolve(tree, path) for path in rules.directories)
        targets = (posixpath.join(resolved.path, case.name) for resolved in folders if resolved.entry is not None)
        # A dangling link cannot be bound over.
        target = next((path for path in targets if tree.look(path) is None), f"{rules.directories[0]}/{case.name}")
    return target, f"put into {posixpath.dirname(target)}, where the loader looks"


def _without_module(planned: PlannedLibrary, case: _Case, sides: Sides) -> PlannedLibrary:
    """Return a library that is not to be bound, without the bind of a module that brings it."""
    found = case.container.found
    bound = None if found is None else sides.view.bound_at(found.real)
    if found is None or bound is None:
        return planned
    warning = f"{bound.by} binds {bound.source}, which the image cannot load"
    if case.image.found is not None:
        warning = f"{bound.by} binds {bound.source} over the image's own, {case.image.found.path}"
    # What is but a part of what a module binds cannot be taken away.
    without = bound.source if bound.target == found.real else None
    return replace(planned, without=without, warnings=(warning,))
