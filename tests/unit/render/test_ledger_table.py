"""What a manifest says of the helper: each change of a description that changes the scripts is an entry that changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from lumisite.release.diff import Pair, compare
from lumisite.release.tree import RenderedTree
from lumisite.render.manifest import MANIFEST, parse_manifest
from lumisite.render.render import render_tree
from lumisite.render.templates import load_templates
from lumisite.site.load import load_site
from lumisite.site.selection import resolve_selection

LUMI = load_site("lumi").data.decode()


def rendered(text: str, **requests: list[str]) -> RenderedTree:
    Path("site.yaml").write_text(text)
    loaded = load_site("./site.yaml")
    files = render_tree(loaded, resolve_selection(loaded.site, rocm=["6.2"], **requests), load_templates())  # type: ignore[arg-type]
    contents = {name: file.text.encode() for name, file in files.items()}
    return RenderedTree(Path(), parse_manifest(contents[MANIFEST], "M"), contents[MANIFEST], contents)


PATH, CRAY = "  - path: /var/spool/slurmd\n    where: task\n", "  - path: /opt/cray\n"


@pytest.mark.parametrize(
    ("old", "new", "group", "entry", "pair"),
    [
        (
            PATH,
            f"{PATH}    required: no\n",
            "binds",
            "/var/spool/slurmd",
            Pair("task, always, required", "task, always"),
        ),
        (
            CRAY,
            f"{CRAY}    required: no\n",
            "module_binds",
            "/opt/cray",
            Pair("singularity-CPEbits, always, required", "singularity-CPEbits, always"),
        ),
        (
            'value: "131072"',
            'value: "65536"',
            "settings",
            "FI_CXI_DEFAULT_CQ_SIZE (nodes several, gpus yes)",
            Pair("131072", "65536"),
        ),
        ("with_directories: [build]", "with_directories: [jit]", "settings", "AITER_JIT_DIR", Pair("build", "jit")),
        ("mpi: pmi2", "mpi: pmix", "families", "mpi", Pair("pmi2", "pmix")),
        ("executable: /usr/bin/singularity", "executable: /opt/s", "runtimes", "singularity", Pair("/usr", "/opt/s")),
        # The sixth of eight tasks loses another core.
        ("reserved: 0,8,", "reserved: 0,9,", "cpus", "lumi-g: tasks=8, threads=1", Pair(" 9-15 ", " 10-15 ")),
    ],
)
def test_what_changes_for_tasks_is_an_entry(old: str, new: str, group: str, entry: str, pair: Pair) -> None:
    assert old in LUMI
    found = compare(rendered(LUMI), rendered(LUMI.replace(old, new, 1)))
    assert found.files
    assert list(found.tasks) == [group]
    (sides,) = [sides for name, sides in found.tasks[group].items() if entry in name]
    assert all(str(part) in str(side) for part, side in zip(pair, sides, strict=True))


def test_what_is_the_same_is_no_entry_and_what_only_some_combinations_have_says_so() -> None:
    assert not compare(rendered(LUMI), rendered(LUMI.replace("    why: ", "    why: in other words, ", 1))).tasks
    tasks = rendered(LUMI, cpe=["25.03", "24.03"]).manifest.tasks
    assert "/opt/cray" in tasks["module_binds"]
    assert "/usr/lib64/libjansson.so.4 in 24.03-rocm6.2" in tasks["module_binds"]
