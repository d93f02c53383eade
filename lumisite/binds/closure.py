"""Decide for each library that a container needs from the host: bind it, or skip, refuse or miss it, and why.

Pure: what stands on the host and in the image comes in as loaders. One walk finds, one loop decides, and the reasons
are made where the decisions are.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeAlias

from lumisite.binds.copies import User, built_without, compare, objects_of, stands_in, summary, users_of
from lumisite.findings.finding import Finding
from lumisite.findings.writers import message
from lumisite.images.container import Bound, ContainerTree
from lumisite.machine.elf import ElfInfo
from lumisite.machine.library_names import in_order, is_foundation, newest, stem
from lumisite.machine.loader import Found, Loaded, Loader, Need, Search, walk
from lumisite.machine.tree import is_under, resolve
from lumisite.site.plans import PlanLine
from lumisite.site.scalars import AbsolutePath, Chain
from lumisite.site.scalars import Line as Text

Decision: TypeAlias = Literal["bind", "skip", "refuse", "missing"]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Line(PlanLine):
    """What was decided for one library; `needed_by` says who needs which version of it."""

    needed_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sides:
    """Where libraries are looked for: the `host`, the `image` alone, and the `container` with its modules' binds."""

    host: Loader
    image: Loader
    container: Loader
    view: ContainerTree

    @cached_property
    def _objects(self) -> Mapping[str, tuple[str, ...]]:
        return dict(objects_of(self.image))

    def users(self, name: str) -> Iterator[User]:
        """Give what of the image needs a library, with the versions."""
        return users_of(name, self.image, self._objects)


@dataclass(frozen=True)
class _Case:
    """One library: the needs for it, the first one first, and its copies on the host, in the image, in the container.

    `relatives` are other versions of it: those of the image, or those of the host where the host has not this one.
    """

    name: str
    needs: tuple[Need, ...]
    host: Search
    image: Search
    container: Search
    relatives: tuple[str, ...]
    decision: Decision = "bind"
    reason: str = ""

    @property
    def root(self) -> bool:
        """Whether it is asked for by itself."""
        return self.needs[0].requester is None

    @property
    def shut(self) -> bool:
        """Whether the host has one that may not be read."""
        return bool(self.host.closed)

    def decided(self, decision: Decision, reason: str) -> _Case:
        """Give it with what is decided now."""
        return replace(self, decision=decision, reason=reason)


#: All libraries by name, in the loader's order, under each other name that one is asked for by too.
_Cases: TypeAlias = Mapping[str, _Case]


def closure(roots: Sequence[str], sides: Sides) -> tuple[Line, ...]:
    """Decide for roots, SONAMEs that must come from the host, and for all that they need; raises nothing of its own.

    The order is the loader's, roots first. A library that only a refused one needs is not in the answer, unless it is
    why that one is refused.
    """
    names = tuple(dict.fromkeys(roots))
    cases = {case.name: _first(case, names, sides) for case in _cases(names, sides)}
    while _revise(cases, sides):
        pass
    shown = _reached(cases)
    return tuple(_line(case, shown[name], cases, sides) for name, case in cases.items() if name in shown)


def _cases(roots: Iterable[str], sides: Sides) -> Iterator[_Case]:
    wanted = []
    for name in roots:
        search = sides.host.search(name)
        loaded = None if search.found is None or is_foundation(name) else Loaded(name, search.found)
        wanted.append(Need(name, None, loaded, search))
    by_name: dict[str, list[Need]] = {}
    for need in walk(sides.host, wanted, others=True):
        by_name.setdefault(need.name, []).append(need)
    for name, needs in by_name.items():
        first = needs[0]
        host = first.search if first.loaded is None else replace(first.search, found=first.loaded.found)
        asking = None if first.requester is None else _inside(first.requester)
        image, container = sides.image.search(name, asking), sides.container.search(name, asking)
        there, start = (sides.host if host.found is None else sides.image).names, stem(name)
        others = (one for one in there if one.startswith(start) and one[len(start) :].isdigit() and one != name)
        yield _Case(name, tuple(needs), host, image, container, tuple(in_order(others)))


def _inside(loaded: Loaded) -> Loaded:
    """Give a host library as the container's loader sees it: at another place, so that $ORIGIN leads nowhere."""
    # A folder that is no absolute path is passed over.
    found, parent = replace(loaded.found, path="elsewhere/library"), loaded.parent
    return Loaded(loaded.name, found, None if parent is None else _inside(parent))


