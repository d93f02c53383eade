"""Decide for each library that a container needs from the host: bind it, or skip, refuse or miss it, and why.

Pure: what is on the host and in the image comes in as loaders. One walk finds, one loop decides, and each decision has
the findings that it follows from.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeAlias

from lumisite.binds.copies import User, built_without, compare, objects_of, stand_in, summary, users_of
from lumisite.findings.catalogue import make_finding
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
    """What was decided for one library; `needed_by` has what needs it, with the version that it needs."""

    needed_by: tuple[str, ...] = ()


def make_line(
    library: str,
    decision: Decision,
    why: Iterable[Finding],
    chain: tuple[str, ...],
    *,
    source: str | None = None,
    target: str | None = None,
    wanted: str | None = None,
    found: str | None = None,
    warnings: Iterable[Finding] = (),
) -> Line:
    """Return a line of a plan; `why` are the findings that the decision follows from."""
    why = tuple(why)
    return Line(
        library=Text(library),
        decision=decision,
        source=None if source is None else AbsolutePath(source),
        target=None if target is None else AbsolutePath(target),
        wanted=None if wanted is None else Text(wanted),
        found=None if found is None else Text(found),
        because=tuple(Text(_as_values(finding)) for finding in why),
        reason=Text("; ".join(_text(finding, library) for finding in why)),
        warnings=tuple(Text(message(finding)) for finding in warnings),
        chain=Chain(chain),
    )


def _text(finding: Finding, library: str) -> str:
    return message(finding) if finding.subject in ("", library) else f"{finding.subject} {message(finding)}"


def _as_values(finding: Finding) -> str:
    """Return the code of a finding and its values, by which two reasons are compared."""
    texts = [finding.code]
    for name, value in finding.values.items():
        if value not in (None, "", ()):
            texts.append(f"{name}={','.join(map(str, value)) if isinstance(value, tuple) else value}")
    return " ".join(texts)


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
        """Return what of the image needs a library, with the versions."""
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
    why: tuple[Finding, ...] = ()

    @property
    def is_root(self) -> bool:
        """Whether it is needed by itself."""
        return self.needs[0].requester is None

    def finding(self, code: str, **values: str | tuple[str, ...] | None) -> Finding:
        """Return a finding about this library."""
        return replace(make_finding(code, self.name), values=values)

    def decided(self, decision: Decision, *why: Finding | str) -> _Case:
        """Return the case with a decision and what it follows from; a text is a code without values."""
        findings = tuple(self.finding(cause) if isinstance(cause, str) else cause for cause in why)
        return replace(self, decision=decision, why=findings)


#: All libraries by name, in the loader's order, under each other name that one is needed by too.
_Cases: TypeAlias = Mapping[str, _Case]


def closure(roots: Sequence[str], sides: Sides) -> tuple[Line, ...]:
    """Decide for roots, SONAMEs that must come from the host, and for all that they need; raises nothing.

    The order is the loader's, roots first. A library that only a refused one needs is not in the answer, unless it is
    why that one is refused.
    """
    names = tuple(dict.fromkeys(roots))
    cases = {case.name: _first(case, names, sides) for case in _cases(names, sides)}
    while _revise(cases, sides):
        pass
    reached = _reached(cases)
    return tuple(_line(case, reached[name], cases, sides) for name, case in cases.items() if name in reached)


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
        requester = None if first.requester is None else _inside(first.requester)
        image, container = sides.image.search(name, requester), sides.container.search(name, requester)
        names, start = (sides.host if host.found is None else sides.image).names, stem(name)
        others = [other for other in names if other.startswith(start) and other[len(start) :].isdigit()]
        relatives = tuple(in_order(other for other in others if other != name))
        yield _Case(name, tuple(needs), host, image, container, relatives)


def _inside(loaded: Loaded) -> Loaded:
    """Return a host library as the container's loader sees it: at another path, so that $ORIGIN finds nothing."""
    # A folder that is no absolute path is passed over.
    found, parent = replace(loaded.found, path="elsewhere/library"), loaded.parent
    return Loaded(loaded.name, found, None if parent is None else _inside(parent))


