"""Quoting: what goes through the filters comes out of real Lua as it went in."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import jinja2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumisite.errors import ToolError
from lumisite.render.templates import comment, load_templates, make_environment, quote_lua, quote_lua_text
from tests.support.tools import tool

#: What quoting gets wrong: delimiters, escapes, both kinds of line break, bytes that are no text.
TRICKY = [
    *("]]", "]=]", "]==]", "]", "=", "[[", "--", '"', "'", "\\", "\n", "\r", "\r\n", "\t", "0", "9", "\x00", "\x7f"),
    *("$(x)", "`x`", "${x}", "!", "%", " ", "é", "日", "🚀", "\u2028", "\u00a0", "\ufeff", "\x85", "{{", "{%", "{##"),
]
TEXT = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=40), st.lists(st.sampled_from(TRICKY), max_size=12).map("".join)
)


def read_back(lua: str, expressions: Sequence[str]) -> list[bytes]:
    """Evaluate Lua expressions, each on lines of its own, and return the strings as bytes."""
    program = "".join(f"v =\n{text}\nio.write(#v, ' ', v)\n" for text in expressions)
    out = subprocess.run([lua, "-"], input=program.encode(), capture_output=True, check=True).stdout
    found = []
    while out:
        length, _, rest = out.partition(b" ")
        found.append(rest[: int(length)])
        out = rest[int(length) :]
    return found


@pytest.mark.parametrize("name", ["lua5.3", "lua5.4"])
@settings(max_examples=8)
@given(texts=st.lists(TEXT, min_size=20, max_size=30))
def test_lua_reads_any_string_back(name: str, texts: list[str]) -> None:
    texts += [*TRICKY, "".join(TRICKY), *(f"{text}\n" for text in (*TRICKY, *texts)), "two\nlines ]=] and ]==]\n"]
    expected = [text.encode() for text in texts]
    assert read_back(tool(name), [quote_lua(text) for text in texts]) == expected
    assert read_back(tool(name), [quote_lua_text(text) for text in texts]) == expected
    assert all(quote_lua(text).isprintable() for text in texts), "one printable line"
    for text in texts:
        assert len(f"-- {comment(text)}".splitlines()) == 1, "a comment stays on its line in every language"


def test_long_text_stays_readable_in_the_file() -> None:
    assert quote_lua_text("two\nlines ]=] and ]==]\n") == "[===[\ntwo\nlines ]=] and ]==]\n]===]"


def render(source: str, **values: object) -> str:
    return make_environment({"modulefiles_src/x.lua.j2": source}).get_template("x.lua.j2").render(**values)


@pytest.mark.parametrize("source", ["{{ missing }}", "{{ value }}", "{{ text.missing }}"])
def test_what_a_template_does_not_get_is_an_error_and_not_an_empty_place(source: str) -> None:
    with pytest.raises(jinja2.UndefinedError):
        render(source, value=None, text="x")


def test_every_value_in_a_template_of_a_modulefile_is_quoted() -> None:
    """A name of the site goes into a modulefile only through a filter, so that no text can become code."""
    assert render("{{ value | lua }}", value="{{ 1 }} {% x %} {## y ##}") == '"{{ 1 }} {% x %} {## y ##}"'
    # Letters, digits and _ in a comment, words of vendors and of lumisite, and a number.
    free = ("module.marker", "module.memory", "module.caching", "paths.MODULES", "link | length")
    for name, text in load_templates().items():
        if name.startswith("modulefiles_src/"):
            for value in text.split("{{")[1:]:
                inner = value.partition("}}")[0].strip(" -")
                assert inner.rpartition("|")[2].strip() in ("lua", "lua_text", "tojson", "comment") or inner in free, (
                    name
                )


def test_without_its_folder_of_templates_lumisite_says_to_install_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lumisite.paths.PACKAGE", tmp_path / "lumisite")
    with pytest.raises(ToolError) as caught:
        load_templates()
    assert caught.value.finding.code == "program-not-found"