def _first(case: _Case, roots: Sequence[str], sides: Sides) -> _Case:
    """Decide by the two copies alone."""
    host, image = case.host.found, case.image.found
    if is_foundation(case.name):
        if image is None:
            return case.decided("refuse", f"the image has no {case.name}, which is never bound by itself")
        own = summary(image) or "-"
        return case.decided("skip", f"part of the C or GCC run time, never bound by itself; the image has {own}")
    if case.host.trouble:
        return case.decided("refuse", described(case.host.trouble))
    if host is None:
        return _absent(case)
    if case.image.trouble:
        return case.decided("refuse", f"the image's own copy is broken: {described(case.image.trouble)}")
    if image is None:
        return case.decided("bind", "the image has none")
    relation, proof = compare(image, host)
    if case.root and relation != "older":
        without = built_without(case.name, host, image, roots, sides.image)
        if without:
            serves, why = stands_in(host, image, sides.users(case.name))
            built = f"the image's copy was built without {', '.join(without)}, so its traffic would go over TCP"
            return case.decided("bind" if serves else "refuse", f"{built}; {why}")
    if relation == "older":
        return case.decided("bind", f"the image's copy is older: {proof}")
    words = {"same": "the same", "newer": "the newer", "unknown": "a copy", "different": "another build"}
    return case.decided("skip", f"the image has {words[relation]}: {proof}")


def described(finding: Finding) -> str:
    """Return the text of a finding with its subject."""
    return f"{finding.subject} {message(finding)}"


def _absent(case: _Case) -> _Case:
    """Decide where the host has no copy that its loader would take."""
    passed = "".join(f"; {described(one)}" for one in case.host.passed)
    none = "the host has none that can be read" if case.shut else "the host has none"
    if case.image.found is not None and not case.root:
        return case.decided("skip", f"{none}, the image has its own{passed}")
    others = f"; it has {', '.join(case.relatives)}" if case.relatives else ""
    own = f"; the image has its own, {case.image.found.path}" if case.image.found is not None else ""
    return case.decided("missing", f"{none}{passed}{others}{own}")


def _needed_versions(case: _Case, cases: _Cases) -> set[str]:
    """Give the symbol versions that the bound libraries need of this one."""
    asking = (need.requester for need in case.needs if need.requester is not None)
    bound = (one.found.info for one in asking if cases[one.name].decision == "bind")
    return {version for info in bound for version in info.verneed.get(case.name, ())}


def _revise(cases: dict[str, _Case], sides: Sides) -> bool:
    """Take back one bind that could not be loaded; tell whether there was one. Each round leaves fewer binds."""
    for name in _reached(cases):
        case, image = cases[name], cases[name].image.found
        if case.decision != "bind" or case.host.found is None:
            continue
        info = case.host.found.info
        trouble = _trouble(info, cases) or _lacked(case, info, cases, sides)
        if not trouble:
            continue
        if image is not None and not case.root and suffices(image.info, _needed_versions(case, cases)):
            told = trouble.removeprefix("the host's ")
            reason = f"the image's copy is older but has all that is needed; the host's {told}"
            cases[name] = case.decided("skip", reason)
        else:
            cases[name] = case.decided("refuse", trouble)
        return True
    return False


def _lacked(case: _Case, info: ElfInfo, cases: _Cases, sides: Sides) -> str:
    """Say what the image's own objects, but for those that are bound over, need of a host library in vain."""
    for user, versions in sides.users(case.name) if info.verdef else ():
        if (user not in cases or cases[user].decision != "bind") and not suffices(info, set(versions)):
            lacking = newest(set(versions) - set(info.verdef))
            return f"the host's lacks {lacking}, which {user} of the image needs; it has up to {newest(info.verdef)}"
    return ""


def suffices(info: ElfInfo, versions: set[str]) -> bool:
    """Tell whether a library has versions; of one without any, the loader asks for none and only warns."""
    return not info.verdef or versions <= set(info.verdef)


def _trouble(info: ElfInfo, cases: _Cases) -> str:
    """Say what the container lacks for a host library."""
    troubles = []
    for name, versions in info.verneed.items():
        case = cases.get(name)
        where = "host" if case is not None and case.decision == "bind" else "image"
        served = None if case is None else case.host.found if where == "host" else case.image.found
        if served is not None and not suffices(served.info, set(versions)):
            # Named is the newest of those that are lacking.
            lacking = set(versions) - set(served.info.verdef)
            more = f" and {len(lacking) - 1} older" if len(lacking) > 1 else ""
            had = newest(served.info.verdef)
            troubles.append(f"{newest(lacking)}{more} of {name}, where the {where} has up to {had}")
    for name in info.needed:
        if cases[name].decision == "missing" and cases[name].image.found is None:
            nowhere = "cannot be read on the host" if cases[name].shut else "neither the host nor the image has"
            troubles.append(f"{name}, which {nowhere}")
        elif cases[name].decision == "refuse":
            troubles.append(f"{name}, which {'the image lacks' if is_foundation(name) else 'is refused'}")
    return f"needs {'; '.join(troubles)}" if troubles else ""


