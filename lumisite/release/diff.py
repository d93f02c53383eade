"""What a rendered tree would change, by meaning and by file. Nothing here reads or writes.

The id of a release stands in its files; it is blanked before they are compared, so that a file which differs
in nothing else is the same. Inputs and the version of lumisite are no difference either while they render to
the same tree.
"""

from __future__ import annotations

import difflib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lumisite.errors import shown
from lumisite.release.tree import Tree
from lumisite.render.manifest import MANIFEST, NO_MANIFEST, Manifest, ModuleSummary
from lumisite.site.model import MODULEFILES
from lumisite.text import counted, some

_LISTS = ("binds", "provides", "loads", "conflicts")
_MOST_LINES_COMPARED = 100_000  # many times what is rendered: a damaged file must not fill the memory
_MOST_LINES_OF_A_FILE = 60
#: Of a summary: with what is said around it, a terminal of 24 lines and 100 columns holds it.
_MOST_LINES, _LINE = 14, 100


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


class File(NamedTuple):
    """A file of a tree, with the release's id blanked in its `content`; `mode` is `0644` or `0755`."""

    content: bytes
    path: str
    mode: str


@dataclass(frozen=True)
class FileChange:
    """One file; `None` is the side that does not have it.

    A file whose module got a new version is the same file under a new name.
    """

    old: File | None
    new: File | None

    @property
    def what(self) -> str:
        """`new`, `removed`, `renamed`, `changed`, `mode`, or empty where nothing differs."""
        if self.old is None or self.new is None:
            return "new" if self.old is None else "removed"
        pairs = zip(("changed", "renamed", "mode"), self.old, self.new, strict=True)
        return next((what for what, old, new in pairs if old != new), "")


@dataclass(frozen=True)
class Difference:
    """Everything that differs between the release `old` (empty: there is none) and `new`.

    `names` are those that users may have typed, and the modules that each led and leads to.
    """

    old: str
    new: str
    versions: Mapping[str, Pair] = field(default_factory=dict)
    modules: tuple[ModuleChange, ...] = ()
    settings: Mapping[str, ListChange] = field(default_factory=dict)
    names: Mapping[str, Pair] = field(default_factory=dict)
    files: tuple[FileChange, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.versions or self.modules or self.settings or self.names or self.files)


def compare(old: Tree | None, new: Tree) -> Difference:
    """Compare two trees; without an old one, everything of the new one is new."""
    before, after = old.manifest if old else NO_MANIFEST, new.manifest
    modules = tuple(filter(None, _module_changes(before.modules, after.modules)))
    return Difference(
        old=before.release,
        new=after.release,
        versions=_versions(before, after),
        modules=modules,
        settings=_list_changes(before.settings, after.settings),
        names=_pairs(before.leads, after.leads, sorted(before.leads)),
        files=tuple(_file_changes(_files(old) if old else {}, _files(new), modules)),
    )


def _versions(before: Manifest, after: Manifest) -> dict[str, Pair]:
    """Give what releases are for; one that is not there is for nothing."""
    old, new = (
        {"site": one.site, "platform": one.platform, **{name: " ".join(of) for name, of in one.stacks.items()}}
        for one in (before, after)
    )
    given = [{name: text for name, text in one.items() if text} for one in (old, new)]
    return _pairs(given[0], given[1], dict.fromkeys((*new, *old)))


def _pairs(old: Mapping[str, str], new: Mapping[str, str], names: Iterable[str] | None = None) -> dict[str, Pair]:
    every = sorted({*old, *new}) if names is None else names
    pairs = {name: Pair(old.get(name), new.get(name)) for name in every}
    return {name: pair for name, pair in pairs.items() if pair.old != pair.new}


def _list_changes(
    old: Mapping[str, tuple[str, ...]], new: Mapping[str, tuple[str, ...]], names: Iterable[str] = ()
) -> dict[str, ListChange]:
    changes = {}
    for name in names or sorted({*old, *new}):
        before, after = dict.fromkeys(old.get(name, ())), dict.fromkeys(new.get(name, ()))
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
            pairs = [(one if one in olds else "", one if one in news else "") for one in sorted({*olds, *news})]
        for old_version, new_version in pairs:
            was, is_now = olds.get(old_version, ModuleSummary()), news.get(new_version, ModuleSummary())
            lists = _list_changes(vars(was), vars(is_now), _LISTS)
            yield ModuleChange(name, old_version, new_version, lists, _pairs(was.environment, is_now.environment))


def _by_name(modules: Mapping[str, ModuleSummary]) -> defaultdict[str, dict[str, ModuleSummary]]:
    grouped: defaultdict[str, dict[str, ModuleSummary]] = defaultdict(dict)
    for full_name, module in modules.items():
        name, _, version = full_name.rpartition("/")
        grouped[name][version] = module
    return grouped


def _file_changes(
    old: Mapping[str, File], new: Mapping[str, File], modules: Iterable[ModuleChange]
) -> Iterator[FileChange]:
    """Give the files that differ; where only the version of a module is new, its file is compared with the old one."""
    old_names = {
        form.format(f"{one.name}/{one.new}"): form.format(f"{one.name}/{one.old}")
        for form in MODULEFILES.values()
        for one in modules
        if one.old and one.new and one.old != one.new
    }
    renamed = {path: name for path, name in old_names.items() if path in new and name in old}
    for path in sorted({*old, *new} - {*renamed.values()}):
        change = FileChange(old.get(renamed.get(path, path)), new.get(path))
        if change.what:
            yield change


