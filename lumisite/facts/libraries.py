"""Compare libraries: which there are, what they need, and the symbol versions that they have and need."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from lumisite.binds.never_bound import is_never_bound
from lumisite.facts.change import DOUBT, FAULT, INFO, Change, difference, joined, only_in
from lumisite.facts.facts import Facts, Library
from lumisite.facts.reading import is_below
from lumisite.machine.ldcache import CACHE
from lumisite.machine.library_names import numbers_in, stem
from lumisite.text import listed

Compare: TypeAlias = Callable[[Facts, Facts], Iterator[Change]]
#: Where only root installs: a search there is the business of a package.
_INSTALLED = {"/usr", "/lib", "/lib64", "/opt"}


def _paired(before: Facts, after: Facts) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Yield the SONAMEs that went and that came of each library, which is known by its name without a version."""
    old, new = _by_stem(before.loads), _by_stem(after.loads)
    searched = {*after.searched, *new, *_by_stem(after.missing)}
    for name in sorted(old.keys() | new.keys()):
        gone, come = only_in(old.get(name, ()), new.get(name, ()))
        # One that nothing needs any more was not looked for, and may still be there.
        yield tuple(soname for soname in gone if name in searched and soname not in after.beside), come


def _by_stem(sonames: Iterable[str]) -> dict[str, list[str]]:
    stems: dict[str, list[str]] = {}
    for soname in sorted(sonames):
        stems.setdefault(stem(posixpath.basename(soname)), []).append(soname)
    return stems