def _reached(cases: _Cases) -> dict[str, tuple[str, ...]]:
    """Give the names that count, each with the chain that leads from it to a root.

    They are the roots, what a bound library needs, and what is why one is refused.
    """
    reached: dict[str, tuple[str, ...]] = {name: (name, "root") for name, case in cases.items() if case.root}
    for name in (waiting := list(reached)):
        found, decision = cases[name].host.found, cases[name].decision
        if found is None or decision not in ("bind", "refuse") or is_foundation(name):
            continue
        for needed in found.info.needed:
            if needed not in reached and (decision == "bind" or cases[needed].decision in ("refuse", "missing")):
                reached[needed] = (needed, *reached[name])
                waiting.append(needed)
    return reached


def _line(case: _Case, chain: tuple[str, ...], cases: _Cases, sides: Sides) -> Line:
    host, image = case.host.found, case.image.found
    # A library that is needed by its path is called so.
    source = _named(sides.host, host.path) if host else case.name if case.name.startswith("/") else None
    target, by, reason = None, None, case.reason
    if case.decision == "skip" and image is not None:
        target = image.path
    elif case.decision == "bind" and host is not None and source is not None:
        source, target, by, where = _placed(case, host, source, sides)
        reason = f"{reason}; {where}"
    # How new a copy is wanted: what is needed of it, or for a root what the host has.
    needed = _needed_versions(case, cases)
    wanted = newest(needed) if needed else None if host is None else summary(host)
    found = None if image is None else summary(image)
    # The bind of a module that brings a library which is not to be bound.
    seen = case.container.found if case.decision in ("skip", "refuse") and not is_foundation(case.name) else None
    bound = None if seen is None else sides.view.bound_at(seen.real)
    # What is but a part of what a module binds cannot be taken away.
    whole = bound is not None and seen is not None and bound.target == seen.real
    return Line(
        library=Text(case.name),
        decision=case.decision,
        soname=None if host is None or host.info.soname is None else Text(host.info.soname),
        source=None if source is None else AbsolutePath(source),
        target=None if target is None else AbsolutePath(target),
        by=by,
        without=AbsolutePath(bound.source) if bound is not None and whole else None,
        wanted=None if wanted is None else Text(wanted),
        found=None if found is None else Text(found),
        reason=Text(reason),
        chain=Chain(chain),
        warnings=tuple(map(Text, _warnings(case, bound, sides))),
        needed_by=tuple(
            dict.fromkeys(
                f"{one.name} needs {newest(versions) if (versions := one.found.info.verneed.get(case.name)) else 'it'}"
                for one in (need.requester for need in case.needs)
                if one is not None
            )
        ),
    )


def _named(loader: Loader, path: str) -> str:
    """Give the path of a library with its folder as it really is (/lib64 is often a link), and the name asked for."""
    return posixpath.join(resolve(loader.tree, posixpath.dirname(path)).path, posixpath.basename(path))


def _placed(case: _Case, host: Found, source: str, sides: Sides) -> tuple[str, str, str | None, str]:
    """Give source and target of a bind, the module that makes it, and why the image's loader finds it there."""
    seen = case.container.found
    by = sides.view.bound_at(seen.real) if seen is not None else None
    if seen is not None and by is not None and sides.view.host_path(seen.real) == host.real:
        return seen.path, seen.path, by.by, f"{by.by} binds {by.source} already, and the loader finds it {seen.how}"
    module = next((one for one in sides.view.bound if is_under(source, one.target)), None)
    inside = f" ({module.by} binds {module.source}, but this image's loader does not look there)" if module else ""
    if seen is not None:
        return source, seen.real, None, f"put over the copy that the loader finds {seen.how}{inside}"
    if "/" in case.name:
        return source, case.name, None, "it is needed by this path"
    rules, tree = sides.container.rules, sides.image.tree
    folder = posixpath.dirname(source)
    if folder in (*rules.library_path, *rules.directories) and tree.look(resolve(tree, source).path) is None:
        return source, source, None, "the loader looks in that directory"
    places = [resolve(tree, path) for path in rules.directories]
    targets = [posixpath.join(place.path, case.name) for place in places if place.entry is not None]
    # A dangling link cannot be bound over.
    target = next((path for path in targets if tree.look(path) is None), f"{rules.directories[0]}/{case.name}")
    return source, target, None, f"put where the loader looks by default{inside}"


def _warnings(case: _Case, bound: Bound | None, sides: Sides) -> Iterator[str]:
    """Warn where a process may get two versions of one library, or another one than the plan says."""
    if case.decision == "bind":
        for need in case.needs:
            if need.other is not None and need.requester is not None:
                yield f"two versions: {need.requester.name} by itself would load {need.other}"
        for path in sides.image.copies(case.name)[1:]:
            yield f"two versions: the image has another copy, {path}, which this bind leaves as it is"
        for name in case.relatives:
            yield f"two versions: the image also has {name}; a process that needs both loads both"
    if bound is not None:
        own = "over the image's own all the same" if case.image.found is not None else "which the image cannot load"
        yield f"{bound.by} binds {bound.source} {own}"
