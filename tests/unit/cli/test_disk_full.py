"""A file system that is really full: one line, nothing half-made, and the way back still works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.errors import ToolError
from lumisite.release.files import write_tree
from lumisite.release.tree import load_tree
from tests.support.rendered_trees import NEW, OLD, many, tree, written

pytestmark = pytest.mark.root


@pytest.mark.thorough
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a tmpfs in a name space of its own")
@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare (util-linux)")
@pytest.mark.parametrize("fail", ["render", "deploy", "rollback"])
def test_a_full_disk(tmp_path: Path, fail: str) -> None:
    mount = 'mount -t tmpfs -o size=1m,nr_inodes=1000 tmpfs "$1" && shift && exec "$@"'
    disk = tmp_path / "disk"
    disk.mkdir()
    script = [sys.executable, "-c", f"from tests.unit.cli import test_disk_full; test_disk_full.{fail}()"]
    found = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mount, "sh", str(disk), *script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stderr) == (0, "")


def fill() -> None:
    with Path("disk/filler").open("wb", buffering=0) as filler:
        try:
            while True:
                filler.write(b"x" * 4096)
        except OSError:
            return


def names(directory: str) -> list[str]:
    return sorted(path.name for path in Path(directory).iterdir())


def render() -> None:
    out = Path("disk/out")
    written(out, tree(OLD))
    for files in (many(500), many(2000)):  # no room for the bytes; no room for the names
        with pytest.raises(ToolError, match=r"disk/out/modules/module.*: cannot write: No space left on device"):
            write_tree(files, out)
        assert names("disk") == ["out"]
        assert load_tree(out).manifest.release == OLD
        assert not load_tree(out).faults


def run(*arguments: str) -> tuple[int, str, str]:
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        code = main(arguments)
    return code, out.getvalue(), err.getvalue()


def deploy() -> None:
    written(Path("old"), tree(OLD))
    written(Path("new"), many(500))
    assert run("deploy", "old", "disk/ROOT", "--apply")[0] == 0
    code, _, err = run("deploy", "new", "disk/ROOT", "--apply")
    assert code == 3
    root = Path("disk/ROOT").resolve()
    assert err.startswith(f"lumisite: {root}/releases/"), err
    assert ": cannot deploy: No space left on device" in err, err
    assert err.count("\n") == 1
    assert names("disk/ROOT/releases") == [OLD]
    assert names("disk/ROOT") == [".lock", "current", "history", "releases"]
    assert load_tree(Path("disk/ROOT/current")).manifest.release == OLD


def rollback() -> None:
    written(Path("old"), tree(OLD))
    written(Path("new"), tree(NEW))
    for name in ("old", "new"):
        assert run("deploy", name, "disk/ROOT", "--apply")[0] == 0
    fill()
    code, out, err = run("rollback", "disk/ROOT")
    assert code == 0
    assert out.endswith(f"rolled back {NEW} -> {OLD}\n")
    assert "history: could not be written; the link was moved all the same" in err
    assert load_tree(Path("disk/ROOT/current")).manifest.release == OLD
    assert names("disk/ROOT") == [".lock", "current", "history", "releases"]
