"""`binds` and `images` say of what a user may not read that it cannot be read, with the command, and not that it is gone."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.errors import ToolError
from lumisite.images import lock
from lumisite.machine.host import list_directory
from tests.support.dict_trees import write_tree
from tests.support.elves import elf
from tests.support.nodes import AFTER, LATEST, lumi_node

pytestmark = pytest.mark.usefixtures("at_lumi")

SIF = f"/appl/local/laifs/containers/lumi-multitorch-{AFTER.image}"
IMAGE = {
    "/.singularity.d/labels.json": b"{}",
    "/lib64/libc.so.6": elf("libc.so.6", verdef=["GLIBC_2.38"]),
    "/lib64/ld-linux-x86-64.so.2": elf("ld-linux-x86-64.so.2"),
}


@pytest.fixture(name="top", scope="module")
def _top() -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("another user can only be tried by root")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        write_tree(Path(folder) / "node", lumi_node())
        write_tree(Path(folder) / "image", IMAGE)
        yield Path(folder)


def as_user(place: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run a command as somebody else, while a place is closed."""
    main(words)  # which also imports all that it needs
    capsys.readouterr()
    mode = place.stat().st_mode
    place.chmod(0o700 if place.is_dir() else 0o600)
    os.seteuid(65534)
    try:
        status = main(words)
    finally:
        os.seteuid(0)
        place.chmod(mode)
    said = capsys.readouterr()
    return status, said.out + said.err


@pytest.mark.parametrize(
    ("path", "library"),
    [
        ("node/usr/lib64/libcxi.so.1.6.0", "libcxi.so.1"),
        ("node/usr/lib64/libjson-c.so.5", "libjson-c.so.5"),
        ("node/usr/lib64", "libcxi.so.1"),
        ("node/opt/cray/libfabric", "libfabric.so.1"),
        ("node/opt/cray/libfabric/1.22.0", "libfabric.so.1"),
    ],
)
def test_binds_says_what_of_the_host_cannot_be_read(
    path: str, library: str, top: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["binds", str(top / "image"), "--host-root", str(top / "node"), "--family", "lumi-rocm"]
    status, said = as_user(top / path, words, capsys)
    told = said.partition(f"missing   {library}")[2].partition("\n")[2].partition("\n")[0]
    assert status == 1
    assert told.startswith("    the host has none that can be read: ")
    assert told.count(f"chmod o+{'rx' if (top / path).is_dir() else 'r'} {top / path})") == 1
    assert "libfabric is in" not in said


@pytest.mark.parametrize("path", ["image", "image/lib64"])
def test_binds_says_what_of_an_unpacked_image_cannot_be_read(
    path: str, top: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["binds", str(top / "image"), "--host-root", str(top / "node"), "--family", "lumi-rocm"]
    _, said = as_user(top / path, words, capsys)
    assert [line.count(f"chmod o+rx {top / path}") for line in said.splitlines() if "chmod" in line] == [1]


@pytest.mark.parametrize(
    "path", [f"{SIF}/lumi-multitorch-full-{AFTER.image}.sif", SIF, "/appl/local/laifs/containers", "/appl/local/laifs"]
)
def test_images_says_what_cannot_be_read(path: str, top: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = top / "node" / path[1:]
    words = ["images", "--host-root", str(top / "node"), *([LATEST] if path.startswith(SIF) else [])]
    status, said = as_user(place, words, capsys)
    assert status == 1
    assert f"(chmod o+{'rx' if place.is_dir() else 'r'} {place})" in said
    assert "which is not there" not in said


def test_a_lock_that_is_closed_comes_with_the_command_that_opens_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read everything, so the refusal of the system is made here."""

    def refuse(path: Path, _most: int) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(lock, "read_file", refuse)
    with pytest.raises(ToolError) as caught:
        lock.read_optional(Path("/images.lock"))
    assert caught.value.finding.advice == "chmod o+r /images.lock"


def test_a_directory_whose_name_cannot_be_is_refused_with_a_code() -> None:
    with pytest.raises(ToolError) as caught:
        list_directory("/a\0b")
    assert caught.value.finding.code == "system-refused"
