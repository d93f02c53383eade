"""What a rendered tree would change, by meaning and by file. Nothing here reads or writes.

The id of a release is in its files; it is blanked before they are compared, so that a file which differs
in nothing else is the same. Inputs and the version of lumisite are no difference either while they render to
the same tree.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lumisite.paths import MODULEFILE
from lumisite.release.tree import RenderedTree
from lumisite.render.manifest import MANIFEST, NO_MANIFEST, Manifest, ModuleSummary
from lumisite.text import printable

_LISTS = ("binds", "provides", "loads", "conflicts")
_MOST_LINES_COMPARED = 20_000  # many times what is rendered: a damaged file must not fill the memory


class Pair(NamedTuple):
    """What something was and is; `None` where it was not or is not there."""

    old: str | None
    new: str | None


class ListChange(NamedTuple):
    """What a list has gained and lost, each in its own order."""

    added: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True)
class ModuleChange:
    """One module; `old` and `new` are its versions, and the one that does not exist is empty."""

    name: str
    old: str
    new: str
    lists: Mapping[str, ListChange]
    environment: Mapping[str, Pair]

    def __bool__(self) -> bool:
        return self.old != self.new or bool(self.lists or self.environment)


class FileChange(NamedTuple):
    """One file; `None` is the side that does not have it.

    `kind` is `new`, `removed`, `renamed`, `changed` or `mode`, `diff` the lines of its unified diff. A file whose
    module got a new version is the same file under a new name.
    """

    kind: str
    old: str | None
    new: str | None
    diff: list[str]


@dataclass(frozen=True)
class Difference:
    """Everything that differs between the release `old` (empty: there is none) and `new`.

    `names` are those that users may have typed, with the modules that they led and lead to. `tasks` has by group what
    the helper does to tasks.
    """

    old: str
    new: str
    versions: Mapping[str, Pair] = field(default_factory=dict)
    modules: tuple[ModuleChange, ...] = ()
    names: Mapping[str, Pair] = field(default_factory=dict)
    tasks: Mapping[str, Mapping[str, Pair]] = field(default_factory=dict)
    files: tuple[FileChange, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.versions or self.modules or self.names or self.files)


def compare(old: RenderedTree | None, new: RenderedTree) -> Difference:
    """Compare two trees; without an old one, everything of the new one is new."""
    before, after = old.manifest if old else NO_MANIFEST, new.manifest
    modules = tuple(filter(None, _module_changes(before.modules, after.modules)))
    return Difference(
        old=before.release,
        new=after.release,
        versions=_versions(before, after),
        modules=modules,
        names=_pairs(before.leads, after.leads, sorted(before.leads)),
        tasks=_task_changes(before.tasks, after.tasks),
        files=tuple(_file_changes(old, new, modules)),
    )


def _versions(before: Manifest, after: Manifest) -> dict[str, Pair]:
    """Compare what releases are for; one that does not exist is for nothing."""
    old, new = _stated_versions(before), _stated_versions(after)
    return _pairs(old, new, dict.fromkeys((*new, *old)))


def _stated_versions(manifest: Manifest) -> dict[str, str]:
    stacks = {name: " ".join(versions) for name, versions in manifest.stacks.items()}
    values = {"site": manifest.site, "platform": manifest.platform, **stacks}
    return {name: text for name, text in values.items() if text}


def _pairs(old: Mapping[str, str], new: Mapping[str, str], names: Iterable[str] | None = None) -> dict[str, Pair]:
    every = sorted({*old, *new}) if names is None else names
    pairs = {name: Pair(old.get(name), new.get(name)) for name in every}
    return {name: pair for name, pair in pairs.items() if pair.old != pair.new}


def _task_changes(
    old: Mapping[str, Mapping[str, str]], new: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[str, Pair]]:
    """Compare what the helper does, group by group."""
    changes = {group: _pairs(old.get(group, {}), new.get(group, {})) for group in dict.fromkeys((*new, *old))}
    return {group: pairs for group, pairs in changes.items() if pairs}


def _list_changes(old: ModuleSummary, new: ModuleSummary) -> dict[str, ListChange]:
    """Compare the lists of two versions of a module; order and repetition do not count."""
    changes = {}
    for name in _LISTS:
        before, after = dict.fromkeys(getattr(old, name)), dict.fromkeys(getattr(new, name))
        if before.keys() != after.keys():
            added = tuple(item for item in after if item not in before)
            changes[name] = ListChange(added, tuple(item for item in before if item not in after))
    return changes


def _module_changes(old: Mapping[str, ModuleSummary], new: Mapping[str, ModuleSummary]) -> Iterator[ModuleChange]:
    before, after = _by_name(old), _by_name(new)
    for name in sorted({*before, *after}):
        olds, news = before[name], after[name]
        if len(olds) == len(news) == 1:
            pairs = [(*olds, *news)]
        else:
            pairs = [(v if v in olds else "", v if v in news else "") for v in sorted({*olds, *news})]
        for old_version, new_version in pairs:
            before_it, after_it = olds.get(old_version, ModuleSummary()), news.get(new_version, ModuleSummary())
            lists = _list_changes(before_it, after_it)
            environment = _pairs(before_it.environment, after_it.environment)
            yield ModuleChange(name, old_version, new_version, lists, environment)


def _by_name(modules: Mapping[str, ModuleSummary]) -> defaultdict[str, dict[str, ModuleSummary]]:
    grouped: defaultdict[str, dict[str, ModuleSummary]] = defaultdict(dict)
    for full_name, module in modules.items():
        name, _, version = full_name.rpartition("/")
        grouped[name][version] = module
    return grouped


def _file_changes(old: RenderedTree | None, new: RenderedTree, modules: Iterable[ModuleChange]) -> Iterator[FileChange]:
    """Yield the files that differ; where only the version of a module is new, its file is compared with the old one."""
    before, after = _files(old) if old else {}, _files(new)
    renamed = {
        MODULEFILE.format(f"{module.name}/{module.new}"): MODULEFILE.format(f"{module.name}/{module.old}")
        for module in modules
        if module.old and module.new and module.old != module.new
    }
    renamed = {path: name for path, name in renamed.items() if path in after and name in before}
    for path in sorted({*before, *after} - {*renamed.values()}):
        name = renamed.get(path, path)
        was, now = before.get(name), after.get(path)
        if was is None or now is None:
            kind = "new" if was is None else "removed"
        else:
            kind = "changed" if was[0] != now[0] else "renamed" if name != path else "mode" if was != now else ""
        if kind:
            yield FileChange(kind, name if was else None, path if now else None, _unified(kind, name, path, was, now))


def _files(tree: RenderedTree) -> dict[str, tuple[bytes, str]]:
    """Return the content of each file, with the release's id blanked, and its mode: `0644`, `0755` or `link`."""
    release, modes = tree.manifest.release.encode(), tree.manifest.files
    return {
        path: (content.replace(release, b"<release>") if release else content, modes[path].mode)
        for path, content in tree.contents.items()
        if path != MANIFEST
    }


