"""The text of a difference between two releases, for `deploy` and `rollback`: what goes and what comes, a line each."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from lumisite.release.diff import Difference, ModuleChange, Pair
from lumisite.text import counted, printable

#: Of a summary: with the lines around it, a terminal of 24 lines holds it.
_MOST_LINES = 16
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


def meaning_lines(difference: Difference) -> list[str]:
    """Return what changes for users: what goes begins with `-`, what comes with `+`."""
    lines = [line for name, pair in difference.versions.items() for line in _both(name, pair)]
    lines += _name_lines(difference)
    lines += [line for module in difference.modules for line in _module_lines(module)]
    groups = [group for group in (*_LABELS, *difference.tasks.keys() - _LABELS.keys()) if group in difference.tasks]
    for group in groups:
        for name, pair in difference.tasks[group].items():
            # What a module has gained or lost is in the module's own lines.
            if group != "module_binds" or None not in pair:
                lines += _both(f"{_LABELS.get(group, group)} {printable(name)}", pair)
    return lines


def summary_lines(difference: Difference) -> list[str]:
    """Return what users will notice, as many lines as fit on a screen, and the files in numbers."""
    meaning = meaning_lines(difference)
    lines = meaning[:_MOST_LINES]
    if len(meaning) > _MOST_LINES:
        lines.append(f"and {counted(len(meaning) - _MOST_LINES, 'more line')}")
    kinds = Counter(change.kind for change in difference.files)
    if kinds:
        counts = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common())
        lines.append(f"{counted(kinds.total(), 'file')}: {counts}")
    return lines


def _both(name: str, pair: Pair) -> list[str]:
    """Return the line of what goes and that of what comes."""
    sides = (("-", pair.old), ("+", pair.new))
    return [f"{sign} {name}: {printable(side)}" for sign, side in sides if side is not None]


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


def _module_lines(module: ModuleChange) -> Iterator[str]:
    """Yield the versions that go and come, and what a module that stays no longer has and now has."""
    old, new = f"module {module.name}/{module.old}", f"module {module.name}/{module.new}"
    if module.old and module.old != module.new:
        yield f"- {old}"
    if module.new and module.old != module.new:
        yield f"+ {new}"
    if not module.new:
        return
    # A path that is bound and provided at once is one path to the reader.
    yield from dict.fromkeys(
        f"{begin}: {'' if key in ('binds', 'provides') else f'{key} '}{printable(item)}"
        for key, change in module.lists.items()
        for begin, items in ((f"- {old}", change.removed), (f"+ {new}", change.added))
        for item in items
    )
    for name, pair in module.environment.items():
        for begin, value in ((f"- {old}", pair.old), (f"+ {new}", pair.new)):
            if value is not None:
                yield f"{begin}: {name}: {printable(value)}"


def file_lines(difference: Difference) -> list[str]:
    """Return a unified diff of every file that differs."""
    return [line for change in difference.files for line in change.diff]
