"""Libraries: which there are, what they need, and the symbol versions that they have and need."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from lumisite.facts.change import Change, Touched, joined, listed, only_in
from lumisite.facts.context import Context
from lumisite.facts.facts import Facts, Library
from lumisite.facts.kind import DOUBT, FAULT, INFO, ChangeKind, Compare, Differences
from lumisite.facts.kinds.paths import is_below
from lumisite.facts.kinds.system import comes_with_update
from lumisite.machine.ldcache import CACHE
from lumisite.machine.library_names import is_foundation, numbers_in, stem
from lumisite.vendors import all_software


def _paired(before: Facts, after: Facts) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Yield the SONAMEs that went and that came of each library, which is known by its name without a version."""
    old, new = _by_stem(before.loads), _by_stem(after.loads)
    searched = {*after.searched, *new, *_by_stem(after.missing)}
    for name in sorted(old.keys() | new.keys()):
        gone, come = only_in(old.get(name), new.get(name))
        # One that nothing needs any more was not looked for, and may still be there.
        yield tuple(soname for soname in gone if name in searched and soname not in after.beside), come


def _by_stem(sonames: Iterable[str]) -> dict[str, set[str]]:
    stems: dict[str, set[str]] = {}
    for soname in sonames:
        stems.setdefault(stem(posixpath.basename(soname)), set()).add(soname)
    return stems


# Other SONAMEs


