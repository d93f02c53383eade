"""What a kind of change is: functions that compare two captures and find what a change touches, and a reader."""

from __future__ import annotations

import operator
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from lumisite.facts.change import Change, Touched, difference, joined, known_difference
from lumisite.facts.context import Context
from lumisite.facts.facts import Facts
from lumisite.findings.finding import Severity
from lumisite.machine.tree import Tree, is_under
from lumisite.site.model import Site


@dataclass(frozen=True)
class Differences:
    """All changes between two captures: one change may only follow from another."""

    before: Facts
    after: Facts
    changes: tuple[Change, ...]

    @cached_property
    def by_kind(self) -> Mapping[str, list[Change]]:
        """The changes by the name of their kind."""
        found: dict[str, list[Change]] = {}
        for change in self.changes:
            found.setdefault(change.kind, []).append(change)
        return found

    def subjects(self, *kinds: str) -> set[str]:
        """Return the subjects of the changes of some kinds."""
        return {change.subject for kind in kinds for change in self.by_kind.get(kind, ())}

    def named(self, kind: str, value: str) -> set[str]:
        """Return all names in one of the values of the changes of a kind."""
        return {name for change in self.by_kind.get(kind, ()) for name in change.names(value)}

    def came_or_went(self, kind: str) -> bool:
        """Return whether something of a kind is new or gone."""
        return any(None in (change.before, change.after) for change in self.by_kind.get(kind, ()))

    @cached_property
    def folders(self) -> tuple[str, ...]:
        """The folders of releases that came or went, with changed images and broken links."""
        changed = (change for kind in ("product", "stack", "image") for change in self.by_kind.get(kind, ()))
        paths = [path for change in changed for path in change.paths]
        return (*paths, *sorted(self.subjects("dangling")))

    @cached_property
    def image_paths(self) -> set[str]:
        """The files and aliases of changed images."""
        return {path for change in self.by_kind.get("image", ()) for path in (change.subject, *change.paths)}

    def in_changed_folder(self, path: str) -> bool:
        """Return whether a path is in a folder that is reported as a whole."""
        return any(is_under(path, folder) for folder in self.folders)

    @cached_property
    def unmounted(self) -> set[str]:
        """The places where a file system is mounted in one capture only; all that there is would be inside of `/`."""
        return {one.subject for one in self.by_kind.get("mounts", ()) if None in (one.before, one.after)} - {"/"}

    @cached_property
    def needing(self) -> Mapping[str, set[str]]:
        """The libraries of the capture after that need another one, by its SONAME."""
        found: dict[str, set[str]] = {}
        for path, library in self.after.libraries.items():
            for name in library.needed:
                found.setdefault(name, set()).add(path)
        return found

    @cached_property
    def hidden_libraries(self) -> set[str]:
        """The names of libraries whose own links are broken, or that only a stale cache of the loader hides."""
        broken = {link for link in self.subjects("dangling") if self._was_loaded(link)}
        return self.named("cache", "libraries").union(map(posixpath.basename, broken))

    def _was_loaded(self, link: str) -> bool:
        """Return whether a link is, or leads to, what one of the captures has under the link's name."""
        name = posixpath.basename(link)
        loaded = {facts.loads[name] for facts in (self.before, self.after) if name in facts.loads}
        targets = {facts.dangling[link] for facts in (self.before, self.after) if link in facts.dangling}
        folders = set(map(posixpath.dirname, loaded))
        return not loaded or posixpath.dirname(link) in folders or not loaded.isdisjoint(targets)


Compare: TypeAlias = Callable[[Facts, Facts], Iterator[Change]]
Touches: TypeAlias = Callable[[Change, Context], Iterator[Touched]]
Follows: TypeAlias = Callable[[Change, Differences], bool]
Read: TypeAlias = Callable[[Tree, Site], Mapping[str, str] | None]
Known: TypeAlias = Callable[[Mapping[str, str], Mapping[str, str]], tuple[Mapping[str, str], Mapping[str, str]]]
Texts: TypeAlias = Callable[[str | None, str | None], bool]
#: How bad it is that something is another one, that it is gone, and that it is new.
Severities: TypeAlias = tuple[Severity, Severity, Severity]
INFO, DOUBT, FAULT = Severity.INFO, Severity.DOUBT, Severity.FAULT


def never_follows(change: Change, differences: Differences) -> bool:
    """Return False, for kinds whose changes follow from no other."""
    return False


