"""What a maintenance changed, from the facts of the machine before and after it: any two JSON objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

#: Values longer than this are cut.
VALUE_SHOWN = 80
#: What entries of a list are told apart by, where they have it.
KEYS = ("name", "path", "soname", "id", "address")


@dataclass(frozen=True)
class Change:
    """One fact that is not what it was; a side that lacks it is empty."""

    fact: str
    before: str
    after: str


def changes(before: Mapping[str, object] | None, after: Mapping[str, object] | None) -> tuple[Change, ...]:
    """Compare facts; nothing is said where one side has none."""
    if before is None or after is None:
        return ()
    old, new = dict(_leaves("", before)), dict(_leaves("", after))
    return tuple(
        Change(fact, old.get(fact, ""), new.get(fact, ""))
        for fact in sorted({*old, *new})
        if old.get(fact, "") != new.get(fact, "")
    )


def _leaves(path: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(f"{path}.{key}" if path else str(key), inner)
    elif isinstance(value, Sequence) and not isinstance(value, str) and any(isinstance(v, Mapping) for v in value):
        for number, inner in enumerate(value):
            yield from _leaves(f"{path}[{_label(inner, number)}]", inner)
    else:
        yield path, _shown(value)


def _label(entry: object, number: int) -> str:
    if isinstance(entry, Mapping):
        for key in KEYS:
            if isinstance(entry.get(key), str | int):
                return str(entry[key])
    return str(number)


def _shown(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)
    return text if len(text) <= VALUE_SHOWN else text[: VALUE_SHOWN - 1] + "…"
