"""What a manifest says of the helper: each change of a description that changes the scripts is an entry that changes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from lumisite.release.diff import Difference, Pair, compare
from lumisite.release.tree import RenderedTree
from lumisite.render.manifest import MANIFEST, parse_manifest
from lumisite.render.render import render_tree
from lumisite.render.templates import load_templates
from lumisite.site.load import load_site
from lumisite.site.selection import resolve_selection

LUMI = (Path(__file__).parents[3] / "lumisite/sites/lumi.yaml").read_text()


def rendered(path: Path, text: str, **asked: list[str]) -> RenderedTree:
    path.write_text(text)
    loaded = load_site(str(path))
    selection = resolve_selection(loaded.site, platform=None, rocm=["6.2"], **asked)
    files = render_tree(loaded, selection, load_templates())
    contents = {name: file.text.encode() for name, file in files.items()}
    return RenderedTree(Path(), parse_manifest(contents[MANIFEST], "M"), contents[MANIFEST], contents)


def changed(tmp_path: Path, old: str, new: str, **asked: list[str]) -> Difference:
    assert LUMI.count(old) >= 1
    before, after = (rendered(tmp_path / "site.yaml", text, **asked) for text in (LUMI, LUMI.replace(old, new, 1)))
    return compare(before, after)


@pytest.mark.parametrize(
    ("old", "new", "group", "entry", "pair"),
    [
        (
            "  - path: /var/spool/slurmd\n    where: task\n",
            "  - path: /var/spool/slurmd\n    where: task\n    required: no\n",
            "binds",
            "/var/spool/slurmd",
            Pair("task, always, required", "task, always"),
        ),
        (
            "  - path: /opt/cray\n",
            "  - path: /opt/cray\n    required: no\n",
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
    ],
)
def test_what_changes_for_tasks_is_an_entry(
    old: str, new: str, group: str, entry: str, pair: Pair, tmp_path: Path
) -> None:
    found = changed(tmp_path, old, new)
    assert found.files
    assert list(found.tasks) == [group]
    ((name, sides),) = found.tasks[group].items()
    assert entry in name
    assert all(str(part) in str(side) for part, side in zip(pair, sides, strict=True))


def test_another_reserved_core_changes_the_cpus_of_tasks(tmp_path: Path) -> None:
    found = changed(tmp_path, "reserved: 0,8,", "reserved: 0,9,")
    assert {*found.tasks} == {"cpus"}
    pairs: Mapping[str, Pair] = found.tasks["cpus"]
    lists = [str(side).split() for side in pairs["lumi-g: tasks=8, threads=1"]]
    assert [task for task, sides in enumerate(zip(*lists, strict=True)) if len({*sides}) > 1] == [5]


def test_what_only_some_combinations_have_says_so(tmp_path: Path) -> None:
    tasks = rendered(tmp_path / "site.yaml", LUMI, cpe=["25.03", "24.03"]).manifest.tasks
    assert "/opt/cray" in tasks["module_binds"]
    assert "/usr/lib64/libjansson.so.4 in 24.03-rocm6.2" in tasks["module_binds"]


def test_what_is_the_same_is_no_entry(tmp_path: Path) -> None:
    assert not changed(tmp_path, "    why: ", "    why: in other words, ").tasks
