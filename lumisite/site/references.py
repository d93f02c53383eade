"""Values that refer to others of the same file: `={fabric.interfaces}` is a list of theirs, joined by commas."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from lumisite.errors import UnfitError
from lumisite.site.yaml import Document
from lumisite.text import suggestion

#: A value that is filled in, without its `=`: one that begins with `=` and has a name in braces.
_FILLED = re.compile(r"=(.*\{[A-Za-z_][^{}]*\}.*)", re.DOTALL)
#: What a shell would fill in, which nothing does here.
_SHELL = re.compile(r"\$(?:[A-Za-z_{(][\w]*)|`")
#: What makes a pattern, or a list, of a path.
PATTERN_SIGNS = "*?;"


def with_references(document: Document, keys: Collection[str]) -> None:
    """Fill in the values of settings; what cannot be filled in is a fault, and stays.

    A reference to one of the `keys` of a description which the file lacks is no fault of its own.
    """
    settings = document.value.get("settings")
    for index, setting in enumerate(settings if isinstance(settings, list) else ()):
        value = setting.get("value") if isinstance(setting, dict) else None
        if isinstance(value, str) and (match := _FILLED.fullmatch(value)):
            path = f"settings[{index}].value"
            if any(name in keys and name not in document.value for name in re.findall(r"\{(\w+)", match[1])):
                continue
            try:
                filled = re.sub(r"\{([A-Za-z_][^{}]*)\}", lambda found: _text(document.value, found[1]), match[1])
            except UnfitError as error:
                document.add(error.finding(path))
            else:
                settings[index] = {**setting, "value": filled}


def shell_sign(text: str, more: str = "") -> str:
    """Return the first sign of a text by which a shell would fill something in, or one of `more`; empty where none is.

    >>> shell_sign("/users/${USER}"), shell_sign("US$ 5"), shell_sign("/lib/libcuda*", "*?")
    ('${USER', '', '*')
    """
    found = _SHELL.search(text)
    return found[0] if found else next((sign for sign in text if sign in more), "")


def _text(whole: dict[str, Any], path: str) -> str:
    """Return the text of the value at a key path."""
    value: Any = whole
    rest = path
    while rest:
        if isinstance(value, dict):
            # Names may have dots: the longest that fits is meant.
            ends = [*(match.start() for match in re.finditer(r"[.[]", rest)), len(rest)]
            name = next((rest[:end] for end in reversed(ends) if rest[:end] in value), None)
            if name is None:
                raise UnfitError(f"unknown reference {{{path}}}", suggestion(rest.split(".")[0], value))
            value, rest = value[name], rest[len(name) :].removeprefix(".")
        else:
            match = re.match(r"\[([0-9]{1,3})\]\.?", rest) if isinstance(value, list) else None
            if match is None or int(match[1]) >= len(value):
                raise UnfitError(f"unknown reference {{{path}}}", "name a key, or an entry of a list: {gpus[0].numa}")
            value, rest = value[int(match[1])], rest[match.end() :]
    texts = value if isinstance(value, list) and value else [value]
    if not all(isinstance(text, str) and not _FILLED.fullmatch(text) for text in texts):
        raise UnfitError(f"{{{path}}} is neither a value nor a list of values", "name a key below it")
    return ",".join(texts)
