"""Compare libraries. One is known by its name without a version, so that another SONAME is one change."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator

from lumisite.binds.never_bound import is_never_bound
from lumisite.facts.change import DOUBT, FAULT, INFO, Change, Words, only_in
from lumisite.facts.facts import Facts, Library
from lumisite.machine.ldcache import CACHE
from lumisite.machine.library_names import numbers_in, stem
from lumisite.text import listed

_PLAN = "plan the images that borrow it again: lumisite binds IMAGE --write FILE"


def compare_sonames(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each library that has another SONAME."""
    for gone, come in _paired(before, after):
        if gone and come:
            was, now = ", ".join(gone), ", ".join(come)
            users = f"Rebuild images that take {was} from the host: the host has {now} instead."
            names = (*gone, *(_link(before, name) for name in gone))
            yield Change(
                "soname", gone[0], was, now, f"SONAME {was} -> {now}", FAULT, gone, come, names, (), (users,), _PLAN
            )


def _paired(before: Facts, after: Facts) -> Iterator[tuple[Words, Words]]:
    """Yield the SONAMEs that went and that came of each library."""
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


def _link(facts: Facts, name: str) -> str:
    """Return the link by which a loaded library is usually named."""
    return posixpath.join(posixpath.dirname(facts.loads[name]), name)


def compare_missing(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each library that cannot be loaded any more, or that is needed now and not there."""
    for name in (name for gone, come in _paired(before, after) if not come for name in gone):
        path, needing = before.loads[name], after.missing.get(name, ())
        message, advice = _reason(name, path, after)
        users = f"Rebuild images that take {name} from the host, which no longer has it."
        names = (name, _link(before, name), *_sonames(after, needing))
        inside = () if needing else (path,)
        text = f"{message}; it was {path}"
        yield Change("library-missing", name, name, None, text, FAULT, (path,), (), names, inside, (users,), advice)
    for name in sorted(after.missing.keys() - before.missing.keys() - before.loads.keys()):
        message, users = f"not found, needed by {listed(after.missing[name])}", f"{name} is missing on the host."
        names = (name, *_sonames(after, after.missing[name]))
        yield Change(
            "library-missing", name, None, "not found", message, FAULT, names=names, users=(users,), advice="install it"
        )


def _reason(name: str, path: str, after: Facts) -> tuple[str, str]:
    """Return why a library cannot be loaded, and what to do."""
    if path in after.damaged:
        return f"cannot be loaded ({after.damaged[path]})", "install its package again"
    if name in after.uncached:
        return f"is in {posixpath.dirname(after.uncached[name])}, but not in {CACHE}", "run ldconfig on the node"
    for link, target in after.dangling.items():
        if posixpath.basename(link) == name:
            return f"{link} is a broken link to {target}", "restore its target"
    needing = f", needed by {listed(after.missing[name])}" if name in after.missing else ""
    return f"not found{needing}", f"install it again, or {_PLAN}"


def _sonames(facts: Facts, paths: Iterable[str]) -> Words:
    return tuple(facts.libraries.get(path, Library()).soname or posixpath.basename(path) for path in paths)


def compare_new(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each library that there is now, of those that the site names or that something lacked."""
    for name in (name for gone, come in _paired(before, after) if not gone for name in come):
        if stem(name) in after.searched or name in before.missing:
            path = after.loads[name]
            names = (name, _link(after, name), *_sonames(before, before.missing.get(name, ())))
            yield Change("library-new", name, None, name, f"found now, {path}", INFO, (), (name,), names, (path,))


def compare_files(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each library that is another file: the one that is loaded, and copies in other releases."""
    for name in sorted(before.loads.keys() & after.loads.keys()):
        yield from _compare_file(name, before, after, before.loads[name], after.loads[name])
    copies = before.libraries.keys() & after.libraries.keys()
    for path in sorted(copies.difference(before.loads.values(), after.loads.values())):
        yield from _compare_file(after.libraries[path].soname or posixpath.basename(path), before, after, path, path)


def _compare_file(name: str, before: Facts, after: Facts, old_path: str, new_path: str) -> Iterator[Change]:
    old, new = before.libraries.get(old_path, Library()), after.libraries.get(new_path, Library())
    newer, parts = _newer_needs(old, new), list(_differences(old, new))
    lost, _ = only_in(old.gives, new.gives)
    text = "Images without {} cannot load libraries of the host: rebuild them on a newer base."
    if old_path != new_path:
        how = f"loaded from {old_path} -> {new_path}"
    elif old.size_bytes != new.size_bytes:
        how = f"another file {new_path} ({old.size_bytes} -> {new.size_bytes} bytes)"
    elif old.sha256 and new.sha256 and old.sha256 != new.sha256:  # large ones have no digest
        how = f"another file {new_path} (same size)"
    else:
        return
    yield Change(
        "library",
        name,
        old_path,
        new_path,
        "; ".join((*parts, how)),
        FAULT if newer or lost else DOUBT,
        names=(name,),
        inside=() if parts else tuple(dict.fromkeys((old_path, new_path))),
        users=tuple(map(text.format, newer)),
        advice=_PLAN if parts else "validate an image that borrows it",
    )


def _newer_needs(old: Library, new: Library) -> list[str]:
    """Return the versions of glibc's or GCC's symbols that a library needs, which it did not need before."""
    return [
        f"{group}_{version}"
        for group, version in sorted(new.wants.items())
        if numbers_in(version) > numbers_in(old.wants.get(group, ""))
    ]


def _differences(old: Library, new: Library) -> Iterator[str]:
    """Yield what a library needs and has for others that is not as before, but for other SONAMEs of the same."""
    if newer := _newer_needs(old, new):
        yield f"needs {listed(newer)} now"
    was, now = ([stem(name) + "*" for name in one.needed if not is_never_bound(name)] for one in (old, new))
    for verb, pair in (("needs", (was, now)), ("has symbol versions", (old.gives, new.gives))):
        gone, come = only_in(*pair)
        if come:
            yield f"{verb} {listed(come)} now"
        if gone:
            yield f"no longer {verb} {listed(gone)}"
