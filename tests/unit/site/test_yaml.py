"""A file to nodes: only a regular one of some size is read, text stays text, all that is odd is one error with its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumisite.errors import SiteError
from lumisite.site.read import UnfitFileError, read_file
from lumisite.site.yaml import MAX_BYTES, MAX_DEPTH, Document, parse_yaml


def faults(text: str | bytes) -> str:
    data = text.encode() if isinstance(text, str) else text
    with pytest.raises(SiteError) as caught:
        parse_yaml(data, "site.yaml")
    (finding,) = caught.value.findings
    return f"{finding.place}: {finding.message}"


@pytest.mark.parametrize(
    "typed", ["6.10", "24.10", "10:00:00", "no", "on", "010", "0x1f", "1e3", "~", "2026-01-21", ".5"]
)
def test_scalars_stay_what_the_admin_typed(typed: str) -> None:
    root = parse_yaml(f"key: {typed}\n".encode(), "site.yaml")
    assert root.value == {"key": typed}
    assert root.positions["key"] == (1, 6)


def test_positions_count_from_one() -> None:
    root = parse_yaml(b"a: 1\nb:\n  - x\n  - {c: d}\n", "site.yaml")
    assert root.value == {"a": "1", "b": ["x", {"c": "d"}]}
    assert (root.positions["b[0]"], root.positions["b[1].c"], root.keys["b[1].c"]) == ((3, 5), (4, 9), (4, 6))
    assert root.position("b[1].c.d") == (4, 9)


def test_nothing_typed_is_no_empty_text() -> None:
    assert parse_yaml(b"a:\nb: ''\nc: [x, {d: }]\n", "site.yaml").value == {"a": None, "b": "", "c": ["x", {"d": None}]}


def test_an_alias_is_what_its_anchor_was() -> None:
    root = parse_yaml(b"a: &x [1, {c: 2}]\nb: *x\n", "site.yaml")
    assert root.value["a"] == root.value["b"] == ["1", {"c": "2"}]
    assert root.positions["a[1].c"] == root.positions["b[1].c"] == (1, 15)
    assert root.keys["b[1].c"] == (1, 12)
    many = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}' if n else 'x'] * 9)}]\n" for n in range(9))
    assert faults(many) == "site.yaml:1:34: more than 200000 values, with those that aliases repeat"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "site.yaml: must be a mapping of keys to values"),
        ("# only a comment\n", "site.yaml: must be a mapping of keys to values"),
        ("just text\n", "site.yaml:1:1: must be a mapping of keys to values"),
        ("- a\n", "site.yaml:1:1: must be a mapping of keys to values"),
        ("a: 1\n---\nb: 2\n", "site.yaml:2:1: not YAML: but found another document"),
        ("a: !!python/object:os.system x\n", "site.yaml:1:4: tag !!python/object:os.system is not supported"),
        ("a: !mine x\n", "site.yaml:1:4: tag !mine is not supported"),
        ("a: &x [*x]\n", "site.yaml:1:4: nested deeper than 32 levels"),
        ("a: *nowhere\n", "site.yaml:1:4: not YAML: found undefined alias"),
        ("? [a, b]\n: c\n", "site.yaml:1:3: a key must be plain text"),
        ("a: [1, 2\nb: 3\n", "site.yaml:2:2: not YAML: did not find expected ',' or ']'"),
        ("a: 1\nb: \x07\n", "site.yaml:2:1: contains U+0007"),
        ("a: " + "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "site.yaml:1:36: nested deeper than 32 levels"),
        ("a: " + "[" * 200_000, "site.yaml:1:"),
        ("a: " + "{b: " * 200_000, "site.yaml:1:"),
    ],
)
def test_one_error_with_its_position(text: str, message: str) -> None:
    assert message in faults(text)


@pytest.mark.parametrize(
    ("text", "place", "message", "advice"),
    [
        # The parser itself notices a quote without its end at the next quote, or at the end of the file.
        ("a: 1\nb: 'x\nc: 2\nd: 'y'\n", "2:4", "the quote that begins here does not end on its line", "close it"),
        ('a: 1\nb: "x\nc: 2\n', "2:4", "the quote that begins here does not end on its line", "close it"),
        ("a: 1\n\tb: 2\n", "2:1", "a tab", "indent by spaces"),
        ("a:\n  b: 1\n  \tc: 2\n", "3:3", "a tab", "indent by spaces"),
        ("a: [*.sif]\n", "1:6", "scanning an alias", "put the text in quotes, as in: '*.sif'"),
        ("a: [b, *c, d]\n", "1:8", "found undefined alias", "put the text in quotes, as in: '*c'"),
        ("a: >=12\n", "1:5", "scanning a block scalar", "put the text in quotes, as in: '>=12'"),
        ("why: note: x\n", "1:10", "mapping values are not allowed", "put the text in quotes, as in: 'note: x'"),
        ("- a: @x\n", "1:6", "cannot start any token", "put the text in quotes, as in: '@x'"),
    ],
)
def test_what_people_mistype_is_named_where_it_is(text: str, place: str, message: str, advice: str) -> None:
    with pytest.raises(SiteError) as caught:
        parse_yaml(text.encode(), "site.yaml")
    assert str(caught.value.finding.place) == f"site.yaml:{place}"
    assert message in caught.value.finding.message
    assert caught.value.finding.advice == advice


def test_bytes_that_are_not_utf_8_name_the_line() -> None:
    assert faults(b"a: 1\nb: \xff\n") == "site.yaml:2:1: byte 0xff is not UTF-8"
    assert faults(b"\xef\xbb\xbfa: 1\n\xff") == "site.yaml:2:1: byte 0xff is not UTF-8"


def test_what_is_no_regular_file_or_too_large_is_a_finding(tmp_path: Path) -> None:
    with pytest.raises(UnfitFileError) as caught:
        read_file(tmp_path, 10)
    assert caught.value.finding.message == "it is not a file but a directory"
    large = tmp_path / "large"
    large.write_bytes(bytes(11))
    with pytest.raises(UnfitFileError) as caught:
        read_file(large, 10)
    assert caught.value.finding.message == "it has more than 10 bytes"
    assert caught.value.filename == str(large)


def test_a_huge_file_is_refused_before_it_is_parsed() -> None:
    assert "it has more than 4194304 bytes" in faults(b"a" * (MAX_BYTES + 1))


@given(st.binary(max_size=200) | st.text(alphabet="ab:-[]{}&*!|>'\"#%@` \n\t,?", max_size=60).map(str.encode))
def test_any_bytes_give_a_document_or_one_site_error(data: bytes) -> None:
    result: Document | SiteError
    try:
        result = parse_yaml(data, "site.yaml")
    except SiteError as error:
        result = error
    assert isinstance(result, Document) or str(result).startswith("site.yaml")
