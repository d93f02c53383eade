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
    (finding,) = caught.value.findings
    return f"{finding.place}: {finding.code}"


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
    assert parse_yaml(b"a: &x 1\nb: &x 2\nc: *x\n", "site.yaml").value["c"] == "2"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "site.yaml: not-a-mapping"),
        ("# only a comment\n", "site.yaml: not-a-mapping"),
        ("just text\n", "site.yaml:1:1: not-a-mapping"),
        ("- a\n", "site.yaml:1:1: not-a-mapping"),
        ("a: 1\n---\nb: 2\n", "site.yaml:2:1: yaml-unsupported"),
        ("a: !!python/object:os.system x\n", "site.yaml:1:4: yaml-unsupported"),
        ("a: &x [*x]\n", "site.yaml:1:8: yaml-unsupported"),
        ("a: &x {b: {c: *x}}\n", "site.yaml:1:15: yaml-unsupported"),
        ("a: *nowhere\n", "site.yaml:1:4: yaml-unsupported"),
        ("? [a, b]\n: c\n", "site.yaml:1:3: yaml-unsupported"),
        ("a: [1, 2\nb: 3\n", "site.yaml:2:2: not-yaml"),
        ("a: 1\n\tb: 2\n", "site.yaml:2:1: not-yaml"),
        ("a: 'x\n", "not-yaml"),
        ("a: 1\nb: \x07\n", "site.yaml:2:1: control-character"),
        ("a: " + "[" * (MAX_DEPTH + 1), "yaml-unsupported"),
        # libyaml looks ahead in a flow sequence, and refuses this depth by itself since PyYAML 6.0.4.
        ("a: " + "[" * 200_000, "site.yaml:1:"),
        ("a: " + "{b: " * 200_000, "yaml-unsupported"),
    ],
)
def test_one_error_with_its_position(text: str, message: str) -> None:
    assert message in faults(text)


def test_bytes_that_are_not_utf_8_name_the_line() -> None:
    assert faults(b"a: 1\nb: \xff\n") == "site.yaml:2:1: text-not-utf-8"
    assert faults(b"\xef\xbb\xbfa: 1\n\xff") == "site.yaml:2:1: text-not-utf-8"


def test_a_huge_file_is_refused_before_it_is_parsed() -> None:
    assert "file-too-large" in faults(b"a" * (MAX_BYTES + 1))


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