def _first(case: _Case, roots: Sequence[str], sides: Sides) -> _Case:
    """Decide by the two copies alone."""
    host, image = case.host.found, case.image.found
    if is_foundation(case.name):
        if image is None:
            return case.decided("refuse", "run-time-missing")
        return case.decided("skip", case.finding("run-time-library", image=summary(image) or "-"))
    if case.host.trouble:
        return case.decided("refuse", case.host.trouble)
    if host is None:
        return _absent(case)
    if case.image.trouble:
        return case.decided("refuse", "image-copy-damaged", case.image.trouble)
    if image is None:
        return case.decided("bind", "image-has-none")
    relation = compare(case.name, image, host)
    is_older = relation.code == "image-copy-older"
    if case.is_root and not is_older and (lacking := built_without(case.name, host, image, roots, sides.image)):
        without = case.finding("image-copy-without-network", lacking=lacking)
        serves = stand_in(case.name, host, image, sides.users(case.name))
        return case.decided("refuse" if serves.code == "host-copy-short" else "bind", without, serves)
    return case.decided("bind" if is_older else "skip", relation)


def _absent(case: _Case) -> _Case:
    """Decide where the host has no copy that its loader would take."""
    none = case.finding("host-has-none-readable" if case.host.closed else "host-has-none")
    image = case.image.found
    if image is not None and not case.is_root:
        return case.decided("skip", none, "image-has-one", *case.host.passed)
    others = [case.finding("host-has-others", others=case.relatives)] if case.relatives else []
    in_image = [case.finding("image-has-its-own", path=image.path)] if image is not None else []
    return case.decided("missing", none, *case.host.passed, *others, *in_image)


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
        troubles = [*_troubles(case, info, cases)] or [*_lacked(case, info, cases, sides)]
        if not troubles:
            continue
        if image is not None and not case.is_root and suffices(image.info, _needed_versions(case, cases)):
            cases[name] = case.decided("skip", "image-copy-suffices", *troubles)
        else:
            cases[name] = case.decided("refuse", *troubles)
        return True
    return False


def _lacked(case: _Case, info: ElfInfo, cases: _Cases, sides: Sides) -> Iterator[Finding]:
    """Yield the first version that the image's own objects, but for those that are bound over, lack in a library."""
    for user, versions in sides.users(case.name) if info.verdef else ():
        if (user not in cases or cases[user].decision != "bind") and not suffices(info, set(versions)):
            lacking = newest(set(versions) - set(info.verdef))
            yield case.finding("host-copy-lacks-version", version=lacking, user=user, newest=newest(info.verdef))
            return


def suffices(info: ElfInfo, versions: set[str]) -> bool:
    """Return whether a library has versions; of one without any, the loader asks for none and only warns."""
    return not info.verdef or versions <= set(info.verdef)


def _troubles(case: _Case, info: ElfInfo, cases: _Cases) -> Iterator[Finding]:
    """Yield what the container lacks for a host library."""
    for name, versions in info.verneed.items():
        needed = cases.get(name)
        if needed is None:
            continue
        side = "host" if needed.decision == "bind" else "image"
        found = (needed.host if side == "host" else needed.image).found
        if found is not None and not suffices(found.info, set(versions)):
            lacking, has = newest(set(versions) - set(found.info.verdef)), newest(found.info.verdef)
            yield case.finding("needs-symbol-version", version=lacking, library=name, side=side, newest=has)
    for name in info.needed:
        needed = cases[name]
        if needed.decision == "missing" and needed.image.found is None:
            yield case.finding("needs-unreadable" if needed.host.closed else "needs-missing", library=name)
        elif needed.decision == "refuse":
            yield case.finding("needs-run-time" if is_foundation(name) else "needs-refused", library=name)


