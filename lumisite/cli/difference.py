"""The text of a difference between two releases, for `deploy` and `rollback`."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

from lumisite.release.diff import Difference, ListChange, ModuleChange, unified
from lumisite.text import counted, printable, some

_MOST_LINES_OF_A_FILE = 60
#: Of a summary: with the lines around it, a terminal of 24 lines and 100 columns holds it.
_MOST_LINES, _LINE = 14, 100
#: So many of these are for what the helper does to tasks, where it has as many changes.
_LEAST_OF_TASKS = 6
#: What an entry of a group of tasks' changes is called, in the order of lines.
_LABELS = {
    "binds": "bind",
    "module_binds": "bind",
    "settings": "setting",
    "places": "place for caches",
    "partitions": "partition",
    "node_kinds": "node kind",
    "cpus": "CPU list",
    "families": "image family",
    "images": "image",
    "plans": "plan",
    "runtimes": "runtime",
}


class _Entry(NamedTuple):
    """A change of what the helper does to tasks: what it is of, its name, and both sides as one text."""

    label: str
    name: str
    old: str
    new: str

    def line(self, width: int = 0) -> str:
        """Return it as a line; one that is wider than `width`, if that is given, keeps what differs."""
        begin = f"{self.label} {self.name}: "
        text = f"{begin}{self.old} -> {self.new}"
        if not width or len(text) <= width:
            return text
        room = max(width - len(begin) - len(" -> "), 24) // 2
        return f"{begin}{' -> '.join(_cut(side, _first_difference(self.old, self.new), room) for side in self[2:])}"


def meaning_lines(difference: Difference) -> list[str]:
    """Return what changes for users, one line for each thing."""
    lines = [*_version_lines(difference), *map(_module_line, difference.modules)]
    lines += [entry.line() for entry in _entries(difference)]
    return [*lines, *_name_lines(difference)]


def summary_lines(difference: Difference) -> list[str]:
    """Return what users will notice, the rest in numbers: as much as fits on a screen."""
    meaning = [*_version_lines(difference), *_name_lines(difference), *map(_module_line, difference.modules)]
    entries = _entries(difference)
    most = max(_MOST_LINES - len(entries), _MOST_LINES - _LEAST_OF_TASKS)
    lines = [_cut(line, 0, _LINE) for line in meaning[:most]]
    if len(meaning) > most:
        lines.append(f"and {len(meaning) - most} more")
    shown = entries[: _MOST_LINES - min(len(meaning), most)]
    lines += [_cut(entry.line(_LINE), 0, _LINE) for entry in shown]
    if len(shown) < len(entries):
        lines.append(_cut(_counts(entries), 0, _LINE))
    kinds = Counter(change.kind for change in difference.files)
    if kinds:
        counts = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common())
        lines.append(f"{counted(kinds.total(), 'file')}: {counts}")
    return lines


def _entries(difference: Difference) -> list[_Entry]:
    """Return what changes for tasks; of an older release only the settings are known, each as one text.

    What a module has gained or lost is in the module's own line.
    """
    if not difference.tasks:
        return [_Entry("setting", name, *_sides(change)) for name, change in difference.settings.items()]
    groups = [group for group in (*_LABELS, *difference.tasks.keys() - _LABELS.keys()) if group in difference.tasks]
    return [
        _Entry(_LABELS.get(group, group), printable(name), _text(pair.old), _text(pair.new))
        for group in groups
        for name, pair in difference.tasks[group].items()
        if group != "module_binds" or None not in pair
    ]


def _counts(entries: list[_Entry]) -> str:
    labels = Counter(entry.label for entry in entries)
    text = ", ".join(counted(number, label) for label, number in labels.items())
    names = f": {some([entry.name for entry in entries], 3, ', ')}" if len(labels) == 1 else ""
    return f"{text} of tasks{names}"


def _sides(change: ListChange) -> tuple[str, str]:
    old, new = ("; ".join(map(printable, side)) or _text(None) for side in (change.removed, change.added))
    return old, new


def _first_difference(old: str, new: str) -> int:
    """Return where two texts begin to differ: the begin of that word."""
    number = next((at for at, pair in enumerate(zip(old, new, strict=False)) if len({*pair}) > 1), 0)
    return old.rfind(" ", 0, number) + 1


def _cut(text: str, begin: int, room: int) -> str:
    """Return a text in so much room, from `begin` on where all of it does not fit."""
    if len(text) <= room:
        return text
    text = f"… {text[begin:]}" if begin else text
    return text if len(text) <= room else f"{text[: room - 2]} …"


def _name_lines(difference: Difference) -> list[str]:
    """Return a line for each module of which names that users may have typed lead to another module now."""
    led: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for name, (_, to) in difference.names.items():
        if to not in (None, name):
            module, _, version = name.rpartition("/")
            led[printable(module or name), to].append(printable(version) if module else "(default)")
    lines = []
    for (module, to), names in led.items():
        target = printable(to.removeprefix(f"{module}/")) if to else "removed; loading it prints why"
        lines.append(f"{module}: {', '.join(names)} -> {target}")
    return lines


def _version_lines(difference: Difference) -> list[str]:
    return [f"{name}: {_changed(*pair)}" for name, pair in difference.versions.items()]


def _module_line(module: ModuleChange) -> str:
    if not module.new:
        return f"{module.name}/{module.old}: removed"
    parts = [] if module.old else ["new module"]
    for key, change in module.lists.items():
        label = "" if key in ("binds", "provides") else f"{key} "
        parts += [f"{label}{text}" for text in _signed(change)]
    # A path that is bound and provided at once is one path to the reader.
    parts = [*dict.fromkeys(parts), *(f"{name}: {_changed(*pair)}" for name, pair in module.environment.items())]
    versions = module.new if module.old in ("", module.new) else f"{module.old} -> {module.new}"
    return f"{module.name}/{versions}: {', '.join(parts) or 'same content, new version'}"


def _signed(change: ListChange) -> list[str]:
    return [f"+ {_text(item)}" for item in change.added] + [f"- {_text(item)}" for item in change.removed]


def _changed(old: str | None, new: str | None) -> str:
    return f"{_text(old)} -> {_text(new)}"


def _text(value: str | None) -> str:
    return "(none)" if value is None else printable(value)


def file_lines(difference: Difference, *, full: bool = False) -> list[str]:
    """Return a unified diff of every file that differs.

    Without `full`, long diffs are cut, and new and removed files are only named.
    """
    lines: list[str] = []
    for change in difference.files:
        part = unified(change, full=full)
        if not full and len(part) > _MOST_LINES_OF_A_FILE:
            cut = len(part) - _MOST_LINES_OF_A_FILE
            part[_MOST_LINES_OF_A_FILE:] = [f"... {cut} more lines (--full shows all)"]
        lines += part
    return lines