def compare_sonames(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each library that has another SONAME."""
    for gone, come in _paired(before, after):
        if gone and come:
            was, now = ", ".join(gone), ", ".join(come)
            users = (("rebuild", f"Images that take {was} from the host: the host has {now} instead."),)
            advice = f"plan the images that need {was} again: lumisite binds IMAGE --write FILE"
            yield Change(gone[0], was, now, values={"gone": gone, "come": come}, users=users, advice=advice)


def library_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield what borrows the libraries of a change or what needs them, and what binds those that came or went."""
    names = change.names("gone") or change.names("libraries")
    facts = context.before if change.after is None else context.after
    needing = [
        facts.libraries.get(path, Library()).soname or posixpath.basename(path) for path in change.names("needed_by")
    ]
    about = names if change.kind in ("soname", "cache") else (change.subject,)
    yield from context.plans_with((*about, *needing))
    both = context.before.loads.keys() & context.after.loads.keys()
    yield from context.binds_of([name for name in (*about, *names) if name not in both])


# Libraries that came or went


def compare_gone(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each library that is not there any more, or cannot be loaded any more."""
    for gone, come in _paired(before, after):
        for name in gone if not come else ():
            path, needed_by = before.loads[name], after.missing.get(name, ())
            if path in after.damaged:
                continue
            needing = f"; {listed(needed_by)} cannot be loaded without it" if needed_by else ""
            users = (("rebuild", f"Images that take {name} from the host: the host has it no more."),)
            message = f"library is gone, it was {path}{needing}"
            yield Change(name, name, None, message, {"needed_by": needed_by}, (path,), users=users)


def compare_new(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each library that was not there before."""
    for gone, come in _paired(before, after):
        for name in come if not gone else ():
            path = after.loads[name]
            if path not in before.damaged:
                yield Change(name, None, name, f"new library {path}", paths=(path,))


def gone_follows(change: Change, differences: Differences) -> bool:
    """Follow from a broken link, or from the folder of a release that went."""
    if change.subject in differences.hidden_libraries:
        return True
    return not change.names("needed_by") and any(map(differences.in_changed_folder, change.paths))


def new_follows(change: Change, differences: Differences) -> bool:
    """Follow from what needs the library now or came with it, or from the folder of a release that came."""
    if change.subject in differences.named("needs", "come") or change.subject in differences.subjects("missing"):
        return True
    needing = differences.needing.get(change.subject)
    if needing and needing.isdisjoint(differences.before.libraries):
        return True
    return gone_follows(change, differences)


# Files that cannot be loaded


def compare_damaged(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each library that cannot be loaded any more, or can again."""
    for gone, come in _paired(before, after):
        for name in gone if not come else ():
            path = before.loads[name]
            if damage := after.damaged.get(path):
                yield Change(name, None, damage, f"library cannot be loaded ({damage})", paths=(path,))
        for name in come if not gone else ():
            path = after.loads[name]
            if damage := before.damaged.get(path):
                message = f"library can be loaded again (before: {damage})"
                yield Change(name, damage, None, message, paths=(path,))


# Other files under the same name


def compare_files(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each library that is another file: the one that is loaded, and copies in other releases."""
    for name in sorted(before.loads.keys() & after.loads.keys()):
        yield from _compare_file(name, before, after, before.loads[name], after.loads[name])
    copies = before.libraries.keys() & after.libraries.keys()
    for path in sorted(copies.difference(before.loads.values(), after.loads.values())):
        yield from _compare_file(after.libraries[path].soname or posixpath.basename(path), before, after, path, path)


def _compare_file(name: str, before: Facts, after: Facts, old_path: str, new_path: str) -> Iterator[Change]:
    old, new = before.libraries.get(old_path, Library()), after.libraries.get(new_path, Library())
    paths = (old_path, new_path) if old_path != new_path else (new_path,)
    if old_path != new_path:
        was, now = (facts.plain.get("library-rights", {}) for facts in (before, after))
        rights = now.get(new_path, "") if now.get(new_path) != was.get(old_path) else ""
        message = f"loaded from {old_path} -> {new_path}" + (f", {rights}" if rights else "")
        yield Change(name, old_path, new_path, message, paths=paths, severity=FAULT if rights else DOUBT)
        return
    how = ""
    if old.size_bytes != new.size_bytes:
        how = f"{old.size_bytes} -> {new.size_bytes} bytes"
    elif old.sha256 and new.sha256 and old.sha256 != new.sha256:  # large ones have no digest
        how = f"same size, sha256 {old.sha256[:12]} -> {new.sha256[:12]}"
    if how:
        message = f"another file under the same name, {new_path} ({how})"
        yield Change(name, old_path, new_path, message, paths=paths, advice="validate an image that borrows it")


def file_follows(change: Change, differences: Differences) -> bool:
    """Follow from what the library needs or has, from another default or folder of a release, or from an update."""
    if comes_with_update(change, differences):
        return True
    old, new = change.before or "", change.after or ""
    before, after = differences.before, differences.after
    if differences.in_changed_folder(old):
        return True
    if old == new:
        return change.subject in differences.subjects(
            "needs", "wants", "gives", "runpath", "provider"
        ) and old == before.loads.get(change.subject)
    kept = all(path in before.libraries and path in after.libraries for path in (old, new))
    return kept and old.startswith(tuple(_moving_with_defaults(differences)))


def _moving_with_defaults(differences: Differences) -> Iterator[str]:
    """Yield what the paths of libraries begin with that come from another release, since a default changed."""
    software = {product.title: product for _, product in all_software()}
    for name in differences.subjects("default"):
        yield from software[name].moving if name in software else (f"{name}/",)


# What libraries need, and what they have for others


def _compare_names(names: Callable[[Library], Iterable[str] | None], has: str) -> Compare:
    """Return a function that yields a change for each library with other names of some sort, where both are known.

    `has` is what a library does with them: `needs` or `has`.
    """

    def compare(before: Facts, after: Facts) -> Iterator[Change]:
        for name, old, new in _loaded(before, after):
            was, now = names(old), names(new)
            gone, come = only_in(was, now)
            if (gone or come) and None not in (was, now):
                parts = [f"{listed(come)} now"] if come else []
                parts += [f"{listed(gone)} no more"] if gone else []
                message = f"{has} {' and '.join(parts)}"
                yield Change(name, joined(gone), joined(come), message, {"gone": gone, "come": come})

    return compare


def compare_symbol_versions(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each library that has other symbol versions for those who need it."""
    for change in _compare_names(lambda library: library.gives, "has symbol versions")(before, after):
        lost = change.names("gone")
        needing = (
            f"Images and libraries that need {', '.join(lost)} of the host's {change.subject}: it has that no more."
        )
        users = (("rebuild", needing),) if lost else ()
        yield replace(change, users=users, severity=FAULT if lost else INFO)


def _needs(library: Library) -> list[str]:
    """Return what a library needs but for the C library, which does not count here."""
    return [name for name in library.needed if not is_foundation(name)]


def compare_needed_versions(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each library that needs another version of glibc's or GCC's symbols."""
    for name, old, new in _loaded(before, after):
        for group in sorted(old.wants.keys() | new.wants.keys()):
            was, now = (f"{group}_{side.wants[group]}" if group in side.wants else None for side in (old, new))
            if was == now:
                continue
            if now is None or (was is not None and numbers_in(now) < numbers_in(was)):
                message = f"needs {now}, less than {was}" if now else f"needs {was} no more"
                yield Change(name, was, now, message, severity=INFO, advice="validate an image that borrows it")
            else:
                message = f"needs {now}, before {was}" if was else f"needs {now} now"
                lacking = f"Images without {now} that take libraries from the host: these cannot be loaded."
                yield Change(name, was, now, message, severity=FAULT, users=(("rebuild", lacking),))


def _loaded(before: Facts, after: Facts) -> Iterator[tuple[str, Library, Library]]:
    for name in sorted(before.loads.keys() & after.loads.keys()):
        old, new = before.libraries.get(before.loads[name]), after.libraries.get(after.loads[name])
        yield name, old or Library(), new or Library()


#: Where only root installs: a search there is the business of a package.
_INSTALLED = ("/usr", "/lib", "/lib64", "/opt")


def compare_runpaths(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each library whose needs are searched first where not only packages install."""
    for name, old, new in _loaded(before, after):
        _, come = only_in(old.runpath, new.runpath)
        folders = tuple(path for path in come if not (path.startswith("$") or is_below(path, {*_INSTALLED})))
        if folders and old.runpath is not None:
            shown = listed(path or "the working directory" for path in folders)
            was, now = joined(old.runpath), joined(new.runpath or ())
            yield Change(name, was, now, f"RUNPATH has {shown} now" + (f", before {was}" if was else ""))


def needs_follow(change: Change, differences: Differences) -> bool:
    """Follow from libraries that have another SONAME, or from a provider that went, where that is all that differs."""
    if change.after is None and change.subject in differences.subjects("provider"):
        return True
    old, new = set(change.names("gone")), set(change.names("come"))
    for renamed in differences.by_kind.get("soname", ()):
        if not old.isdisjoint(renamed.names("gone")) and not new.isdisjoint(renamed.names("come")):
            old, new = old.difference(renamed.names("gone")), new.difference(renamed.names("come"))
    return not old and not new


# Needs that nothing meets


def compare_missing(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each library that is needed and not there, or was."""
    gone, come = only_in(before.missing, after.missing)
    for name in come:
        needed_by = after.missing[name]
        users = (("rebuild", f"Nothing yet: {name} is missing on the host, and we are at it."),)
        message = f"not found, needed by {listed(needed_by)}"
        yield Change(name, None, joined(needed_by), message, {"needed_by": needed_by}, users=users)
    for name in gone:
        needed_by = before.missing[name]
        message = f"nothing lacks it any more; it was needed by {listed(needed_by)}"
        yield Change(name, joined(needed_by), None, message, {"needed_by": needed_by})


def missing_follows(change: Change, differences: Differences) -> bool:
    """Follow from the library itself, which went, cannot be loaded, or is not in the loader's cache."""
    gone = differences.subjects("library-gone", "damaged")
    return change.subject in gone or change.subject in differences.hidden_libraries


def compare_cache(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield one change for all libraries that are there, and that the loader's cache hides now."""
    known = {*before.uncached, *before.missing}
    if hidden := tuple(name for name in sorted(after.uncached) if name not in known):
        folders = sorted({posixpath.dirname(after.uncached[name]) for name in hidden})
        message = f"does not have {listed(hidden)} of {listed(folders)}"
        yield Change(CACHE, None, joined(hidden), message, {"libraries": hidden})


_PLAN = "plan the images that borrow it again: lumisite binds IMAGE --write FILE"
_ALWAYS_FAULT, _NEW_IS_FAULT = (FAULT, FAULT, FAULT), (INFO, INFO, FAULT)
KINDS = (
    ChangeKind("cache", compare_cache, library_touches, "run ldconfig on the node", _ALWAYS_FAULT),
    ChangeKind("soname", compare_sonames, library_touches, _PLAN, _ALWAYS_FAULT, "SONAME"),
    ChangeKind(
        "library-gone",
        compare_gone,
        library_touches,
        "install it again, or plan the images that borrow it again",
        _ALWAYS_FAULT,
        follows=gone_follows,
    ),
    ChangeKind("library-new", compare_new, library_touches, "", (INFO, INFO, INFO), follows=new_follows),
    ChangeKind("damaged", compare_damaged, library_touches, "install its package again", _NEW_IS_FAULT),
    ChangeKind("library", compare_files, library_touches, _PLAN, follows=file_follows),
    ChangeKind("needs", _compare_names(_needs, "needs"), library_touches, _PLAN, follows=needs_follow),
    ChangeKind("wants", compare_needed_versions, library_touches, f"{_PLAN}; an older image cannot load it"),
    ChangeKind("gives", compare_symbol_versions, library_touches, "build what needs them again"),
    ChangeKind("runpath", compare_runpaths, library_touches, "install the library's package again", _ALWAYS_FAULT),
    ChangeKind(
        "provider",
        _compare_names(lambda library: library.providers, "has provider"),
        library_touches,
        "install the libfabric that was built for the network, and run lumisite validate",
        (FAULT, FAULT, INFO),
    ),
    ChangeKind("missing", compare_missing, library_touches, "install it", _NEW_IS_FAULT, follows=missing_follows),
)