@dataclass(frozen=True)
class ChangeKind:
    """A kind of change: how two captures are compared, how bad a change is, what it touches and what to do about it.

    `what` is what changes, for a sentence that a change has none of. `follows` tells whether a change only follows
    from another one, which is reported. `read` captures what is compared as text by name (`Facts.plain`), `None` where
    this user may not read it; other facts are read in `capture`.
    """

    name: str
    compare: Compare
    touches: Touches
    advice: str
    severities: Severities = (DOUBT, DOUBT, DOUBT)
    what: str = ""
    follows: Follows = never_follows
    read: Read | None = None

    def changes(self, before: Facts, after: Facts) -> Iterator[Change]:
        """Yield the changes with what they have in common."""
        for change in self.compare(before, after):
            at = 2 if change.before is None else 1 if change.after is None else 0
            severity = change.severity or self.severities[at]
            message = change.message or difference(self.what, change.before, change.after)
            advice = change.advice or ("" if severity is INFO else self.advice)
            yield replace(change, kind=self.name, severity=severity, message=message, advice=advice)


def never(was: str | None, now: str | None) -> bool:
    """Return False, for texts of which no change is a fault."""
    return False


def is_lost(was: str | None, now: str | None) -> bool:
    """Return whether something is not as it was, or gone, and not only new."""
    return was is not None


def is_new(was: str | None, now: str | None) -> bool:
    """Return whether something is there that was not, or is another one."""
    return now is not None


def is_gone(was: str | None, now: str | None) -> bool:
    """Return whether something is not there any more."""
    return now is None


def texts_of(name: str, before: Facts, after: Facts) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the texts of a kind in two captures; none where one of them could not read that part."""
    if name in before.plain and name in after.plain:
        return before.plain[name], after.plain[name]
    return {}, {}


def text_kind(
    name: str,
    affects: str,
    touches: Touches,
    read: Read | None = None,
    follows: Follows = never_follows,
    same: Texts = operator.eq,
    is_fault: Texts = never,
    known: Known = lambda old, new: (old, new),
) -> ChangeKind:
    """Return a kind of change of facts that map names to texts; `affects` is what depends on them, for people.

    Of a list, whose entries are parted by `, `, only those are shown that differ. `is_fault` returns from the texts
    before and after whether the change is no doubt but a fault, `known` those texts of two captures that both know.
    """

    def compare(before: Facts, after: Facts) -> Iterator[Change]:
        for change in compare_texts(*known(*texts_of(name, before, after)), same):
            gone, come = (joined(parts) for parts in only_in_order(parts_of(change.before), parts_of(change.after)))
            old, new = (gone, come) if gone or come else (change.before, change.after)  # else only their order differs
            severity = FAULT if is_fault(change.before, change.after) else DOUBT
            message = f"{difference('', old, new)}; touches {affects}"
            yield replace(change, before=old, after=new, message=message, severity=severity)

    advice = "compare with the other nodes, and set it as before or run lumisite validate"
    return ChangeKind(name, compare, touches, advice, follows=follows, read=read)


def only_in_order(old: Sequence[str], new: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return which entries of two lists only one of them has."""
    return [part for part in old if part not in new], [part for part in new if part not in old]


def parts_of(text: str | None) -> list[str]:
    """Return the entries of a list that was joined to one text."""
    return text.split(", ") if text else []


def value_kind(
    name: str,
    subject: str,
    value: Callable[[Facts], str | None],
    touches: Touches,
    advice: str,
    severity: Severity = DOUBT,
    follows: Follows = never_follows,
) -> ChangeKind:
    """Return a kind for one text of the facts."""

    def compare(before: Facts, after: Facts) -> Iterator[Change]:
        old, new = value(before), value(after)
        if old != new:
            message = known_difference(old, new)
            users = (("changed", f"{subject[0].upper()}{subject[1:]}: {message}."),) if subject != "glibc" else ()
            yield Change(subject, old, new, message, users=users)

    return ChangeKind(name, compare, touches, advice, (severity,) * 3, follows=follows)


def helper_touches(*files: str) -> Touches:
    """Return a function that yields files of the helper."""

    def touches(change: Change, context: Context) -> Iterator[Touched]:
        yield from (Touched("helper", file, f"depends on {change.subject}") for file in files)

    return touches


def platform_touches(key: str) -> Touches:
    """Return a function that yields a key of the platform before, with what it states."""

    def touches(change: Change, context: Context) -> Iterator[Touched]:
        stated = getattr(context.old, key)
        why = f"states {'what changed' if stated is None else stated}"
        yield Touched("site", f"platforms.{context.was}.{key}", why)

    return touches


def compare_texts(
    before: Mapping[str, str | None], after: Mapping[str, str | None], same: Texts = operator.eq
) -> Iterator[Change]:
    """Yield a change for each name whose text differs."""
    for name in sorted(before.keys() | after.keys()):
        if not same(before.get(name), after.get(name)):
            yield Change(name, before.get(name), after.get(name))
