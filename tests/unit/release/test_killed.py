"""A deploy or rollback that is killed anywhere leaves the old or the new release, whole, and work goes on."""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.release.tree import load_tree
from tests.support.killing import kills
from tests.support.rendered_trees import NEW, OLD, THIRD, current, deploy, tree, written
from tests.unit.release.conftest import Run

FOURTH = "2026-08-bbbbbbbbbbbb"
#: What each deploy and rollback does, and may be killed at.
ALWAYS = {"open", "os.write", "os.fsync", "os.rename", "os.symlink", "os.truncate", "fcntl.flock"}


def before(*names: str) -> Callable[[], None]:
    """Return what makes a root into which some releases were deployed, one after the other, a year ago."""
    deploy(*names)
    if names:
        history = Path("ROOT/history")
        steps = [json.loads(line) | {"time": "2025-01-01T00:00:00Z"} for line in history.read_text().splitlines()]
        history.write_text("".join(f"{json.dumps(step)}\n" for step in steps))
        Path("ROOT").rename("before")

    def start() -> None:
        shutil.rmtree("ROOT", ignore_errors=True)
        if names:
            shutil.copytree("before", "ROOT", symlinks=True)

    return start


def release_of_users() -> str:
    """Return the release that users load, empty for none; it and all that is there beside it are whole."""
    if not os.path.lexists("ROOT/current"):
        return ""
    for release in Path("ROOT/releases").glob("2*"):
        assert not load_tree(release).faults
    assert stat.S_IMODE(Path("ROOT").stat().st_mode) == stat.S_IMODE(Path("ROOT/releases").stat().st_mode) == 0o755
    return current()


def work_goes_on(way_back: str) -> None:
    """The next deploy and rollback work with no repair by hand, and nothing half-made is left."""
    found = release_of_users()
    deploy("fourth")
    assert current() == FOURTH
    assert not list(Path("ROOT").rglob(".lumisite-*"))
    if found:
        assert main(["rollback", "ROOT"]) == 0
        assert current() == found
    assert main(["rollback", "ROOT"]) == (0 if way_back else 3)
    assert current() == (way_back or found or FOURTH)


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize(
    ("deployed", "command", "may_be"),
    [
        # What was deployed, what is killed, and for each release that may be current then the one before it.
        (("old", "new"), ["deploy", "third", "ROOT", "--apply", "--keep", "1"], {NEW: OLD, THIRD: NEW}),
        pytest.param((), ["deploy", "new", "ROOT", "--apply"], {"": "", NEW: ""}, marks=pytest.mark.thorough),
        pytest.param(("old", "new"), ["rollback", "ROOT"], {NEW: OLD, OLD: ""}, marks=pytest.mark.thorough),
    ],
    ids=["a deploy that removes the oldest release", "the first deploy", "rollback"],
)
def test_killed_anywhere_the_old_or_the_new_release_is_current_and_whole(
    deployed: tuple[str, ...], command: list[str], may_be: dict[str, str]
) -> None:
    written(Path("fourth").absolute(), tree(FOURTH, libfabric="3.0"))
    changes, found = set(), set()
    for change in kills(before(*deployed), lambda: main(command)):
        changes.add(change.split()[0])
        release = release_of_users()
        found.add(release)
        assert release in may_be, change
        work_goes_on(may_be[release])
    assert found == set(may_be), "a kill after the link was moved, and one before"
    assert changes >= ALWAYS


def test_everything_is_on_the_disk_before_its_name_and_the_link_comes_last(run: Run, tmp_path: Path) -> None:
    """What a power cut leaves is decided by the order of fsync and rename."""
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
    root = f"{tmp_path}/ROOT"
    release, history, link = (number for number, event in enumerate(events) if event.startswith("os.rename"))
    assert [events[number].split()[2].removeprefix(root) for number in (release, history, link)] == [
        f"/releases/{NEW}",
        "/history",
        "/current",
    ]
    temporary = events[release].split()[1]
    files = [path for path, file in tree(NEW).items() if not file.is_link]
    folders = ["", "/modules", "/modules/singularity-CPEbits", "/spank", "/spank/bin"]
    names = {temporary + folder for folder in folders} | {f"{temporary}/{path}" for path in files}
    assert {event.split()[1] for event in events[:release] if event.startswith("fsync")} >= names
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
