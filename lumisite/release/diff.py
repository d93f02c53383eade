"""What a rendered tree would change, by meaning and by file. Nothing here reads or writes.

The id of a release stands in its files; it is blanked before they are compared, so that a file which differs
in nothing else is the same. Inputs and the version of lumisite are no difference either while they render to
the same tree.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lumisite.errors import shown
from lumisite.release.tree import Tree
from lumisite.render.manifest import MANIFEST, NO_MANIFEST, Manifest, ModuleSummary

_LISTS = ("binds", "provides", "loads", "conflicts")
_MOST_LINES_OF_A_FILE = 60
_MOST_LINES = 600


class Pair(NamedTuple):
    """What something was and is; `None` where it was not or is not there."""

    old: str | None
    new: str | None


@dataclass(frozen=True)
class ListChange:
    """What a list has gained and lost, each in its own order."""

    added: tuple[str, ...]
    removed: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)


@dataclass(frozen=True)
class ModuleChange:
    """One module; `old` and `new` are its versions, and the one that does not exist is empty."""

    name: str
    old: str
    new: str
    lists: Mapping[str, ListChange]
    environment: Mapping[str, Pair]

    def __bool__(self) -> bool:
        return self.old != self.new or any(self.lists.values()) or bool(self.environment)


@dataclass(frozen=True)
class FileChange:
    """One file with its contents, release ids blanked; the side that does not have it is `None`.

    A file whose module got a new version is the same file under a new name. Modes are `0644` or `0755`.
    """

    old_path: str
    new_path: str
    old: bytes | None
    new: bytes | None
    old_mode: str = ""
    new_mode: str = ""

    @property
    def what(self) -> str:
        """`new`, `removed`, `renamed`, `changed` or `mode`."""
        if self.old is None:
            return "new"
        if self.new is None:
            return "removed"
        if self.old != self.new:
            return "changed"
        return "renamed" if self.old_path != self.new_path else "mode"


@dataclass(frozen=True)
class Difference:
    """Everything that differs between the release `old` (empty: there is none) and `new`.

    `provenance` names what differs without an effect: inputs and the version of lumisite.
    """

    old: str
    new: str
    versions: Mapping[str, Pair] = field(default_factory=dict)
    modules: tuple[ModuleChange, ...] = ()
    settings: Mapping[str, ListChange] = field(default_factory=dict)
    files: tuple[FileChange, ...] = ()
    provenance: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.versions or self.modules or self.settings or self.files)


def compare(old: Tree | None, new: Tree) -> Difference:
    """Compare two trees; without an old one, everything of the new one is new."""
    before, contents = (old.manifest, old.contents) if old else (NO_MANIFEST, {})
    after = new.manifest
    modules = tuple(module for module in _module_changes(before.modules, after.modules) if module)
    return Difference(
        old=before.release,
        new=after.release,
        versions=_version_changes(before, after),
        modules=modules,
        settings={
            name: change
            for name in sorted({*before.settings, *after.settings})
            if (change := _list_change(before.settings.get(name, ()), after.settings.get(name, ())))
        },
        files=tuple(_file_changes(before, contents, new, _renamed_files(modules))),
        provenance=tuple(_provenance(before, after)),
    )


def _version_changes(before: Manifest, after: Manifest) -> dict[str, Pair]:
    pairs = {
        "site": (before.site, after.site),
        "platform": (before.platform, after.platform),
        "cpe": (" ".join(before.cpe), " ".join(after.cpe)),
        "rocm": (" ".join(before.rocm), " ".join(after.rocm)),
    }
    return {name: Pair(old or None, new or None) for name, (old, new) in pairs.items() if old != new}


def _provenance(before: Manifest, after: Manifest) -> Iterator[str]:
    if before.release and before.lumisite != after.lumisite:
        yield f"lumisite {before.lumisite} -> {after.lumisite}"
    for name in sorted({*before.inputs, *after.inputs}):
        if before.release and before.inputs.get(name) != after.inputs.get(name):
            yield name


def _list_change(old: Sequence[str], new: Sequence[str]) -> ListChange:
    before, after = set(old), set(new)
    return ListChange(
        added=tuple(item for item in new if item not in before),
        removed=tuple(item for item in old if item not in after),
    )


def _module_changes(old: Mapping[str, ModuleSummary], new: Mapping[str, ModuleSummary]) -> Iterator[ModuleChange]:
    before, after = _by_name(old), _by_name(new)
    for name in sorted({*before, *after}):
        olds, news = before[name], after[name]
        if len(olds) == len(news) == 1:
            pairs = [(*olds, *news)]
        else:
            pairs = [(one if one in olds else "", one if one in news else "") for one in sorted({*olds, *news})]
        for was, is_now in pairs:
            yield _module_change(name, was, is_now, olds.get(was, ModuleSummary()), news.get(is_now, ModuleSummary()))


def _by_name(modules: Mapping[str, ModuleSummary]) -> defaultdict[str, dict[str, ModuleSummary]]:
    grouped: defaultdict[str, dict[str, ModuleSummary]] = defaultdict(dict)
    for full_name, module in modules.items():
        name, _, version = full_name.rpartition("/")
        grouped[name][version] = module
    return grouped


def _module_change(name: str, old: str, new: str, was: ModuleSummary, is_now: ModuleSummary) -> ModuleChange:
    return ModuleChange(
        name,
        old,
        new,
        lists={key: _list_change(getattr(was, key), getattr(is_now, key)) for key in _LISTS},
        environment={
            variable: Pair(was.environment.get(variable), is_now.environment.get(variable))
            for variable in sorted({*was.environment, *is_now.environment})
            if was.environment.get(variable) != is_now.environment.get(variable)
        },
    )


def _renamed_files(modules: Iterable[ModuleChange]) -> dict[str, str]:
    """Map the new name of a modulefile to the old one where only its version is new."""
    return {
        f"modules/{module.name}/{module.new}.lua": f"modules/{module.name}/{module.old}.lua"
        for module in modules
        if module.old and module.new and module.old != module.new
    }


def _file_changes(
    before: Manifest, contents: Mapping[str, bytes], new: Tree, renamed: Mapping[str, str]
) -> Iterator[FileChange]:
    after = new.manifest
    old_texts, new_texts = _blanked(contents, before.release), _blanked(new.contents, after.release)
    paired = {path: old for path, old in renamed.items() if path in new_texts and old in old_texts}
    for path in sorted({*old_texts, *new_texts} - {*paired.values()}):
        old_path = paired.get(path, path)
        old_entry, new_entry = before.files.get(old_path), after.files.get(path)
        change = FileChange(
            old_path,
            path,
            old_texts.get(old_path),
            new_texts.get(path),
            old_entry.mode if old_entry else "",
            new_entry.mode if new_entry else "",
        )
        if change.old != change.new or change.old_mode != change.new_mode or old_path != path:
            yield change


def _blanked(contents: Mapping[str, bytes], release: str) -> dict[str, bytes]:
    return {
        path: content.replace(release.encode(), b"<release>") if release else content
        for path, content in contents.items()
        if path != MANIFEST
    }


def meaning_lines(difference: Difference) -> list[str]:
    """Say what changes for users, one line for each thing."""
    lines = [f"{name}: {_changed(*pair)}" for name, pair in difference.versions.items()]
    lines += [_module_line(module) for module in difference.modules]
    lines += [f"setting {name}: {_list_text(change)}" for name, change in difference.settings.items()]
    return lines


def summary(difference: Difference) -> str:
    """Say in one line what changes."""
    parts = [f"{name} {_changed(*pair)}" for name, pair in difference.versions.items()]
    parts += [_counted(len(difference.modules), "module"), _counted(len(difference.settings), "setting")]
    parts.append(_counted(len(difference.files), "file"))
    return ", ".join(part for part in parts if part) or "no difference"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count > 1 else ''}" if count else ""


def _module_line(module: ModuleChange) -> str:
    parts = []
    if not module.old:
        parts.append("new module")
    if not module.new:
        return f"{module.name}/{module.old}: removed"
    seen: set[str] = set()
    for key, change in module.lists.items():
        # A path that is bound and provided at once is one path to the reader.
        label = "" if key in ("binds", "provides") else f"{key} "
        for sign, items in (("+", change.added), ("-", change.removed)):
            texts = [f"{label}{sign} {_text(item)}" for item in items]
            parts += [text for text in texts if text not in seen]
            seen.update(texts)
    parts += [f"{name}: {_changed(*pair)}" for name, pair in module.environment.items()]
    versions = module.new if module.old in ("", module.new) else f"{module.old} -> {module.new}"
    return f"{module.name}/{versions}: {', '.join(parts) or 'the same under a new version'}"


def _list_text(change: ListChange) -> str:
    if len(change.added) <= 1 and len(change.removed) <= 1:
        return _changed(next(iter(change.removed), None), next(iter(change.added), None))
    parts = [f"+ {_text(item)}" for item in change.added] + [f"- {_text(item)}" for item in change.removed]
    return ", ".join(parts)


def _changed(old: str | None, new: str | None) -> str:
    return f"{_text(old)} -> {_text(new)}"


def _text(value: str | None) -> str:
    return "(none)" if value is None else shown(value)


def file_lines(difference: Difference, *, full: bool = False) -> list[str]:
    """Give a unified diff of every file that differs.

    Without `full`, long diffs are cut, and new and removed files are only named.
    """
    lines: list[str] = []
    for count, change in enumerate(difference.files):
        if not full and len(lines) >= _MOST_LINES:
            lines.append(f"... and {len(difference.files) - count} more files (--full shows all)")
            break
        part = _unified(change, full=full)
        if not full and len(part) > _MOST_LINES_OF_A_FILE:
            cut = len(part) - _MOST_LINES_OF_A_FILE
            part[_MOST_LINES_OF_A_FILE:] = [f"... {cut} more lines (--full shows all)"]
        lines += part
    return lines


def _unified(change: FileChange, *, full: bool) -> list[str]:
    old, new = _lines_of(change.old), _lines_of(change.new)
    a, b = f"a/{shown(change.old_path)}", f"b/{shown(change.new_path)}"
    if change.what == "new" and not full:
        return [f"new {b} ({len(new)} lines)"]
    if change.what == "removed" and not full:
        return [f"removed {a} ({len(old)} lines)"]
    lines = [f"renamed {a} -> {b}"] if change.what == "renamed" else []
    if change.old_mode and change.new_mode and change.old_mode != change.new_mode:
        lines.append(f"mode {b}: {change.old_mode} -> {change.new_mode}")
    if change.what in ("new", "removed", "changed"):
        a, b = ("/dev/null" if change.old is None else a), ("/dev/null" if change.new is None else b)
        lines += difflib.unified_diff(old, new, a, b, lineterm="")
    return lines


def _lines_of(content: bytes | None) -> list[str]:
    if not content:
        return []
    lines = content.decode(errors="backslashreplace").split("\n")
    if lines[-1] == "":
        return lines[:-1]
    return [*lines[:-1], lines[-1] + "\\ no newline at end of file"]


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
                **{key: vars(change) for key, change in module.lists.items() if change},
                "environment": {name: pair._asdict() for name, pair in module.environment.items()},
            }
            for module in difference.modules
        ],
        "settings": {name: vars(change) for name, change in difference.settings.items()},
        "files": [
            {
                "what": change.what,
                "old": change.old_path if change.old is not None else None,
                "new": change.new_path if change.new is not None else None,
                "diff": "\n".join(_unified(change, full=True)),
            }
            for change in difference.files
        ],
        "provenance": list(difference.provenance),
    }
