"""YAML to nodes: text stays text, and everything odd is one error with its position."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumisite.errors import SiteError
from lumisite.site.document import MAX_BYTES, MAX_DEPTH, Document, parse_yaml


def faults(text: str | bytes) -> str:
    data = text.encode() if isinstance(text, str) else text
    with pytest.raises(SiteError) as caught:
        parse_yaml(data, "site.yaml")
    assert len(caught.value.problems) == 1
    return str(caught.value)


@pytest.mark.parametrize(
    "typed", ["6.10", "24.10", "10:00:00", "no", "on", "010", "0x1f", "1e3", "~", "2026-01-21", ".5"]
)
def test_scalars_stay_what_the_admin_typed(typed: str) -> None:
    root = parse_yaml(f"key: {typed}\n".encode(), "site.yaml")
    assert root.value == {"key": typed}
    assert root.places["key"] == (1, 6)


def test_positions_count_from_one() -> None:
    root = parse_yaml(b"a: 1\nb:\n  - x\n  - {c: d}\n", "site.yaml")
    assert root.value == {"a": "1", "b": ["x", {"c": "d"}]}
    assert (root.places["b[0]"], root.places["b[1].c"], root.keys["b[1].c"]) == ((3, 5), (4, 9), (4, 6))
    assert root.place("b[1].c.d") == (4, 9)


def test_nothing_typed_is_no_empty_text() -> None:
    assert parse_yaml(b"a:\nb: ''\nc: [x, {d: }]\n", "site.yaml").value == {"a": None, "b": "", "c": ["x", {"d": None}]}


def test_an_alias_is_what_its_anchor_was() -> None:
    root = parse_yaml(b"a: &x [1, {c: 2}]\nb: *x\n", "site.yaml")
    assert root.value["a"] == root.value["b"] == ["1", {"c": "2"}]
    assert root.places["a[1].c"] == root.places["b[1].c"] == (1, 15)
    assert root.keys["b[1].c"] == (1, 12)
    assert parse_yaml(b"a: &x 1\nb: &x 2\nc: *x\n", "site.yaml").value["c"] == "2"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "site.yaml: the file is empty (a site description starts with `lumisite: 2`)"),
        ("# only a comment\n", "site.yaml: the file is empty (a site description starts with `lumisite: 2`)"),
        ("just text\n", "site.yaml:1:1: the file must be a mapping of keys to values"),
        ("- a\n", "site.yaml:1:1: the file must be a mapping of keys to values"),
        ("a: 1\n---\nb: 2\n", "site.yaml:2:1: a second document starts here (one file describes one site)"),
        ("a: !!python/object:os.system x\n", "site.yaml:1:4: tags such as tag:yaml.org,2002:python/object:os.system"),
        ("a: &x [*x]\n", "site.yaml:1:8: the anchor &x contains itself"),
        ("a: &x {b: {c: *x}}\n", "site.yaml:1:15: the anchor &x contains itself"),
        ("a: *nowhere\n", "site.yaml:1:4: there is no anchor &nowhere"),
        ("? [a, b]\n: c\n", "site.yaml:1:3: a key must be plain text"),
        ("a: [1, 2\nb: 3\n", "site.yaml:2:2: not YAML: did not find expected ',' or ']'"),
        ("a: 1\n\tb: 2\n", "site.yaml:2:1: not YAML: found a tab character that violates indentation"),
        ("a: 'x\n", "not YAML: found unexpected end of stream"),
        ("a: 1\nb: \x07\n", "site.yaml:2:1: character U+0007 is not allowed in YAML"),
        ("a: " + "[" * (MAX_DEPTH + 1), f"nested deeper than {MAX_DEPTH} levels"),
        ("a: " + "[" * 200_000, f"nested deeper than {MAX_DEPTH} levels"),
        ("a: " + "{b: " * 200_000, f"nested deeper than {MAX_DEPTH} levels"),
    ],
)
def test_one_error_with_its_position(text: str, message: str) -> None:
    assert message in faults(text)


def test_bytes_that_are_not_utf_8_name_the_line() -> None:
    assert faults(b"a: 1\nb: \xff\n") == "site.yaml:2:1: byte 0xff is not UTF-8 (save the file as UTF-8)"
    assert faults(b"\xef\xbb\xbfa: 1\n\xff") == "site.yaml:2:1: byte 0xff is not UTF-8 (save the file as UTF-8)"


def test_a_huge_file_is_refused_before_it_is_parsed() -> None:
    assert "are too many for a site description" in faults(b"a" * (MAX_BYTES + 1))


@pytest.mark.thorough
def test_aliases_cannot_unfold_into_gigabytes() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "aliases unfold into more than" in faults("\n".join(lines))
    chain = ["a0: &a0 x", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 3000))]
    assert f"site.yaml:{MAX_DEPTH + 1}:" in faults("\n".join(chain))


def parsed_or_refused(data: bytes) -> bool:
    try:
        return isinstance(parse_yaml(data, "site.yaml"), Document)
    except SiteError as error:
        return str(error).startswith("site.yaml")


@given(st.binary(max_size=200))
def test_any_bytes_give_nodes_or_one_site_error(data: bytes) -> None:
    assert parsed_or_refused(data)


@given(st.text(alphabet="ab:-[]{}&*!|>'\"#%@` \n\t,?", max_size=60))
def test_any_yaml_like_text_gives_nodes_or_one_site_error(text: str) -> None:
    assert parsed_or_refused(text.encode())