def compare_sonames(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each library that has another SONAME."""
    for gone, come in _paired(before, after):
        if gone and come:
            was, now = ", ".join(gone), ", ".join(come)
            users = (f"Rebuild images that take {was} from the host: the host has {now} instead.",)
            advice = f"plan the images that need {was} again: lumisite binds IMAGE --write FILE"
            yield Change(gone[0], was, now, values={"gone": gone, "come": come}, users=users, advice=advice)


def _lost(before: Facts, after: Facts) -> Iterator[tuple[str, str]]:
    """Yield each SONAME that went, and that no other one of its library replaces, with the path where it was."""
    for gone, come in _paired(before, after):
        yield from ((name, before.loads[name]) for name in gone if not come)


def _came(before: Facts, after: Facts) -> Iterator[tuple[str, str]]:
    """Yield each SONAME that came, and that replaces no other one of its library, with its path."""
    for gone, come in _paired(before, after):
        yield from ((name, after.loads[name]) for name in come if not gone)


def compare_gone(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each library that is not there any more, and does not only fail to load."""
    for name, path in _lost(before, after):
        if path not in after.damaged:
            needed_by = after.missing.get(name, ())
            needing = f"; {listed(needed_by)} cannot be loaded without it" if needed_by else ""
            users = (f"Rebuild images that take {name} from the host, which no longer has it.",)
            message = f"library is gone, it was {path}{needing}"
            yield Change(name, name, None, message, {"needed_by": needed_by}, (path,), users=users)


def compare_new(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each library that was not there before."""
    for name, path in _came(before, after):
        if path not in before.damaged:
            yield Change(name, None, name, f"new library {path}", paths=(path,))


def compare_damaged(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each library that cannot be loaded any more, or can again."""
    for name, path in _lost(before, after):
        if damage := after.damaged.get(path):
            yield Change(name, None, damage, f"library cannot be loaded ({damage})", paths=(path,))
    for name, path in _came(before, after):
        if damage := before.damaged.get(path):
            yield Change(name, damage, None, f"library can be loaded again (before: {damage})", paths=(path,))


def compare_files(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each library that is another file: the one that is loaded, and copies in other releases."""
    for name in sorted(before.loads.keys() & after.loads.keys()):
        yield from _compare_file(name, before, after, before.loads[name], after.loads[name])
    copies = before.libraries.keys() & after.libraries.keys()
    for path in sorted(copies.difference(before.loads.values(), after.loads.values())):
        yield from _compare_file(after.libraries[path].soname or posixpath.basename(path), before, after, path, path)


def _compare_file(name: str, before: Facts, after: Facts, old_path: str, new_path: str) -> Iterator[Change]:
    old, new = before.libraries.get(old_path, Library()), after.libraries.get(new_path, Library())
    if old_path != new_path:
        was, now = (facts.texts.get("library-rights", {}) for facts in (before, after))
        rights = now.get(new_path, ()) if now.get(new_path, ()) != was.get(old_path, ()) else ()
        message = ", ".join((f"loaded from {old_path} -> {new_path}", *rights))
        severity = FAULT if rights else DOUBT
        yield Change(name, old_path, new_path, message, paths=(old_path, new_path), severity=severity)
        return
    how = ""
    if old.size_bytes != new.size_bytes:
        how = f"{old.size_bytes} -> {new.size_bytes} bytes"
    elif old.sha256 and new.sha256 and old.sha256 != new.sha256:  # large ones have no digest
        how = f"same size, sha256 {old.sha256[:12]} -> {new.sha256[:12]}"
    if how:
        message = f"another file under the same name, {new_path} ({how})"
        yield Change(name, old_path, new_path, message, paths=(new_path,), advice="validate an image that borrows it")


def compare_rights(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each library that others than before can replace; of one elsewhere its move tells that."""
    old, new = (facts.texts.get("library-rights", {}) for facts in (before, after))
    for path in sorted(before.libraries.keys() & after.libraries.keys() & (old.keys() | new.keys())):
        if (was := old.get(path, ())) != (now := new.get(path, ())):
            affects, severity = "who can put another library in its place", FAULT if now else DOUBT
            message = difference("", joined(was), joined(now))
            yield Change(path, joined(was), joined(now), message, severity=severity, affects=affects)


# What libraries need, and what they have for others


def _loaded(before: Facts, after: Facts) -> Iterator[tuple[str, Library, Library]]:
    for name in sorted(before.loads.keys() & after.loads.keys()):
        old, new = before.libraries.get(before.loads[name]), after.libraries.get(after.loads[name])
        yield name, old or Library(), new or Library()


def compare_names(names: Callable[[Library], Iterable[str]], has: str) -> Compare:
    """Return a function that yields a change for each library with other names of some sort; `has` is the verb."""

    def compare(before: Facts, after: Facts) -> Iterator[Change]:
        for name, old, new in _loaded(before, after):
            gone, come = only_in(sorted(names(old)), sorted(names(new)))
            if gone or come:
                parts = [f"{listed(come)} now"] if come else []
                parts += [f"no longer {listed(gone)}"] if gone else []
                message = f"{has} {', '.join(parts)}"
                yield Change(name, joined(gone), joined(come), message, {"gone": gone, "come": come})

    return compare


def needs_of(library: Library) -> list[str]:
    """Return what a library needs but for the C library, which does not count here."""
    return [name for name in library.needed if not is_never_bound(name)]


def compare_needed_versions(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each library that needs another version of glibc's or GCC's symbols."""
    for name, old, new in _loaded(before, after):
        for group in sorted(old.wants.keys() | new.wants.keys()):
            was, now = (f"{group}_{side.wants[group]}" if group in side.wants else None for side in (old, new))
            if was == now:
                continue
            if now is None or (was is not None and numbers_in(now) < numbers_in(was)):
                message = f"needs {now}, less than {was}" if now else f"no longer needs {was}"
                yield Change(name, was, now, message, severity=INFO, advice="validate an image that borrows it")
            else:
                message = f"needs {now}, before {was}" if was else f"needs {now} now"
                users = (f"Images without {now} cannot load libraries of the host: rebuild them on a newer base.",)
                yield Change(name, was, now, message, severity=FAULT, users=users)


def compare_runpaths(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each library whose needs are searched first where not only packages install."""
    for name, old, new in _loaded(before, after):
        _, come = only_in(old.runpath, new.runpath)
        folders = tuple(path for path in come if not (path.startswith("$") or is_below(path, _INSTALLED)))
        if folders:
            names = listed(path or "the working directory" for path in folders)
            was, now = joined(old.runpath), joined(new.runpath)
            yield Change(name, was, now, f"RUNPATH has {names} now" + (f", before {was}" if was else ""))


# Needs that nothing meets


def compare_missing(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each library that is needed and not there, or was."""
    gone, come = only_in(sorted(before.missing), sorted(after.missing))
    for name in come:
        needed_by = after.missing[name]
        users = (f"{name} is missing on the host; we are working on it.",)
        message = f"not found, needed by {listed(needed_by)}"
        yield Change(name, None, joined(needed_by), message, {"needed_by": needed_by}, users=users)
    for name in gone:
        needed_by = before.missing[name]
        message = f"no longer missing; it was needed by {listed(needed_by)}"
        yield Change(name, joined(needed_by), None, message, {"needed_by": needed_by})


def compare_cache(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield one change for all libraries that are there, and that the loader's cache hides now."""
    known = {*before.uncached, *before.missing}
    if hidden := tuple(name for name in sorted(after.uncached) if name not in known):
        folders = sorted({posixpath.dirname(after.uncached[name]) for name in hidden})
        message = f"does not have {listed(hidden)} of {listed(folders)}"
        yield Change(CACHE, None, joined(hidden), message, {"libraries": hidden})
