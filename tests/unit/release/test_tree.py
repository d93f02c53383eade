"""A rendered tree as it is read: its MANIFEST.json, or why that is none, and links that lead out of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lumisite.errors import DifferenceError
from lumisite.release.tree import load_tree
from lumisite.render.manifest import (
    LARGEST_MANIFEST_BYTES,
    MANIFEST,
    ManifestLibrary,
    PlanSummary,
    RenderedFile,
    format_manifest,
    parse_manifest,
)
from tests.support.rendered_trees import manifest, tree, with_manifest, written

GOOD = json.loads(tree()[MANIFEST].text)
ENTRY = {"sha256": "0" * 64, "mode": "0644"}
PLAN: dict[str, Any] = {"images": [], "digest": "", "libraries": [], "folders": []}


def test_a_manifest_that_is_written_reads_back_the_same() -> None:
    plan = PlanSummary(("*/a é.sif",), "d", (ManifestLibrary("/a", "/b", "a.so.1"),), ("/lib",))
    full = replace(manifest(), plans={"a.yaml": plan}, tasks={"settings": {'"\\': "\u4e2d"}})
    assert parse_manifest(format_manifest(full).encode(), "M") == full


@pytest.mark.parametrize(
    ("key", "value", "place"),
    [
        ("format", 2, "format"),
        ("release", "../../etc", "release"),
        ("stacks", {"rocm": [6.2]}, "stacks.rocm[0]"),
        ("files", {"/etc/passwd": ENTRY}, "files./etc/passwd"),
        ("files", {"a/../../b": ENTRY}, "files.a/../../b"),
        ("files", {"a\nb": ENTRY}, "files.'a\\nb'"),
        ("files", {MANIFEST: ENTRY}, f"files.{MANIFEST}"),
        ("files", {"a": {**ENTRY, "mode": "4755"}}, "files.a.mode"),
        ("plans", {"a.yaml": {**PLAN, "libraries": [{"source": "/a"}]}}, "plans.a.yaml.libraries[0].soname"),
    ],
)
def test_a_wrong_value_of_a_manifest_is_named_with_its_key(key: str, value: object, place: str) -> None:
    with pytest.raises(DifferenceError) as caught:
        parse_manifest(json.dumps({**GOOD, key: value}).encode(), "site-out/MANIFEST.json")
    text = str(caught.value)
    assert text.startswith("site-out/MANIFEST.json:1:")
    assert (f": {place}: " in text, "\n" in text) == (True, False)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff\xfe", b"[" * 100_000, b"{}"], ids=range(5))
def test_what_is_no_manifest_at_all_is_refused(content: bytes) -> None:
    with pytest.raises(DifferenceError, match=r"^M:"):
        parse_manifest(content, "M")


@pytest.mark.parametrize(
    ("plant", "code"),
    [
        (lambda path: None, "release-file-missing"),
        (lambda path: path.symlink_to("/dev/zero"), "release-edited"),
        (lambda path: path.mkdir(), "release-edited"),
        (lambda path: path.write_bytes(b" " * (LARGEST_MANIFEST_BYTES + 1)), "release-edited"),
    ],
    ids=["missing", "link", "folder", "huge"],
)
def test_a_manifest_that_cannot_be_read_is_named(tmp_path: Path, plant: Callable[[Path], object], code: str) -> None:
    path = tmp_path / MANIFEST
    plant(path)
    with pytest.raises(DifferenceError) as caught:
        load_tree(tmp_path)
    assert (caught.value.finding.code, caught.value.finding.subject) == (code, str(path))


@pytest.mark.parametrize("target", ["../task_prolog", "/bin/sh", "gone", ""])
def test_a_link_of_a_tree_leads_to_a_file_of_its_own_folder(tmp_path: Path, target: str) -> None:
    """Also where the manifest is made to fit it: whoever deploys the tree is root."""
    files = {**tree(), "spank/bin/apptainer": RenderedFile(target or "singularity", is_link=True)}
    out = written(tmp_path / "out", with_manifest(files, manifest()))
    if not target:
        (out / "spank/bin/apptainer").unlink()
        (out / "spank/bin/apptainer").write_text("singularity")
    (fault,) = load_tree(out).faults
    assert (fault.code, fault.subject) == ("release-edited", "spank/bin/apptainer")
