"""The text of a difference between two releases, for `diff`, `deploy` and `rollback`."""

from __future__ import annotations

from collections import Counter, defaultdict

from lumisite.release.diff import Difference, ListChange, ModuleChange, unified
from lumisite.text import counted, printable, some

_MOST_LINES_OF_A_FILE = 60
#: Of a summary: with the lines around it, a terminal of 24 lines and 100 columns holds it.
_MOST_LINES, _LINE = 14, 100


def meaning_lines(difference: Difference) -> list[str]:
    """Return what changes for users, one line for each thing."""
    lines = [*_version_lines(difference), *map(_module_line, difference.modules)]
    for name, change in difference.settings.items():
        if max(map(len, change)) <= 1:
            old, new = (next(iter(values), None) for values in (change.removed, change.added))
            lines.append(f"setting {name}: {_changed(old, new)}")
        else:
            lines.append(f"setting {name}: {', '.join(_signed(change))}")
    return [*lines, *_name_lines(difference)]


def summary_lines(difference: Difference) -> list[str]:
    """Return what users will notice, the rest in numbers: as much as fits on a screen."""
    meaning = [*_version_lines(difference), *_name_lines(difference), *map(_module_line, difference.modules)]
    lines = [line if len(line) <= _LINE else f"{line[: _LINE - 2]} …" for line in meaning[:_MOST_LINES]]
    if len(meaning) > _MOST_LINES:
        lines.append(f"and {len(meaning) - _MOST_LINES} more")
    if difference.settings:
        names = some([*difference.settings], 3, ", ")
        lines.append(f"{counted(len(difference.settings), 'setting')} of tasks: {names}")
    kinds = Counter(change.kind for change in difference.files)
    if kinds:
        counts = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common())
        lines.append(f"{counted(kinds.total(), 'file')}: {counts}")
    return lines


def _name_lines(difference: Difference) -> list[str]:
    """Return a line for each module of which names that users may have typed lead to another module now."""
    led: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for name, (_, to) in difference.names.items():
        if to not in (None, name):
            module, _, version = name.rpartition("/")
            led[printable(module or name), to or ""].append(printable(version) if module else "(default)")
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
