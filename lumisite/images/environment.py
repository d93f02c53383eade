"""Work out what the shell scripts of an image set, as far as that can be told without running them.

Read are assignments, `export`, `unset` and the usual expansions; every branch counts as taken. Written here: the
parsers of shell on PyPI are under the GPL, or only split words.

Source: chapter 2 of POSIX.1-2017, Shell Command Language (quoting, parameter expansion, simple commands).
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping

#: Stands before what cannot be told: a command, or a variable that no script sets.
UNKNOWN = "\0"
_DEEPEST = 40
#: More than any variable has that a program can be started with (execve(2): 128 KiB for one).
_LONGEST = 128 * 1024
_BETWEEN_COMMANDS = "\n;&|()"
_BETWEEN_WORDS = " \t\r" + _BETWEEN_COMMANDS
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=")
#: `$NAME`, or the begin of `${NAME}`, with one of the operators that ask whether it is set.
_PARAMETER = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?:(:?[-+=?])|(?=\})))")
_DECLARING = ("export", "readonly", "declare", "typeset", "local")
#: Words that a simple command may follow.
_RESERVED = ("if", "then", "else", "elif", "fi", "do", "done", "while", "until", "{", "}", "!", "time", "esac")


def evaluate(script: str, values: MutableMapping[str, str]) -> None:
    """Carry out the assignments of a script on `values`."""
    at = 0
    command: str | None = None
    before: list[tuple[str, str | None]] = []
    while at < len(script):
        if script[at] in _BETWEEN_WORDS:
            if script[at] in _BETWEEN_COMMANDS:
                command, before = None, []
            at += 1
            continue
        if script.startswith("\\\n", at):
            at += 2
            continue
        if script[at] == "#":
            end = script.find("\n", at)
            at = len(script) if end < 0 else end
            continue
        start = at
        assigned = _ASSIGNED.match(script, at)
        word, at = _expanded(script, at if assigned is None else assigned.end(), values, _BETWEEN_WORDS)
        if assigned is not None and (command is None or command in _DECLARING):
            before.append((assigned[1], values.get(assigned[1])))
            values[assigned[1]] = word
        elif command == "unset":
            values.pop(word, None)
        elif command is None and (before or script[start:at] not in _RESERVED):
            command = word
            for name, value in reversed(before):  # what stands before a command is for it alone
                if value is None:
                    del values[name]
                else:
                    values[name] = value


def _expanded(
    text: str, at: int, values: MutableMapping[str, str], stops: str, depth: int = 0, *, quoted: bool = False
) -> tuple[str, int]:
    """Expand what stands before one of `stops`, and remove its quotes; tell where it ends."""
    parts: list[str] = []
    length = 0
    while at < len(text) and text[at] not in stops:
        if depth == _DEEPEST:
            return UNKNOWN, len(text)
        part, at = _part(text, at, values, depth, quoted=quoted)
        length += len(part)
        if length <= _LONGEST:
            parts.append(part)
    return "".join(parts) if length <= _LONGEST else f"{UNKNOWN}(longer than {_LONGEST} bytes)", at


def _part(text: str, at: int, values: MutableMapping[str, str], depth: int, *, quoted: bool) -> tuple[str, int]:
    """Expand one sign, one quoted text, or one expansion; tell where it ends."""
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
        if missing and operator.endswith(("-", "=")):
            value = word
            if operator.endswith("="):
                values[name] = word
    return UNKNOWN + text[at:end] if value is None else value, end
