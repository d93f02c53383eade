"""The difference between two trees, by meaning and by file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lumisite.release.diff import Difference, compare, to_json
from lumisite.release.diff_lines import file_lines, meaning_lines, summary_lines
from lumisite.release.tree import RenderedTree
from lumisite.render.manifest import MANIFEST, Manifest, ModuleSummary, RenderedFile, parse_manifest
from tests.support.rendered_trees import NEW, OLD, manifest, tree, with_manifest


def on_disk(files: dict[str, RenderedFile]) -> RenderedTree:
    contents = {path: file.text.encode() for path, file in files.items()}
    return RenderedTree(Path(), parse_manifest(contents[MANIFEST], "M"), contents[MANIFEST], contents)


def described(old: Manifest, new: Manifest) -> Difference:
    """The difference between two manifests whose files are the same."""
    files = {"a": RenderedFile("")}
    return compare(on_disk(with_manifest(files, old)), on_disk(with_manifest(files, new)))


def modules(old: dict[str, ModuleSummary], new: dict[str, ModuleSummary]) -> list[str]:
    return meaning_lines(described(replace(manifest(), modules=old), replace(manifest(), modules=new)))


def test_a_library_that_moved_is_printed_by_meaning_by_file_and_as_json() -> None:
    found = compare(on_disk(tree(OLD, libfabric="1.15.2.0")), on_disk(tree(NEW)))
    assert meaning_lines(found) == [
        "- platform: 2025-06",
        "+ platform: 2026-01",
        "- module singularity-CPEbits/25.03: /opt/cray/libfabric/1.15.2.0",
        "+ module singularity-CPEbits/25.03: /opt/cray/libfabric/1.22.0",
        "- module singularity-CPEbits/25.03: FI_VERSION: 1.15.2.0",
        "+ module singularity-CPEbits/25.03: FI_VERSION: 1.22.0",
    ]
    assert file_lines(found) == [
        "--- a/modules/singularity-CPEbits/25.03.lua",
        "+++ b/modules/singularity-CPEbits/25.03.lua",
        "@@ -1,4 +1,4 @@",
        " -- release <release>",
        ' help("é")',
        ' append_path("SINGULARITY_BINDPATH", "/opt/cray")',
        '-setenv("FI_VERSION", "1.15.2.0")',
        '+setenv("FI_VERSION", "1.22.0")',
    ]
    values = json.loads(json.dumps(to_json(found)))
    assert (values["different"], values["old"], values["new"]) == (True, OLD, NEW)
    assert values["versions"] == {"platform": {"old": "2025-06", "new": "2026-01"}}
    assert values["modules"] == [
        {
            "name": "singularity-CPEbits",
            "old": "25.03",
            "new": "25.03",
            "provides": {
                "added": ["/opt/cray/libfabric/1.22.0"],
                "removed": ["/opt/cray/libfabric/1.15.2.0"],
            },
            "environment": {"FI_VERSION": {"old": "1.15.2.0", "new": "1.22.0"}},
        }
    ]
    assert [(file["what"], file["new"]) for file in values["files"]] == [
        ("changed", "modules/singularity-CPEbits/25.03.lua")
    ]


def test_another_id_other_inputs_and_another_lumisite_are_no_difference() -> None:
    old, new = on_disk(tree(NEW)), on_disk(tree("2026-01-000000000000"))
    assert old.contents["spank/task_prolog"] != new.contents["spank/task_prolog"]
    assert not compare(old, new)
    assert not described(manifest(), replace(manifest(), lumisite="0.2.0", inputs={"site.j2": "2" * 64}))


ONE, OTHER = ModuleSummary(binds=("/a", "/b")), ModuleSummary(loads=("x/1",))


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        # The only version before and the only one after read as one change.
        (
            {"CPEbits/24.03": ONE},
            {"CPEbits/25.03": ModuleSummary(binds=("/b", "/c"))},
            [
                "- module CPEbits/24.03",
                "+ module CPEbits/25.03",
                "- module CPEbits/24.03: /a",
                "+ module CPEbits/25.03: /c",
            ],
        ),
        ({"CPEbits/24.03": ONE}, {"CPEbits/25.03": ONE}, ["- module CPEbits/24.03", "+ module CPEbits/25.03"]),
        # Of several versions a new one is new, and a removed one is removed.
        (
            {"m/1": ONE, "m/2": ONE},
            {"m/2": ONE, "m/3": OTHER},
            ["- module m/1", "+ module m/3", "+ module m/3: loads x/1"],
        ),
    ],
)
def test_versions_of_a_module_that_come_and_go(
    old: dict[str, ModuleSummary], new: dict[str, ModuleSummary], lines: list[str]
) -> None:
    assert modules(old, new) == lines


def test_every_part_of_a_module_is_compared() -> None:
    old = ModuleSummary(loads=("a/1",), conflicts=("x",), environment={"GONE": "1", "SAME": "1", "V": ""})
    new = ModuleSummary(loads=("a/2",), conflicts=("y",), environment={"NEW": "a\nb", "SAME": "1", "V": "2"})
    assert modules({"m/1": old}, {"m/1": new}) == [
        "- module m/1: loads a/1",
        "+ module m/1: loads a/2",
        "- module m/1: conflicts x",
        "+ module m/1: conflicts y",
        "- module m/1: GONE: 1",
        "+ module m/1: NEW: 'a\\nb'",
        "- module m/1: V: ''",
        "+ module m/1: V: 2",
    ]


def test_what_the_helper_does_is_compared_entry_by_entry() -> None:
    before = {
        "binds": {"/a": "task, always", "/b": "task, always"},
        "module_binds": {"/m": "m, always", "/n": "m, always"},
        "settings": {"A (gpus yes)": "1", "B": "same"},
    }
    after = {
        "binds": {"/a": "task, always, required", "/c": "task, always"},
        "module_binds": {"/m": "m, gpus yes", "/o": "m, always"},
        "settings": {"A (gpus yes)": "2", "B": "same", "A (gpus no)": "3"},
        "cpus": {"g: tasks 1": "0-3"},
    }
    old, new = replace(manifest(), tasks=before), replace(manifest(), tasks=after)
    found = described(old, new)
    assert meaning_lines(found) == [
        "- bind /a: task, always",
        "+ bind /a: task, always, required",
        "- bind /b: task, always",
        "+ bind /c: task, always",
        "- bind /m: m, always",
        "+ bind /m: m, gpus yes",
        "+ setting A (gpus no): 3",
        "- setting A (gpus yes): 1",
        "+ setting A (gpus yes): 2",
        "+ CPU list g: tasks 1: 0-3",
    ]
    assert summary_lines(found) == meaning_lines(found)
    assert to_json(found)["tasks"]["settings"]["A (gpus no)"] == {"old": None, "new": "3"}
    assert to_json(found)["tasks"]["module_binds"]["/n"] == {"old": "m, always", "new": None}


def test_a_summary_fits_on_a_screen() -> None:
    settings = {f"VARIABLE_{number:02}": "1" for number in range(50)}
    large = replace(manifest(), tasks={"settings": settings})
    files = {f"modules/m{number}/1.lua": RenderedFile("") for number in range(40)}
    lines = summary_lines(compare(on_disk(with_manifest({}, manifest())), on_disk(with_manifest(files, large))))
    assert lines[:2] == ["+ setting VARIABLE_00: 1", "+ setting VARIABLE_01: 1"]
    assert lines[16:] == ["and 34 more lines", "40 files: 40 new"]


def test_the_file_of_a_module_with_a_new_version_is_compared_with_its_old_one() -> None:
    found = compare(on_disk(tree(OLD, cpe="24.03")), on_disk(tree(NEW)))
    folder = "modules/singularity-CPEbits"
    assert [(file.old, file.new, file.kind) for file in found.files] == [
        (f"{folder}/.modulerc.lua", f"{folder}/.modulerc.lua", "changed"),
        (f"{folder}/24.03.lua", f"{folder}/25.03.lua", "renamed"),
    ]
    assert f"renamed a/{folder}/24.03.lua -> b/{folder}/25.03.lua" in file_lines(found)


def files(old: dict[str, RenderedFile], new: dict[str, RenderedFile]) -> list[str]:
    return file_lines(compare(on_disk(with_manifest(old, manifest())), on_disk(with_manifest(new, manifest()))))


def test_new_and_removed_files_and_modes_are_shown() -> None:
    old = {"old": RenderedFile("a\nb\n"), "same": RenderedFile("")}
    new = {"new": RenderedFile("c"), "same": RenderedFile("", executable=True)}
    assert files(old, new) == [
        "--- /dev/null",
        "+++ b/new",
        "@@ -0,0 +1 @@",
        "+c\\ no newline at end of file",
        "--- a/old",
        "+++ /dev/null",
        "@@ -1,2 +0,0 @@",
        "-a",
        "-b",
        "mode b/same: 0644 -> 0755",
    ]


def test_what_is_not_text_on_disk_is_spelled_out() -> None:
    old = on_disk(with_manifest({"a": RenderedFile("x\n")}, manifest()))
    edited = replace(old, contents={**old.contents, "a": b"\xff\n"})
    assert file_lines(compare(edited, old))[-2:] == ["-\\xff", "+x"]
