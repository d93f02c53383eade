"""What rules between keys are written with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lumisite.site.decode import suggestion

#: The key path and the message of each fault.
Faults = Iterator[tuple[str, str]]


def unknown(path: str, names: Iterable[str], known: Iterable[str]) -> Faults:
    """Say which names are not among those that are described."""
    known = list(known)
    for name in names:
        if name not in known:
            yield path, f"{name} is not described ({suggestion(name, known)})"


def is_file_name(text: str) -> bool:
    """Tell whether a text can be a file's name in any shell and any tool."""
    return text not in ("", ".", "..") and not text.startswith((".", "-")) and not set(text) & set("/\\ \t'\"")
