"""MANIFEST.json: the same bytes each time; whatever else lies in its place is refused with a reason."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumisite.errors import DifferenceError
from lumisite.release.tree import load_tree
from lumisite.render.manifest import (
    LARGEST_MANIFEST_BYTES,
    MANIFEST,
    FileEntry,
    Manifest,
    ManifestLibrary,
    ModuleSummary,
    PlanSummary,
    RenderedFile,
    file_entries,
    format_manifest,
    parse_manifest,
)
from lumisite.site.read import read_file
from tests.support.sites import printed_codes
from tests.support.trees import tree

GOOD = json.loads(tree()[MANIFEST].text)
A_FILE = "spank/task_prolog"
ENTRY = {"sha256": "0" * 64, "mode": "0644"}
PLAN: dict[str, Any] = {"images": [], "digest": "", "libraries": [], "folders": []}

texts = st.text(st.sampled_from('aé\u4e2d "\\\\\u00a7-/:$'), max_size=8)
lists = st.lists(texts, max_size=3).map(tuple)
paths = st.sampled_from(["a", "modules/x/1.0.lua", "spank/bin/é"])
modules = st.builds(
    ModuleSummary,
    binds=lists,
    provides=lists,
    loads=lists,
    conflicts=lists,
    environment=st.dictionaries(texts, texts, max_size=3),
)
plans = st.builds(
    PlanSummary,
    images=lists,
    digest=texts,
    libraries=st.lists(st.builds(ManifestLibrary, source=texts, target=texts, soname=texts), max_size=2).map(tuple),
    folders=lists,
)
entries = st.builds(FileEntry, sha256=st.just("0" * 64), mode=st.sampled_from(["0644", "0755"]))
manifests = st.builds(
    Manifest,
    release=st.just("2026-01-0123456789ab"),
    lumisite=texts,
    site=texts,
    platform=texts,
    stacks=st.dictionaries(texts, lists, max_size=2),
    inputs=st.dictionaries(texts, texts, max_size=3),
    modules=st.dictionaries(texts, modules, max_size=3),
    plans=st.dictionaries(texts, plans, max_size=2),
    files=st.dictionaries(paths, entries, max_size=3),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(manifests)
def test_what_is_written_reads_back_the_same(written: Manifest) -> None:
    assert parse_manifest(format_manifest(written).encode(), "M") == written


def test_entries_describe_every_file() -> None:
    found = file_entries({"a": RenderedFile("x"), "b": RenderedFile("", executable=True)})
    assert found == {
        "a": FileEntry("2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881", "0644"),
        "b": FileEntry("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "0755"),
    }


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("format", 2, "format: value-wrong"),
        ("format", True, "format: value-wrong"),
        ("release", "../../etc", "release: value-wrong"),
        ("release", ".hidden", "value-wrong"),
        ("release", "x" * 101, "value-wrong"),
        ("release", 7, "release: value-wrong"),
        ("site", None, "site: value-wrong"),
        ("stacks", {"cpe": "25.03"}, "stacks.cpe: value-wrong"),
        ("stacks", {"rocm": [6.2]}, "stacks.rocm[0]: value-wrong"),
        ("inputs", [], "inputs: value-wrong"),
        ("inputs", {"lumi.yaml": 1}, "inputs.lumi.yaml: value-wrong"),
        ("modules", {"a/1": []}, "modules.a/1: value-wrong"),
        ("stacks", {"X": {"y": 1}}, "stacks.X: value-wrong"),
        ("files", {"/etc/passwd": ENTRY}, "files./etc/passwd: value-wrong"),
        ("files", {"": ENTRY}, "value-wrong"),
        ("files", {"a/../../b": ENTRY}, "value-wrong"),
        ("files", {"a//b": ENTRY}, "value-wrong"),
        ("files", {"a\nb": ENTRY}, "files.'a\\nb': value-wrong"),
        ("files", {"a\0b": ENTRY}, "value-wrong"),
        ("files", {MANIFEST: ENTRY}, "value-wrong"),
        ("files", {"a": 3}, "files.a: value-wrong"),
        (
            "files",
            {"a": {"sha256": "0", "mode": "0644"}},
            "sha256: value-wrong",
        ),
        ("files", {"a": {"sha256": "0" * 64, "mode": "4755"}}, "mode: value-wrong"),
        ("plans", [], "plans: value-wrong"),
        (
            "plans",
            {"a.yaml": {**PLAN, "libraries": [1]}},
            "plans.a.yaml.libraries[0]: value-wrong",
        ),
        (
            "plans",
            {"a.yaml": {**PLAN, "libraries": [{"source": "/a"}]}},
            "plans.a.yaml.libraries[0].soname: key-missing",
        ),
        ("plans", {"a.yaml": {**PLAN, "digest": 7}}, "plans.a.yaml.digest: value-wrong"),
    ],
)
def test_a_wrong_value_is_named_with_its_key(key: str, value: object, message: str) -> None:
    with pytest.raises(DifferenceError) as caught:
        parse_manifest(json.dumps({**GOOD, key: value}).encode(), "site-out/MANIFEST.json")
    assert str(caught.value).startswith("site-out/MANIFEST.json:1:")
    assert message in printed_codes(str(caught.value))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"7", b"\xff\xfe", b"[" * 100_000, b'{"a": "\\ud800"}', b"1" * 5000, b"NaN", b"null", b"{}"],
    ids=range(11),
)
def test_what_is_no_manifest_at_all_is_refused(content: bytes) -> None:
    with pytest.raises(DifferenceError, match=r"^M:"):
        parse_manifest(content, "M")


@given(st.sampled_from(sorted(GOOD)), json_values)
def test_any_value_at_any_key_gives_a_manifest_or_one_line(key: str, value: Any) -> None:
    error = ""
    try:
        parse_manifest(json.dumps({**GOOD, key: value}).encode(), "M")
    except DifferenceError as difference:
        error = str(difference)
    assert "\n" not in error


def test_what_turned_into_a_link_or_a_pipe_is_neither_followed_nor_waited_for(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(OSError, match="not a file but a symbolic link"):
        read_file(tmp_path / "link", 10, follow=False)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a file but a pipe"):
        read_file(tmp_path / "pipe", 10)


@pytest.mark.parametrize(
    ("plant", "code"),
    [
        (lambda path: None, "release-file-missing"),
        (lambda path: path.symlink_to("/dev/zero"), "release-edited"),
        (lambda path: path.mkdir(), "release-edited"),
        (lambda path: path.write_bytes(b" " * (LARGEST_MANIFEST_BYTES + 1)), "release-edited"),
    ],
)
def test_a_manifest_that_is_missing_a_link_a_folder_or_huge_is_named(
    tmp_path: Path, plant: Callable[[Path], object], code: str
) -> None:
    path = tmp_path / MANIFEST
    plant(path)
    with pytest.raises(DifferenceError) as caught:
        load_tree(tmp_path)
    assert (caught.value.finding.code, caught.value.finding.subject) == (code, str(path))
