"""The deployed release: which one it is, and files in it that were edited."""

from __future__ import annotations

from collections.abc import Iterator

from lumisite.facts.change import Change, Touched
from lumisite.facts.context import Context
from lumisite.facts.facts import Facts
from lumisite.facts.kind import ChangeKind
from lumisite.findings.finding import Severity

_EDITED = "differs from what was rendered"


def compare_release(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change where another release is deployed, with the versions of modules that went with the old one."""
    old, new = before.deployed, after.deployed
    if old.release != new.release:
        gone = tuple(name for name, module in sorted(old.names.items()) if module == name != new.names.get(name))
        # The module's default version, which users get in its place, in the same order.
        instead = tuple(new.names.get(name.rpartition("/")[0], "") for name in gone)
        values = {"gone": gone, "instead": instead}
        root = old.root or new.root
        paths = (f"{root}/current",) if root else ()
        yield Change("release-changed", "deployed release", old.release, new.release, values, paths)


def release_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield all modules."""
    for name in context.site.modules:
        yield Touched("module", name, "users load it from the release that `current` leads to")


def compare_files(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each file of the release that is not as before."""
    old, new = before.deployed, after.deployed
    if old.release == new.release:
        for path in sorted(old.files.keys() | new.files.keys()):
            was, now = old.files.get(path), new.files.get(path)
            if was != now:
                how = "added to" if was is None else "removed from" if now is None else "edited in"
                severity = Severity.FAULT if now is None else None
                yield Change(
                    "deployed-file-changed", path, was, now, {"how": how, "release": new.release}, severity=severity
                )


def file_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the module that the file is, or what else runs or reads it."""
    folder, _, rest = change.subject.partition("/")
    if folder == "modules":
        yield Touched("module", rest.removesuffix(".lua"), _EDITED)
    else:
        yield Touched("helper", change.subject, _EDITED)


KINDS = (
    ChangeKind("release", compare_release, release_touches),
    ChangeKind("edited", compare_files, file_touches),
)
