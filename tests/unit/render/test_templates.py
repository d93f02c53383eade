"""Quoting: what goes through the filters comes out of real Lua and a real shell as it went in."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import jinja2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumisite.errors import ToolError
from lumisite.render.templates import (
    comment,
    load_templates,
    make_environment,
    quote_lua,
    quote_lua_text,
)
from tests.support.tools import tool

LUA = ("lua5.3", "lua5.4")

#: What quoting gets wrong, many at once: delimiters, escapes, both kinds of line break, bytes that are no text.
TRICKY = st.sampled_from(
    (
        *(
            "]]",
            "]=]",
            "]==]",
            "]",
            "=",
            "[[",
            "--",
            '"',
            "'",
            "\\",
            "\n",
            "\r",
            "\r\n",
            "\t",
            "0",
            "9",
            "\x00",
            "\x7f",
        ),
        *(
            "$(x)",
            "`x`",
            "${x}",
            "!",
            "%",
            " ",
            "é",
            "日",
            "🚀",
            "\u2028",
            "\u00a0",
            "\ufeff",
            "\x85",
            "{{",
            "{%",
            "{##",
        ),
    )
)
TEXT = st.one_of(st.text(st.characters(codec="utf-8"), max_size=40), st.lists(TRICKY, max_size=12).map("".join))
TEXTS = st.lists(TEXT, min_size=1, max_size=50)


def read_back(lua: str, expressions: Sequence[str]) -> list[bytes]:
    """Evaluate Lua expressions, each on lines of its own, and give the strings as bytes."""
    program = "".join(f"v =\n{text}\nio.write(#v, ' ', v)\n" for text in expressions)
    out = subprocess.run([lua, "-"], input=program.encode(), capture_output=True, check=True).stdout
    found = []
    while out:
        length, _, rest = out.partition(b" ")
        found.append(rest[: int(length)])
        out = rest[int(length) :]
    return found


@pytest.mark.parametrize("name", LUA)
@settings(max_examples=40)
@given(texts=TEXTS)
def test_lua_reads_any_string_back(name: str, texts: list[str]) -> None:
    assert read_back(tool(name), [quote_lua(text) for text in texts]) == [text.encode() for text in texts]


@pytest.mark.parametrize("name", LUA)
@settings(max_examples=40)
@given(texts=TEXTS, line_break=st.booleans())
def test_lua_reads_any_long_text_back(name: str, texts: list[str], line_break: bool) -> None:
    texts = [text + "\n" * line_break for text in texts]
    assert read_back(tool(name), [quote_lua_text(text) for text in texts]) == [text.encode() for text in texts]


@settings(max_examples=100)
@given(text=TEXT)
def test_a_quoted_lua_string_is_one_printable_line(text: str) -> None:
    assert quote_lua(text).isprintable()


def test_long_text_stays_readable_in_the_file() -> None:
    assert quote_lua_text("two\nlines ]=] and ]==]\n") == "[===[\ntwo\nlines ]=] and ]==]\n]===]"


@settings(max_examples=100)
@given(text=TEXT)
def test_a_comment_stays_on_its_line_in_every_language(text: str) -> None:
    assert "\n" not in comment(text)
    assert len(f"-- {comment(text)}".splitlines()) == 1


def render(source: str, **values: object) -> str:
    return make_environment({"modulefiles_src/x.lua.j2": source}).get_template("x.lua.j2").render(**values)


def test_what_a_template_does_not_get_is_an_error_and_not_an_empty_place() -> None:
    refused: list[Callable[[], str]] = [
        lambda: render("{{ missing }}"),
        lambda: render("{{ value }}", value=None),
        lambda: render("{{ value.missing }}", value="x"),
    ]
    for attempt in refused:
        with pytest.raises(jinja2.UndefinedError):
            attempt()


def test_a_value_with_the_marks_of_a_template_is_only_text() -> None:
    assert render("{{ value | lua }}", value="{{ 1 }} {% x %} {## y ##}") == '"{{ 1 }} {% x %} {## y ##}"'


def test_every_value_in_a_template_of_a_modulefile_is_quoted() -> None:
    """A name of the site goes into a modulefile only through a filter, so that no text can become code."""
    # Letters, digits and _ in a comment, words of vendors and of lumisite, and a number.
    free = ("module.marker", "module.memory", "module.caching", "paths.MODULES", "link | length")
    filters = ("lua", "lua_text", "tojson", "comment")
    for name, text in load_templates().items():
        if name.startswith("modulefiles_src/") and not name.endswith(".txt.j2"):  # that becomes text, which is quoted
            for value in text.split("{{")[1:]:
                inner = value.partition("}}")[0].strip(" -")
                assert inner.rpartition("|")[2].strip() in filters or inner in free, name


def test_without_its_folder_of_templates_lumisite_says_to_install_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lumisite.paths.PACKAGE", tmp_path / "lumisite")
    with pytest.raises(ToolError) as caught:
        load_templates()
    assert caught.value.finding.code == "program-not-found"
