"""The lock of images: what moved, changed, broke or vanished, and what that touches."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from lumisite.cli import main
from lumisite.errors import ToolError
from lumisite.images import lock as lock_of_images
from lumisite.images.digest import digest_of
from lumisite.images.lock import format_lock, parse_lock, unlike_lock
from lumisite.machine.host import open_file
from lumisite.site.load import load_site
from tests.support.dict_trees import Memory, write_tree
from tests.support.images import LATEST, NEW, OLD, Output, image_folder, laif, make_sif, needs_mksquashfs, squash
from tests.support.sites import printed_codes

pytestmark = [pytest.mark.usefixtures("at_lumi"), needs_mksquashfs]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return image_folder(tmp_path)


def lock(folder: Path, *words: str) -> Path:
    assert main(["images", str(folder), "--lock", "images.lock", *words]) == 0
    return Path("images.lock")


def changes(capsys: Output, *words: str, code: int = 1) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["images", "--check", "--lock", "images.lock", "--json", *words]) == code
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, list)
    return found


def retarget(folder: Path) -> None:
    """Let the alias lead to the new image."""
    (folder / LATEST).unlink()
    (folder / LATEST).symlink_to(NEW)


def test_the_same_images_give_the_same_lock(folder: Path, capsys: Output) -> None:
    before = lock(folder).read_bytes()
    time = Path("images.lock").stat().st_mtime_ns
    lock(folder)
    assert Path("images.lock").read_bytes() == before
    assert Path("images.lock").stat().st_mtime_ns == time
    assert capsys.readouterr().err.endswith("images.lock: is the same already\n")
    os.utime(folder / OLD, (1, 1))  # what a copy or a touch changes is no content
    assert changes(capsys, code=0) == []
    assert format_lock(parse_lock(before, "images.lock", "lumi")).encode() == before


def test_a_moved_alias_names_both_files_and_what_differs(folder: Path, capsys: Output) -> None:
    lock(folder)
    retarget(folder)
    (change,) = changes(capsys)
    assert (change["path"], change["kind"]) == (str(folder / LATEST), "moved")
    assert (change["before"]["target"], change["after"]["target"]) == (str(folder / OLD), str(folder / NEW))
    assert main(["images", "--check", "--lock", "images.lock"]) == 1
    output = capsys.readouterr()
    assert output.out.splitlines() == [
        f"moved     {folder / LATEST}",
        f"    leads to {folder / NEW}, before to {folder / OLD}",
        "    torch 2.9.1 -> 2.10.0",
    ]
    assert output.err == "lumisite: 3 images, 1 differ from images.lock\n"


def test_every_difference_has_its_kind(folder: Path, capsys: Output) -> None:
    for name in ("stays.sif", "goes.sif", "breaks.sif"):
        make_sif(folder / name, {"/etc/a": b"1"})
    lock(folder)
    (folder / "goes.sif").unlink()
    (folder / "breaks.sif").write_bytes(b"")
    make_sif(folder / "comes.sif", {"/etc/a": b"1"})
    make_sif(folder / OLD, {"/etc/a": b"2"})
    shutil.copy2(folder / NEW, folder / "copy.sif")
    (folder / "copy.sif").rename(folder / NEW)  # the same content is no change
    assert [(Path(change["path"]).name, change["kind"]) for change in changes(capsys)] == [
        ("goes.sif", "vanished"),
        ("breaks.sif", "broken"),
        (Path(OLD).name, "changed"),
        (LATEST, "changed"),
        ("comes.sif", "new"),
    ]


def test_what_was_broken_and_stays_so_is_no_difference(folder: Path, capsys: Output) -> None:
    (folder / "bad.sif").write_bytes(b"")
    assert main(["images", str(folder), "--lock", "images.lock"]) == 1
    assert changes(capsys, code=0) == []
    make_sif(folder / "bad.sif", {"/etc/a": b"1"})
    (change,) = changes(capsys)
    assert change["what"][0] == "can be read again (before: no-image)"


def test_given_paths_are_remembered_and_can_be_fewer(folder: Path, capsys: Output) -> None:
    lock(folder)
    retarget(folder)
    (folder / NEW).unlink()
    assert len(changes(capsys)) == 2
    assert [change["kind"] for change in changes(capsys, str(folder / LATEST))] == ["vanished"]
    assert changes(capsys, str(folder / OLD), code=0) == []


def test_an_unpacked_image_is_compared_by_what_it_states(tmp_path: Path, capsys: Output) -> None:
    sandbox = write_tree(tmp_path / "a.sif", laif() | {"/.singularity.d/labels.json": b"{}"})
    lock(tmp_path)
    (sandbox / "opt/rocm-6.4.4/.info/version").write_text("7.0.2-56\n")
    (sandbox / "opt/rocm").unlink()
    (change,) = changes(capsys)
    assert change["what"] == ["other content under the same name", "ROCm 6.4.4 -> 7.0.2"]


def test_an_image_that_is_not_as_the_sites_lock_has_it_is_found_by_its_header(folder: Path) -> None:
    text = load_site("lumi").data.decode()
    assert text.count("\nimages:\n") == 1
    Path("site.yaml").write_text(text.replace("\nimages:\n", "\nimages:\n  lock: images.lock\n"))
    loaded, path = load_site("./site.yaml"), str(folder / OLD)
    digits = digest_of(open_file(path)).partition(":")[2][:16]
    assert unlike_lock(loaded, path, "0" * 16) is None, "no lock"
    lock(folder, "--site", "site.yaml")
    assert unlike_lock(loaded, path, digits) is None
    assert [unlike_lock(loaded, *other) for other in ((path, ""), ("/other.sif", "0" * 16))] == [None, None]
    found = unlike_lock(loaded, path, "0" * 16)
    assert found is not None
    assert (found.code, found.subject) == ("locked-image-changed", path)


def test_the_digest_sees_what_its_page_says(folder: Path, tmp_path: Path) -> None:
    content = (folder / OLD).read_bytes()

    def is_seen(changed: bytes) -> bool:
        return digest_of(Memory("a", content)) != digest_of(Memory("b", changed))

    assert not is_seen(content)
    assert is_seen(content + b"\0")
    assert is_seen(content[:-1])
    assert all(is_seen(_flipped(content, at)) for at in (5, 50, 70, 130)), "launch script, id, times and table"
    assert is_seen(content.replace(b"20260225", b"20260226")), "a small part of the SIF"
    squash(write_tree(tmp_path / "t", {"/big": os.urandom(300_000)}), tmp_path / "a.sqfs")
    content = (tmp_path / "a.sqfs").read_bytes()
    assert is_seen(_flipped(content, 8)), "the time in the head of the file system"
    assert not is_seen(_flipped(content, 100_000)), "content that changes in place"


def _flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


# ---- bad locks


@pytest.mark.parametrize("name", [OLD, LATEST])
def test_no_other_file_is_replaced_by_a_lock(folder: Path, capsys: Output, name: str) -> None:
    before = (folder / name).read_bytes()
    assert main(["images", str(folder), "--lock", str(folder / name)]) == 2
    assert "it is not replaced" in capsys.readouterr().err
    assert (folder / name).read_bytes() == before


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"site": "lumi"', '"site": "twin"', ":{n}:11: site: keys-contradict"),
        ('"digest": "header:', '"digest": "header:x', ":{n}:17: images.{image}.digest: value-wrong"),
        ('"images": {', '"images": {"x": {},', ":{n}:19: images.x: value-wrong"),
        ('"given": [', '"given": ', ":4:3: file-unreadable"),
    ],
)
def test_a_damaged_lock_is_named_with_line_and_key(
    folder: Path, capsys: Output, old: str, new: str, message: str
) -> None:
    path = lock(folder)
    text = path.read_text()
    assert old in text
    number = text[: text.index(old)].count("\n") + 1
    path.write_text(text.replace(old, new, 1))
    capsys.readouterr()
    assert main(["images", "--check", "--lock", "images.lock"]) == 2
    error = capsys.readouterr().err
    expected = message.replace("{n}", str(number)).replace("{image}", str(folder / OLD))
    assert (printed_codes(error), error.count("\n")) == (f"images.lock{expected}", 1)


def test_usage_that_makes_no_sense_is_refused(folder: Path, capsys: Output) -> None:
    for words, message in (
        (["--check"], "--check: needs --lock FILE"),
        (["--check", "--lock", "no.lock"], "(`lumisite images --lock no.lock` writes it)"),
        (["--lock", str(folder)], "it is not a file but a directory"),
    ):
        assert main(["images", *words]) in (2, 3)
        assert message in capsys.readouterr().err


def test_a_lock_that_is_closed_comes_with_the_command_that_opens_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read everything, so the refusal of the system is made here."""

    def refuse(path: Path, _most: int) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(lock_of_images, "read_file", refuse)
    with pytest.raises(ToolError) as caught:
        lock_of_images.read_optional(Path("/images.lock"))
    assert caught.value.finding.advice == "chmod o+r /images.lock"
