"""Templates and how values get into them: every value is quoted for the language that it lands in."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from functools import lru_cache

import jinja2

from lumisite import paths
from lumisite.errors import ToolError, refused
from lumisite.findings.finding import Finding, Severity
from lumisite.paths import PACKAGE, package_folder
from lumisite.site.read import read_file

FOLDERS = ("modulefiles_src", "spank_helpers")

#: No template has more.
_MOST_BYTES = 1 << 20
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n"}


def load_templates() -> dict[str, str]:
    """Read every template and script; keys are `folder/file`, as the manifest and the first line of outputs name them.

    In a wheel the folders are inside the package, in a checkout beside it.
    """
    texts = {}
    for folder in FOLDERS:
        directory = package_folder(folder)
        if directory is None:
            message = f"is neither in {PACKAGE} nor beside it"
            raise ToolError(
                Finding("program-not-found", Severity.FAULT, message, "install lumisite again", f"{folder}/")
            )
        try:
            for path in sorted(path for path in directory.iterdir() if path.suffix in (".j2", ".sh", ".lua")):
                texts[f"{folder}/{path.name}"] = read_file(path, _MOST_BYTES).decode()
        except OSError as error:
            raise refused("read", error) from error
    return texts


def make_environment(templates: Mapping[str, str]) -> jinja2.Environment:
    """Make the Jinja environment: unknown and `None` values are errors, comments are `{## ##}`.

    Jinja's own comment mark would break `${#array[@]}` in sh and `{#list}` in Lua. Of the same templates there is one,
    which compiles each of them once.
    """
    return _environment(tuple(templates.items()))


@lru_cache(maxsize=4)
def _environment(templates: tuple[tuple[str, str], ...]) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.DictLoader({name.partition("/")[2]: text for name, text in templates}),
        undefined=jinja2.StrictUndefined,
        finalize=_refuse_none,
        comment_start_string="{##",
        comment_end_string="##}",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  # not HTML: every value goes through the filter of its language
    )
    environment.globals["paths"] = paths
    environment.filters.update(
        lua=quote_lua,
        lua_text=quote_lua_text,
        comment=comment,
    )
    return environment


def quote_lua(text: str) -> str:
    r"""Write a string as Lua reads it back, byte for byte.

    >>> print(quote_lua('say "$(hi)" ]]'))
    "say \"$(hi)\" ]]"
    """
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'  # nearly every value; character by character takes a third of a large render
    return '"' + "".join(_ESCAPES.get(c) or (c if c.isprintable() else _decimal(c)) for c in text) + '"'


def quote_lua_text(text: str) -> str:
    """Write text of several lines, ending in a line break, as a long Lua string that people can read in the file."""
    if not text.endswith("\n") or "\r" in text:
        return quote_lua(text)
    level = 1
    while f"]{'=' * level}]" in text:
        level += 1
    return f"[{'=' * level}[\n{text}]{'=' * level}]"


def lua_pattern(pattern: str) -> str:
    r"""Write a pattern of `case` as one of Lua's string.match (Lua 5.1 manual, 5.4.1) that fits the same whole texts.

    >>> print(lua_pattern("*/torch-[a-z]*-v2.[!6]?"))
    ^.*/torch%-[a-z].*%-v2%.[^6].$
    """
    found: list[str] = []
    inside = escaped = False
    for sign in pattern:
        if escaped or inside or (sign not in "*?[\\"):
            literal = sign if sign.isalnum() or sign in "/_" or (inside and sign in "-]!^") else f"%{sign}"
            found.append("^" if inside and sign == "!" and found[-1] == "[" else literal)
            inside, escaped = inside and sign != "]", False
        elif sign == "\\":
            escaped = True
        else:
            found.append({"*": ".*", "?": ".", "[": "["}[sign])
            inside = sign == "["
    return f"^{''.join(found)}$"


def filled(text: str, indent: int = 0) -> str:
    """Fill lines of 78 characters, ending in a line break."""
    margin = " " * indent
    lines = textwrap.wrap(
        " ".join(text.split()),
        width=78,
        initial_indent=margin,
        subsequent_indent=margin,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "".join(f"{line}\n" for line in lines)


def comment(text: str) -> str:
    """Keep text that goes into a comment on its line."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _decimal(character: str) -> str:
    # Three digits, so that a digit that follows is not taken for part of the escape.
    return "".join(f"\\{byte:03d}" for byte in character.encode("utf-8", "surrogatepass"))


def _refuse_none(value: object) -> object:
    if value is None:
        raise jinja2.UndefinedError("a value of None would be written as the word None")
    return value
