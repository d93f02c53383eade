"""The task prolog's private directories: where they are, whose they are, who may enter; and how little else it touches."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from pathlib import Path

import pytest

from lumisite.site.load import load_site
from tests.support.prologs import ROOT, STEP, Ran, Script, is_root, lumi_like
from tests.support.tools import traced
from tests.unit.render.test_prolog import rendered, sound

#: The variables that name private directories, and one of them.
CACHES = {setting.name for setting in lumi_like().site.settings if setting.directory}
DB = "MIOPEN_USER_DB_PATH"


def private(ran: Ran) -> Path:
    return Path(ran.exports[DB])


def test_only_the_user_can_enter_whatever_the_umask_and_each_step_has_the_same(prolog: Script, tmp_path: Path) -> None:
    before = os.umask(0o007)
    try:
        ran = sound(prolog.step())
    finally:
        os.umask(before)
    place = Path(ran.exports["LUMISITE_PRIVATE"])
    assert place == tmp_path / f"tmp/lumisite-{os.getuid()}"
    assert stat.S_IMODE(place.stat().st_mode) == 0o1700
    for name in (DB, "MIOPEN_CUSTOM_CACHE_DIR"):
        path = Path(ran.exports[name])
        assert path.is_relative_to(place)
        assert {stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent)} == {0o700}
    assert (place / ".space").stat().st_size == 0
    assert private(sound(prolog.step(SLURM_STEP_ID="1"))) == private(ran)


def test_ranks_that_start_together_agree_and_have_their_own_where_programs_cannot_share(prolog: Script) -> None:
    environments = [{**STEP, "SLURM_LOCALID": str(rank), "SLURM_PROCID": str(rank)} for rank in range(8)]
    running = [
        subprocess.Popen([*prolog.command, str(prolog.path)], env=environment, stdout=subprocess.PIPE, text=True)
        for environment in environments
    ]
    answers = [sound(Ran(process.wait(), process.communicate()[0], "")) for process in running]
    assert len({private(answer) for answer in answers}) == 1
    assert private(answers[0]).is_dir()
    for rank in range(8):
        place = Path(answers[0].exports["LUMISITE_PRIVATE"]) / f"aiter/{rank}"
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
        assert (place / "build").is_dir()


@pytest.mark.parametrize(
    "kind",
    [
        "link",
        "dangling link",
        "file",
        0o777,
        0o700,
        pytest.param("another user", marks=pytest.mark.skipif(not is_root(), reason="only root can give it away")),
    ],
)
def test_what_stood_in_its_place_before_is_not_used(prolog: Script, tmp_path: Path, kind: str | int) -> None:
    usual, home = tmp_path / f"tmp/lumisite-{os.getuid()}", tmp_path / "home"
    home.mkdir()
    if kind in ("link", "dangling link"):
        usual.symlink_to(home if kind == "link" else tmp_path / "nowhere")
    elif kind == "file":
        usual.touch()
    else:
        usual.mkdir()
        usual.chmod(kind if isinstance(kind, int) else 0o1777)
        os.chown(usual, *((65534,) * 2 if kind == "another user" else (-1, -1)))
    place = private(sound(prolog.step()))
    assert place.is_relative_to(f"{usual}-{STEP['SLURM_JOB_ID']}")
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert list(home.iterdir()) == []
    assert not (tmp_path / "nowhere").exists()


def test_no_directory_where_others_could_rename_it(prolog: Script, tmp_path: Path) -> None:
    """/tmp without the sticky bit belongs to whoever is fastest; root owns it here only if root runs the test."""
    (tmp_path / "tmp").chmod(0o777)
    if is_root():
        os.chown(tmp_path / "tmp", 65534, 65534)
    assert (DB in sound(prolog.step()).exports) != is_root()


TMP = f"  - {{path: {ROOT}/tmp, kind: node-local, writable: yes, in_memory: yes,"
LOCAL = f"  - {{path: {ROOT}/local, kind: node-local, writable: yes, why: the disk of the node, source: UG}}\n"


def test_a_missing_place_leaves_the_next_one_and_without_any_the_variables_stay_unset(
    prolog: Script, tmp_path: Path
) -> None:
    two = rendered(prolog, tmp_path, (TMP, LOCAL + TMP))
    assert private(sound(two.step())).is_relative_to(tmp_path / "tmp")
    (tmp_path / "local").mkdir()
    assert private(sound(two.step())).is_relative_to(tmp_path / "local")
    for place in ("local", "tmp"):
        (tmp_path / place).rename(tmp_path / f"{place}-gone")
    ran = sound(two.step(SLURM_LOCALID="0", LUMISITE_VERBOSE="1"))
    assert not CACHES & set(ran.exports)
    assert sum(": no directory for caches in " in line for line in ran.prints) == 2
    without = "nid005124 has no place for private directories, so caches go where programs put them"
    assert f"lumisite: {without}" in ran.prints
    assert not sound(two.step(SLURM_LOCALID="1")).prints


def test_a_users_own_cache_directory_makes_no_other(prolog: Script, tmp_path: Path) -> None:
    assert not CACHES & set(sound(prolog.step(**dict.fromkeys(CACHES, "/mine"))).exports)
    assert list((tmp_path / "tmp").iterdir()) == []


# ---- processes that it starts, and files that it looks at

#: Where a node keeps its own system: no shared file system is mounted there.
LOCAL_FOLDERS = ("/lib", "/usr/lib", "/usr/bin/", "/bin/", "/usr/sbin/", "/sbin/", "/etc/", "/proc/", "/dev/", "/sys/")


def test_it_forks_little_and_looks_at_nothing_shared_but_itself_and_the_policy(prolog: Script, tmp_path: Path) -> None:
    """Twice for directories on a node, once for the mask. The test site's /usr stands for a shared file system."""
    step = {**STEP, "SLURM_TASK_PID": str(os.getpid())}
    command = [*prolog.command, str(prolog.path)]
    first, second = (traced("%process,%file", command, step, tmp_path / "strace.log") for _ in range(2))
    forks = [sum(bool(re.match(r"\d+ +(v?fork|clone3?)\(", call)) for call in calls) for calls in (first, second)]
    assert forks == [3, 1]
    calls = [call for call in second if "execve" not in call]
    assert sum(str(prolog.path) in call for call in calls if re.search(r"\bopen(at)?\(", call)) == 1
    named = {name for call in calls for name in re.findall(r'"(/[^"]*)"', call)}
    assert {name for name in named if name.startswith(f"{prolog.path.parent}/")} == {str(prolog.path)}
    assert "/usr" not in named
    others = {name for name in named if not name.startswith((*LOCAL_FOLDERS, "/selinux", str(tmp_path)))}
    assert {name for name in others if not str(tmp_path).startswith(name)} == {f"{load_site('lumi').site.root}/policy"}
