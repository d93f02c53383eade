"""The deployed release: which one it is, and files in it that were edited."""

from __future__ import annotations

from collections.abc import Iterator

from lumisite.facts.change import Change, Touched
from lumisite.facts.context import Context
from lumisite.facts.facts import Facts
from lumisite.facts.kind import DOUBT, FAULT, INFO, ChangeKind, compare_texts

_EDITED = "differs from what was rendered"


def compare_release(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change where another release is deployed, with the versions of modules that went with the old one."""
    old, new = before.deployed, after.deployed
    if old.release != new.release:
        gone = (name for name, module in sorted(old.names.items()) if module == name != new.names.get(name))
        # The module's default version, which users get in its place.
        instead = {name: new.names.get(name.rpartition("/")[0], "") or "nothing" for name in gone}
        users = tuple(("scripts", f"{name} is gone: {other} has its place.") for name, other in instead.items())
        root = old.root or new.root
        paths = (f"{root}/current",) if root else ()
        yield Change("deployed release", old.release, new.release, paths=paths, users=users)


def release_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield all modules."""
    for name in context.site.modules:
        yield Touched("module", name, "users load it from the release that `current` leads to")


def compare_files(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each file of the release that is not as before."""
    old, new = before.deployed, after.deployed
    for change in compare_texts(old.files, new.files) if old.release == new.release else ():
        how = "added to" if change.before is None else "removed from" if change.after is None else "edited in"
        message = f"{how} the deployed release {new.release}"
        yield Change(change.subject, change.before, change.after, message)


def file_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the module that the file is, or what else runs or reads it."""
    folder, _, rest = change.subject.partition("/")
    if folder == "modules":
        yield Touched("module", rest.removesuffix(".lua"), _EDITED)
    else:
        yield Touched("helper", change.subject, _EDITED)


KINDS = (
    ChangeKind("release", compare_release, release_touches, "", (INFO, INFO, INFO)),
    ChangeKind(
        "edited",
        compare_files,
        file_touches,
        "restore the release: lumisite deploy OUT ROOT, then with --apply",
        (DOUBT, FAULT, DOUBT),
    ),
)
