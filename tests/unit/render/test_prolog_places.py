"""Where the task prolog makes private directories: in the first of the site's places that takes them."""

from __future__ import annotations

from pathlib import Path

from tests.support.prologs import ROOT, Script, lay_out, lumi_like, render_files, shell_command
from tests.unit.render.test_prolog import sound

TMP = f"  - {{path: {ROOT}/tmp, kind: node-local, writable: yes, in_memory: yes,"
LOCAL = f"  - {{path: {ROOT}/local, kind: node-local, writable: yes, why: the disk of the node, source: UG}}\n"
CACHE = "MIOPEN_USER_DB_PATH"


def test_a_missing_place_leaves_the_next_one_and_without_any_the_variables_stay_unset(tmp_path: Path) -> None:
    files = render_files(lumi_like((TMP, LOCAL + TMP)), rocm=("6.2",))
    script = Script(tuple(shell_command("dash", tmp_path)), lay_out(tmp_path, files) / "task_prolog")
    assert Path(sound(script.step()).exports[CACHE]).is_relative_to(tmp_path / "tmp")
    (tmp_path / "local").mkdir()
    assert Path(sound(script.step()).exports[CACHE]).is_relative_to(tmp_path / "local")
    for place in ("local", "tmp"):
        for entry in sorted((tmp_path / place).rglob("*"), reverse=True):
            entry.rmdir() if entry.is_dir() else entry.unlink()
        (tmp_path / place).rmdir()
    ran = sound(script.step(LUMISITE_VERBOSE="all"))
    assert CACHE not in ran.exports
    for place in ("local", "tmp"):
        assert any(f": no directory for caches in {tmp_path}/{place}: " in line for line in ran.prints)
