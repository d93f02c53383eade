"""Writing a rendered tree: whole, with fixed modes, and never over anything that is not lumisite's own."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from lumisite.errors import DifferenceError, LumisiteError, ToolError
from lumisite.release.files import write_tree
from lumisite.release.tree import FaultsError, load_tree
from lumisite.render.manifest import RenderedFile
from lumisite.text import printable
from tests.support.rendered_trees import NEW, OLD, everything, tree, written


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_tree_is_written_with_every_file_of_its_manifest_and_not_touched_by_the_same_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert write_tree(tree(), out)
    for path, file in tree().items():
        assert (str((out / path).readlink()) if file.is_link else (out / path).read_text()) == file.text
    assert load_tree(out).faults == ()
    assert names(tmp_path) == ["out"]
    before = (everything(tmp_path), out.stat().st_ino)
    assert not write_tree(tree(), out)
    assert (everything(tmp_path), out.stat().st_ino) == before


def test_another_tree_takes_its_place_and_leaves_nothing_of_the_old(tmp_path: Path) -> None:
    """Nor is anything lost with a file that was removed, or a mode that was changed."""
    out = written(tmp_path / "out", tree(OLD, cpe="24.03"))
    (out / "spank/task_prolog").unlink()
    (out / "spank/bin/singularity").chmod(0o600)
    assert write_tree(tree(), out)
    assert (load_tree(out).manifest.release, load_tree(out).faults) == (NEW, ())
    assert not (out / "modules/singularity-CPEbits/24.03.lua").exists()
    assert names(tmp_path) == ["out"]


def test_a_folder_of_somebody_is_refused_untouched(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("years of work")
    before = everything(tmp_path)
    with pytest.raises(DifferenceError, match="out-unfit"):
        write_tree(tree(), tmp_path / "out")
    assert everything(tmp_path) == before


def edit(out: Path) -> None:
    (out / "spank/task_prolog").write_text("#!/bin/sh\n# my fix\n")


def replace_by_link(out: Path) -> None:
    (out / "spank/task_prolog").unlink()
    (out / "spank/task_prolog").symlink_to("/etc/passwd")


def replace_folder_by_link(out: Path) -> None:
    (out / "spank").rename(out.parent / "elsewhere")
    (out / "spank").symlink_to("../elsewhere")


def odd_name(out: Path) -> None:
    Path(os.fsdecode(bytes(out / "modules") + b"/\xff\n\x1b[31m")).write_text("")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (edit, "spank/task_prolog release-edited"),
        (replace_by_link, "spank/task_prolog release-edited"),
        (replace_folder_by_link, "spank release-edited"),
        (odd_name, r"'modules/\udcff\n\x1b[31m' release-edited"),
    ],
)
def test_what_somebody_put_in_is_refused_and_named(tmp_path: Path, change: Callable[[Path], None], named: str) -> None:
    out = written(tmp_path / "out")
    change(out)
    before = everything(tmp_path)
    with pytest.raises(FaultsError) as caught:
        write_tree(tree(OLD), out)
    assert named in [f"{printable(fault.subject)} {fault.code}" for fault in caught.value.faults]
    assert caught.value.finding.code == "out-unfit"
    assert everything(tmp_path) == before


@pytest.mark.parametrize("path", ["../x", "/x", "a\nx"])
def test_a_path_that_leaves_the_tree_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(LumisiteError, match="not a path of a rendered tree"):
        write_tree({**tree(), path: RenderedFile("")}, tmp_path / "out")
    assert names(tmp_path) == []


def test_the_folder_that_the_user_is_in_is_not_pulled_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = written(tmp_path / "out", tree(OLD))
    monkeypatch.chdir(out / "modules")
    with pytest.raises(LumisiteError, match="out-unfit"):
        write_tree(tree(), Path(".."))
    monkeypatch.chdir(out)
    assert not write_tree(tree(OLD), Path())


@pytest.mark.parametrize("old", [False, True], ids=["new", "over another"])
def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, old: bool) -> None:
    out = tmp_path / "made" / "out"
    out.parent.mkdir()
    if old:
        written(out, tree(OLD))
    before = everything(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, hard))
    try:
        with pytest.raises(ToolError, match=f"^{out}/MANIFEST.json: cannot write: File too large"):
            write_tree(tree(), out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    # The mtime of the parent has changed with the temporary folder.
    contents = [(path, found[2]) for path, found in everything(tmp_path).items()]
    assert contents == [(path, found[2]) for path, found in before.items()]
