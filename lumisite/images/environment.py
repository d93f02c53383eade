"""What the environment scripts of an image set, its library path above all, as far as that is known without running it.

Read are assignments, `export`, `unset` and the usual expansions, as builders of images write them; every line counts as
run. Written here: the parsers of shell on PyPI are under the GPL, or only split words. Source: POSIX.1-2017, chapter 2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from lumisite.machine.tree import Tree, names_of, resolve, text_of

_VARIABLE = "LD_LIBRARY_PATH"
_ENVIRONMENT = "/.singularity.d/env"
#: Where runtimes put host libraries, by a flag for GPUs.
RUNTIME_LIBRARIES = "/.singularity.d/libs"
#: Scripts that runtimes put into every image; what they do to LD_LIBRARY_PATH is to append their own directory.
_OF_RUNTIMES = ("01-", "94-", "95-", "99-")


def library_path(image: Tree) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return LD_LIBRARY_PATH as an image's own environment sets it, and what of that could not be worked out.

    Read are the scripts that builds write (`%environment`, and ENV of a Docker image); the runtime's own append its
    directory of injected libraries. An image without such scripts sets nothing.
    """
    folder = resolve(image, _ENVIRONMENT)
    if folder.entry is None or folder.entry.kind != "directory":
        return (), ()
    values = variables_of(image)
    parts = [part for part in re.split("[:;]", values[_VARIABLE]) if part]
    unknown = tuple(part.replace(UNKNOWN, "") for part in parts if not part.startswith("/") or UNKNOWN in part)
    return (*(part for part in parts if part.startswith("/") and UNKNOWN not in part), RUNTIME_LIBRARIES), unknown


def variables_of(image: Tree, before: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables `before` after the scripts of an image; what is not known begins with UNKNOWN."""
    values = {_VARIABLE: "", **(before or {})}
    for name in names_of(image, _ENVIRONMENT, None):
        if name.endswith(".sh") and not name.startswith(_OF_RUNTIMES):
            evaluate(text_of(image, f"{_ENVIRONMENT}/{name}") or "", values)
            values.setdefault(_VARIABLE, "")
    return values


#: Begins what is not known: a command, or a variable that no script sets.
UNKNOWN = "\0"
#: More than builders nest; deeper ones are not known.
_DEEPEST = 40
_BETWEEN_COMMANDS = "\n;&|()"
_BETWEEN_WORDS = " \t\r" + _BETWEEN_COMMANDS
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=")
#: `$NAME`, or the begin of `${NAME}`, with one of the operators that ask whether it is set.
_PARAMETER = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?:(:?[-+])|(?=\})))")


def evaluate(script: str, values: dict[str, str]) -> None:
    """Carry out the assignments of a script on `values`: those with which a command begins, or after `export`."""
    at = 0
    command: str | None = None
    while at < len(script):
        if script[at] in _BETWEEN_WORDS:
            if script[at] in _BETWEEN_COMMANDS:
                command = None
            at += 1
            continue
        if script[at] == "#":
            end = script.find("\n", at)
            at = len(script) if end < 0 else end
            continue
        assigned = _ASSIGNED.match(script, at) if command in (None, "export") else None
        word, at = _expanded(script, at if assigned is None else assigned.end(), values, _BETWEEN_WORDS)
        if assigned is not None:
            values[assigned[1]] = word
        elif command == "unset":
            values.pop(word, None)
        elif command is None:
            command = word


def _expanded(
    text: str, at: int, values: Mapping[str, str], stops: str, depth: int = 0, *, quoted: bool = False
) -> tuple[str, int]:
    """Expand what stands before one of `stops`, and remove its quotes; return it and where it ends."""
    parts: list[str] = []
    while at < len(text) and text[at] not in stops:
        if depth == _DEEPEST:
            return UNKNOWN, len(text)
        part, at = _part(text, at, values, depth, quoted=quoted)
        parts.append(part)
    return "".join(parts), at


def _part(text: str, at: int, values: Mapping[str, str], depth: int, *, quoted: bool) -> tuple[str, int]:
    """Expand one sign, one quoted text, or one expansion; return it and where it ends."""
    sign = text[at]
    if sign == "\\":
        return text[at + 1 : at + 2].removesuffix("\n"), at + 2
    if sign == '"':
        part, end = _expanded(text, at + 1, values, '"', depth + 1, quoted=True)
        return part, end + 1
    if sign == "`" or (sign == "'" and not quoted):
        end = text.find(sign, at + 1) + 1 or len(text)
        return (text[at + 1 : end].removesuffix("'") if sign == "'" else UNKNOWN + text[at:end]), end
    if sign != "$":
        return sign, at + 1
    match = _PARAMETER.match(text, at)
    if match is None:
        closing = {"${": "}", "$(": ")"}.get(text[at : at + 2])
        end = at + 1 if closing is None else _expanded(text, at + 2, {}, closing, depth + 1)[1] + 1
        return UNKNOWN + text[at:end], end
    name, operator = match[1] or match[2], match[3] or ""
    value = values.get(name)
    missing = value is None or (operator.startswith(":") and not value)
    end = match.end()
    if not match[1]:
        used = missing != operator.endswith("+")
        word, end = _expanded(text, end, values if used else {}, "}", depth + 1, quoted=quoted)
        end += 1
        if operator.endswith("+"):
            return ("" if missing else word), end
        if missing and operator.endswith("-"):
            value = word
    return UNKNOWN + text[at:end] if value is None else value, end
