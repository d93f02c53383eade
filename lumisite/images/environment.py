"""Work out what the shell scripts of an image set, as far as that can be told without running them.

Read are assignments, `export`, `unset` and the usual expansions; every branch counts as taken. Written here: the
parsers of shell on PyPI are under the GPL, or only split words.

Source: chapter 2 of POSIX.1-2017, Shell Command Language (quoting, parameter expansion, simple commands).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping

#: Stands before what cannot be told: a command, or a variable that no script sets.
UNKNOWN = "\0"
_DEEPEST = 40
#: More than any variable has that a program can be started with (execve(2): 128 KiB for one).
_LONGEST = 128 * 1024
_NAME = re.compile(r"[A-Za-z_]\w*")
_PARAMETER = re.compile(r"([A-Za-z_]\w*)(?:(:?[-+=?])(.*))?", re.S)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.S)
_DECLARING = ("export", "readonly", "declare", "typeset", "local")
#: Words that a simple command may follow.
_RESERVED = ("if", "then", "else", "elif", "fi", "do", "done", "while", "until", "{", "}", "!", "time", "esac")


def evaluate(script: str, values: MutableMapping[str, str]) -> None:
    """Carry out the assignments of a script on `values`."""
    for words in _commands(script):
        while words and words[0] in _RESERVED:
            del words[0]
        if not words:
            continue
        word, rest = words[0], words[1:]
        if word == "unset":
            for name in rest:
                values.pop(name, None)
        elif word in _DECLARING:
            _assign(rest, values)
        elif word == ":":
            for one in rest:
                _expanded(one, values)
        elif all(_ASSIGNMENT.fullmatch(one) for one in words):  # before a command, they are for it alone
            _assign(words, values)


def _assign(words: list[str], values: MutableMapping[str, str]) -> None:
    for word in words:
        if match := _ASSIGNMENT.fullmatch(word):
            values[match[1]] = _expanded(match[2], values)


def _commands(script: str) -> Iterator[list[str]]:
    """Split a script into simple commands of words, with their quotes."""
    words: list[str] = []
    word: list[str] = []
    at = 0
    while at < len(script):
        sign = script[at]
        if sign == "#" and not word:
            at = (script + "\n").find("\n", at)
            continue
        if script.startswith("\\\n", at):
            at += 2
            continue
        if sign not in " \t\r\n;&|()":
            end = _end(script, at)
            word.append(script[at:end])
            at = end
            continue
        words += ["".join(word)] if word else []
        word, at = [], at + 1
        if sign in "\n;&|()" and words:
            yield words
            words = []
    if word or words:
        yield words + (["".join(word)] if word else [])


def _end(text: str, at: int, depth: int = 0) -> int:
    """Give where the sign, the quoted text or the expansion at a place ends."""
    sign = text[at]
    if sign == "\\":
        return min(at + 2, len(text))
    if sign in "'`":
        return text.find(sign, at + 1) + 1 or len(text)
    closing = '"' if sign == '"' else {"${": "}", "$(": ")"}.get(text[at : at + 2], "")
    if not closing:
        return at + 1
    at += len(closing) if sign == '"' else 2
    while at < len(text) and text[at] != closing and depth < _DEEPEST:
        inside = text[at] in ('\\"$`' if sign != '"' else "\\$`") or (text[at] == "'" and sign != '"')
        at = _end(text, at, depth + 1) if inside else at + 1
    return min(at + 1, len(text)) if depth < _DEEPEST else len(text)


def _expanded(text: str, values: MutableMapping[str, str], depth: int = 0) -> str:
    """Expand a word and remove its quotes."""
    parts: list[str] = []
    length = at = 0
    while at < len(text) and depth < _DEEPEST:
        sign = text[at]
        end = _end(text, at)
        if sign == "\\":
            parts.append("" if text[at + 1 : end] == "\n" else text[at + 1 : end])
        elif sign == "'":
            parts.append(text[at + 1 : end].removesuffix("'"))
        elif sign == '"':
            # Within double quotes, a single one is only a sign.
            inner = text[at + 1 : end].removesuffix('"').replace("'", "\\'")
            parts.append(_expanded(inner, values, depth + 1))
        elif sign == "$":
            name = _NAME.match(text, at + 1)
            end = name.end() if name is not None else end
            whole = text[at + 2 : end].removesuffix("}") if name is None else name[0]
            parts.append(_parameter(text[at:end], whole, values, depth) if end > at + 1 else UNKNOWN + "$")
        else:
            parts.append(UNKNOWN + text[at:end] if sign == "`" else sign)
        at = end
        length += len(parts[-1])
        if length > _LONGEST:
            return f"{UNKNOWN}(longer than {_LONGEST} bytes)"
    return "".join(parts)


def _parameter(raw: str, whole: str, values: MutableMapping[str, str], depth: int) -> str:
    """Give the value of `$NAME`, or of `${NAME}` with one of the operators that ask whether it is set."""
    match = None if raw.startswith("$(") else _PARAMETER.fullmatch(whole)
    if match is None:
        return UNKNOWN + raw
    name, operator, word = match[1], match[2] or "", match[3] or ""
    value = values.get(name)
    missing = value is None or (operator.startswith(":") and not value)
    if operator.endswith("+"):
        return "" if missing else _expanded(word, values, depth + 1)
    if missing and operator.endswith(("-", "=")):
        value = _expanded(word, values, depth + 1)
        if operator.endswith("="):
            values[name] = value
    return UNKNOWN + raw if value is None else value