def _files(tree: Tree) -> dict[str, File]:
    release, modes = tree.manifest.release.encode(), tree.manifest.files
    return {
        path: File(content.replace(release, b"<release>") if release else content, path, modes[path].mode)
        for path, content in tree.contents.items()
        if path != MANIFEST
    }


def meaning_lines(difference: Difference) -> list[str]:
    """Say what changes for users, one line for each thing."""
    lines = [*_version_lines(difference), *map(_module_line, difference.modules)]
    for name, change in difference.settings.items():
        one = max(map(len, change)) <= 1  # one value instead of another is told as that
        told = _changed(*(next(iter(values), None) for values in change[::-1])) if one else ", ".join(_signed(change))
        lines.append(f"setting {name}: {told}")
    return [*lines, *name_lines(difference)]


def summary_lines(difference: Difference) -> list[str]:
    """Say what users will notice, the rest in numbers: as much as fits on a screen."""
    meaning = [*_version_lines(difference), *name_lines(difference), *map(_module_line, difference.modules)]
    lines = [one if len(one) <= _LINE else f"{one[: _LINE - 2]} …" for one in meaning[:_MOST_LINES]]
    lines += [f"and {len(meaning) - _MOST_LINES} more"] if len(meaning) > _MOST_LINES else []
    if difference.settings:
        names = some([*difference.settings], 3, ", ")
        lines.append(f"{counted(len(difference.settings), 'setting')} of tasks: {names}")
    kinds = Counter(change.what for change in difference.files)
    if kinds:
        told = ", ".join(f"{number} {what}" for what, number in kinds.most_common())
        lines.append(f"{counted(kinds.total(), 'file')}: {told}")
    return lines


def name_lines(difference: Difference) -> list[str]:
    """Say which names that users may have typed before lead to another module now, a line for each of those."""
    led: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for name, (_, to) in difference.names.items():
        if to not in (None, name):
            module, _, version = name.rpartition("/")
            led[shown(module or name), to or ""].append(shown(version) if module else "(default)")
    gone = "gone, and a load says so"
    return [
        f"{module}: {', '.join(names)} -> {shown(to.removeprefix(f'{module}/')) if to else gone}"
        for (module, to), names in led.items()
    ]


def _version_lines(difference: Difference) -> list[str]:
    return [f"{name}: {_changed(*pair)}" for name, pair in difference.versions.items()]


def _module_line(module: ModuleChange) -> str:
    if not module.new:
        return f"{module.name}/{module.old}: removed"
    parts = [] if module.old else ["new module"]
    for key, change in module.lists.items():
        label = "" if key in ("binds", "provides") else f"{key} "
        parts += [f"{label}{one}" for one in _signed(change)]
    # A path that is bound and provided at once is one path to the reader.
    parts = [*dict.fromkeys(parts), *(f"{name}: {_changed(*pair)}" for name, pair in module.environment.items())]
    versions = module.new if module.old in ("", module.new) else f"{module.old} -> {module.new}"
    return f"{module.name}/{versions}: {', '.join(parts) or 'the same under a new version'}"


def _signed(change: ListChange) -> list[str]:
    return [f"+ {_text(item)}" for item in change.added] + [f"- {_text(item)}" for item in change.removed]


def _changed(old: str | None, new: str | None) -> str:
    return f"{_text(old)} -> {_text(new)}"


def _text(value: str | None) -> str:
    return "(none)" if value is None else shown(value)


def file_lines(difference: Difference, *, full: bool = False) -> list[str]:
    """Give a unified diff of every file that differs.

    Without `full`, long diffs are cut, and new and removed files are only named.
    """
    lines: list[str] = []
    for change in difference.files:
        part = _unified(change, full=full)
        if not full and len(part) > _MOST_LINES_OF_A_FILE:
            cut = len(part) - _MOST_LINES_OF_A_FILE
            part[_MOST_LINES_OF_A_FILE:] = [f"... {cut} more lines (--full shows all)"]
        lines += part
    return lines


def _unified(change: FileChange, *, full: bool) -> list[str]:
    a = f"a/{shown(change.old.path)}" if change.old else "/dev/null"
    b = f"b/{shown(change.new.path)}" if change.new else "/dev/null"
    contents = [side.content if side else b"" for side in (change.old, change.new)]
    if max(content.count(b"\n") for content in contents) > _MOST_LINES_COMPARED:
        return [f"{a} and {b} differ, in too many lines to be compared"]
    old, new = map(_lines_of, contents)
    if change.what == "new" and not full:
        return [f"new {b} ({len(new)} lines)"]
    if change.what == "removed" and not full:
        return [f"removed {a} ({len(old)} lines)"]
    lines = [f"renamed {a} -> {b}"] if change.what == "renamed" else []
    if change.old and change.new and change.old.mode != change.new.mode:
        lines.append(f"mode {b}: {change.old.mode} -> {change.new.mode}")
    return [*lines, *difflib.unified_diff(old, new, a, b, lineterm="")]


def _lines_of(content: bytes) -> list[str]:
    *lines, last = content.decode(errors="backslashreplace").split("\n")
    return [*lines, last + "\\ no newline at end of file"] if last else lines


def to_json(difference: Difference) -> dict[str, Any]:
    """Give the difference as JSON values; an absent side is null."""
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
        "settings": {name: change._asdict() for name, change in difference.settings.items()},
        "names": {name: pair._asdict() for name, pair in difference.names.items()},
        "files": [
            {
                "what": change.what,
                "old": change.old.path if change.old else None,
                "new": change.new.path if change.new else None,
                "diff": "\n".join(_unified(change, full=True)),
            }
            for change in difference.files
        ],
    }