def _unified(
    kind: str, name: str, path: str, was: tuple[bytes, str] | None, now: tuple[bytes, str] | None
) -> list[str]:
    """Return the unified diff of a file."""
    a, b = f"a/{printable(name)}" if was else "/dev/null", f"b/{printable(path)}" if now else "/dev/null"
    contents = [side[0] if side else b"" for side in (was, now)]
    if max(content.count(b"\n") for content in contents) > _MOST_LINES_COMPARED:
        return [f"{a} and {b} differ, in too many lines to be compared"]
    lines = [f"renamed {a} -> {b}"] if kind == "renamed" else []
    if was and now and was[1] != now[1]:
        lines.append(f"mode {b}: {was[1]} -> {now[1]}")
    old, new = map(_lines_of, contents)
    return [*lines, *difflib.unified_diff(old, new, a, b, lineterm="")]


def _lines_of(content: bytes) -> list[str]:
    *lines, last = content.decode(errors="backslashreplace").split("\n")
    return [*lines, last + "\\ no newline at end of file"] if last else lines


def to_json(difference: Difference) -> dict[str, Any]:
    """Return the difference as JSON values; an absent side is null."""
    return {
        "different": bool(difference),
        "old": difference.old or None,
        "new": difference.new,
        "versions": {name: pair._asdict() for name, pair in difference.versions.items()},
        "modules": [
            {
                "name": module.name,
                "old": module.old or None,
                "new": module.new or None,
                **{key: change._asdict() for key, change in module.lists.items()},
                "environment": {name: pair._asdict() for name, pair in module.environment.items()},
            }
            for module in difference.modules
        ],
        "names": {name: pair._asdict() for name, pair in difference.names.items()},
        "tasks": {
            group: {name: pair._asdict() for name, pair in pairs.items()} for group, pairs in difference.tasks.items()
        },
        "files": [
            {"what": change.kind, "old": change.old, "new": change.new, "diff": "\n".join(change.diff)}
            for change in difference.files
        ],
    }