def _reached(cases: _Cases) -> dict[str, tuple[str, ...]]:
    """Return the names that count, each with the chain that leads from it to a root.

    They are the roots, what a bound library needs, and what is why one is refused.
    """
    reached: dict[str, tuple[str, ...]] = {name: (name, "root") for name, case in cases.items() if case.is_root}
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
    target, by, why = None, None, case.why
    if case.decision == "skip" and image is not None:
        target = image.path
    elif case.decision == "bind" and host is not None and source is not None:
        source, target, by, where = _placed(case, host, source, sides)
        why += where
    # How new a copy is wanted: what is needed of it, or for a root what the host has.
    needed = _needed_versions(case, cases)
    # The bind of a module that brings a library which is not to be bound.
    seen = case.container.found if case.decision in ("skip", "refuse") and not is_foundation(case.name) else None
    bound = None if seen is None else sides.view.bound_at(seen.real)
    # What is but a part of what a module binds cannot be taken away.
    is_whole = bound is not None and seen is not None and bound.target == seen.real
    soname = None if host is None else host.info.soname
    line = make_line(
        case.name,
        case.decision,
        why,
        chain,
        source=source,
        target=target,
        wanted=newest(needed) if needed else None if host is None else summary(host),
        found=None if image is None else summary(image),
        warnings=_warnings(case, bound, sides),
    )
    return replace(
        line,
        soname=None if soname is None else Text(soname),
        by=by,
        without=AbsolutePath(bound.source) if bound is not None and is_whole else None,
        needed_by=tuple(dict.fromkeys(_users(case))),
    )


def _users(case: _Case) -> Iterator[str]:
    """Yield what needs a library on the host, with the version that it needs."""
    for need in case.needs:
        if need.requester is not None:
            versions = need.requester.found.info.verneed.get(case.name)
            yield f"{need.requester.name} ({newest(versions)})" if versions else need.requester.name


def _named(loader: Loader, path: str) -> str:
    """Return the path of a library with its folder as it really is (/lib64 is often a link), and the name needed."""
    return posixpath.join(resolve(loader.tree, posixpath.dirname(path)).path, posixpath.basename(path))


def _placed(case: _Case, host: Found, source: str, sides: Sides) -> tuple[str, str, str | None, tuple[Finding, ...]]:
    """Return source and target of a bind, the module that makes it, and why the image's loader finds it there."""
    seen = case.container.found
    by = sides.view.bound_at(seen.real) if seen is not None else None
    if seen is not None and by is not None and sides.view.host_path(seen.real) == host.real:
        made = case.finding("bound-by-module", module=by.by, path=by.source, how=seen.how)
        return seen.path, seen.path, by.by, (made,)
    module = next((bound for bound in sides.view.bound if is_under(source, bound.target)), None)
    unused = (case.finding("module-bind-unused", module=module.by, path=module.source),) if module else ()
    if seen is not None:
        return source, seen.real, None, (case.finding("put-over-copy", how=seen.how), *unused)
    if "/" in case.name:
        return source, case.name, None, (case.finding("needed-by-path"),)
    rules, tree = sides.container.rules, sides.image.tree
    folder = posixpath.dirname(source)
    if folder in (*rules.library_path, *rules.directories) and tree.look(resolve(tree, source).path) is None:
        return source, source, None, (case.finding("put-at-same-path"),)
    places = [resolve(tree, path) for path in rules.directories]
    targets = [posixpath.join(place.path, case.name) for place in places if place.entry is not None]
    # A dangling link cannot be bound over.
    target = next((path for path in targets if tree.look(path) is None), f"{rules.directories[0]}/{case.name}")
    return source, target, None, (case.finding("put-in-default-directory"), *unused)


def _warnings(case: _Case, bound: Bound | None, sides: Sides) -> Iterator[Finding]:
    """Warn where a process may get two versions of one library, or another one than the plan has."""
    if case.decision == "bind":
        for need in case.needs:
            if need.other is not None and need.requester is not None:
                yield case.finding("two-versions-on-host", requester=need.requester.name, other=need.other)
        for path in sides.image.copies(case.name)[1:]:
            yield case.finding("two-copies-in-image", path=path)
        for name in case.relatives:
            yield case.finding("two-versions-in-image", other=name)
    if bound is not None:
        code = "module-hides-copy" if case.image.found is not None else "module-binds-unusable"
        yield case.finding(code, module=bound.by, path=bound.source)
