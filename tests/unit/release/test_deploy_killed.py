"""A deploy or rollback that is killed anywhere leaves the old or the new release, whole, and work goes on."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.release.tree import load_tree
from tests.support.killing import kills
from tests.support.trees import NEW, OLD, tree, written

pytestmark = pytest.mark.thorough

THIRD, FOURTH = "2026-07-aaaaaaaaaaaa", "2026-08-bbbbbbbbbbbb"
OUTS = {"old": OLD, "new": NEW, "third": THIRD, "fourth": FOURTH}
ALWAYS = {"open", "os.write", "os.fsync", "os.rename", "os.symlink", "os.truncate", "fcntl.flock"}


@pytest.fixture(autouse=True)
def outs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, (name, release) in enumerate(OUTS.items()):
        written(tmp_path / name, tree(release, libfabric=f"1.{number}"))
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def deploy(name: str) -> None:
    assert main(["deploy", name, "ROOT", "--apply"]) == 0


def current() -> str:
    """The release that users load, which must be whole and open to all."""
    if not os.path.lexists("ROOT/current"):
        return ""
    assert not load_tree(Path("ROOT/current")).faults
    assert stat.S_IMODE(Path("ROOT").stat().st_mode) == stat.S_IMODE(Path("ROOT/releases").stat().st_mode) == 0o755
    return Path("ROOT/current").readlink().name


def after(*names: str) -> Callable[[], None]:
    """Give what sets the scene: a root into which these were deployed, one after the other."""
    for name in names:
        deploy(name)
    if names:
        Path("ROOT").rename("before")

    def start() -> None:
        shutil.rmtree("ROOT", ignore_errors=True)
        if names:
            shutil.copytree("before", "ROOT", symlinks=True)

    return start


def goes_on(expected_before: str) -> None:
    """The next deploy and rollback work with no repair by hand, and nothing half-made is left."""
    standing = current()
    deploy("fourth")
    assert current() == FOURTH
    assert not list(Path("ROOT").rglob(".lumisite-*"))
    if not standing:
        assert main(["rollback", "ROOT"]) == 3
        return
    assert main(["rollback", "ROOT"]) == 0
    assert current() == standing
    code = main(["rollback", "ROOT"])
    assert code == (0 if expected_before else 3)
    assert current() == (expected_before or standing)


SWEEPS: Sequence[tuple[tuple[str, ...], list[str], dict[str, str]]] = [
    # what was deployed, what is killed, and for each release that may be current then the one before it
    ((), ["deploy", "new", "ROOT", "--apply"], {"": "", NEW: ""}),
    (("old",), ["deploy", "new", "ROOT", "--apply"], {OLD: "", NEW: OLD}),
    (("old", "new"), ["deploy", "old", "ROOT", "--apply"], {NEW: OLD, OLD: NEW}),
    (("old", "new"), ["rollback", "ROOT"], {NEW: OLD, OLD: ""}),
    (("old", "new", "third"), ["rollback", "ROOT"], {THIRD: NEW, NEW: OLD}),
]


@pytest.mark.parametrize(
    ("deployed", "command", "may_be"),
    SWEEPS,
    ids=["first", "second", "the first again", "back", "back from the third"],
)
def test_killed_anywhere_the_old_or_the_new_release_is_current_and_whole(
    deployed: tuple[str, ...], command: list[str], may_be: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    seen, found = set(), set()
    for change in kills(after(*deployed), lambda: main(command)):
        seen.add(change.split()[0])
        standing = current()
        found.add(standing)
        assert standing in may_be, change
        goes_on(may_be[standing])
        capfd.readouterr()
    assert found == set(may_be), "a kill after the link was moved, and one before"
    assert seen >= ALWAYS


def test_killed_anywhere_a_second_attempt_at_the_same_deploy_works(capfd: pytest.CaptureFixture[str]) -> None:
    for change in kills(after("old"), lambda: main(["deploy", "new", "ROOT", "--apply"])):
        deploy("new")
        assert current() == NEW, change
        assert main(["rollback", "ROOT"]) == 0
        assert current() == OLD, change
        capfd.readouterr()


def test_everything_is_on_the_disk_before_its_name_and_the_link_comes_last(tmp_path: Path) -> None:
    """What a power cut leaves is decided by the order of fsync and rename, so the order itself is looked at."""
    deploy("old")
    log = tmp_path / "log"
    child = os.fork()
    if child == 0:
        try:
            _record(log)
            main(["deploy", "new", "ROOT", "--apply"])
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    events = log.read_text().splitlines()
    names = [event.split()[0] for event in events]
    root = f"{tmp_path}/ROOT"
    renames = [number for number, name in enumerate(names) if name == "os.rename"]
    assert [events[number].split()[2].removeprefix(root) for number in renames] == [
        f"/releases/{NEW}",
        "/history",
        "/current",
    ]
    release, history, link = renames
    temporary = events[release].split()[1]
    files = [
        *(path for path, file in tree(NEW).items() if not file.is_link),
        "",
        "modules",
        "modules/singularity-CPEbits",
        "spank",
        "spank/bin",
    ]
    synced = {event.split()[1] for event in events[:release] if event.startswith("fsync")}
    assert synced >= {f"{temporary}/{path}".rstrip("/") for path in files}
    assert f"fsync {root}/releases" in events[release:history]
    assert f"fsync {events[history].split()[1]}" in events[release:history]
    assert f"fsync {root}" in events[history:link]
    assert events[-1] == f"fsync {root}"


def _record(log: Path) -> None:
    """Log every fsync and rename of this process."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT)

    def fsync(of: int) -> None:
        os.write(descriptor, f"fsync {Path(f'/proc/self/fd/{of}').readlink()}\n".encode())

    def audit(event: str, args: tuple[object, ...]) -> None:
        if event == "os.rename":
            os.write(descriptor, f"os.rename {args[0]} {args[1]}\n".encode())

    os.fsync = fsync  # type: ignore[assignment]  # only in this child
    sys.addaudithook(audit)
