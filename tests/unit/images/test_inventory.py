"""Where image names lead and what is in them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lumisite.cli import main
from tests.support.dict_trees import Link, write_tree
from tests.support.image_folders import LATEST, NEW, OLD, Output, image_folder, listing, lumi_text
from tests.support.images import needs_mksquashfs
from tests.unit.images.test_contents import laif

pytestmark = [pytest.mark.usefixtures("at_lumi"), needs_mksquashfs]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return image_folder(tmp_path)


def test_an_alias_is_followed_and_the_image_behind_it_described(folder: Path, capsys: Output) -> None:
    entries = listing(capsys, str(folder))
    assert list(entries) == [Path(OLD).name, Path(NEW).name, LATEST]
    latest = entries[LATEST]
    assert (latest["links"], latest["target"]) == ([OLD], str(folder / OLD))
    assert (latest["family"], latest["why"]) == (
        "laif-multitorch",
        "image family laif-multitorch (by its path, */lumi-multitorch-*.sif)",
    )
    assert latest["size"] == (folder / OLD).stat().st_size
    assert latest["versions"]["torch"]["value"] == "2.9.1"
    assert latest["digest"] == entries[Path(OLD).name]["digest"] != entries[Path(NEW).name]["digest"]


def test_the_list_for_people_says_the_same(folder: Path, capsys: Output) -> None:
    assert main(["images", str(folder / LATEST)]) == 0
    output = capsys.readouterr()
    lines = output.out.splitlines()
    assert lines[:2] == [str(folder / LATEST), f"    -> {OLD}"]
    assert lines[2].startswith("    image family laif-multitorch (by its path, */lumi-multitorch-*.sif); 0 MB; header:")
    assert lines[3] == ("    ROCm 6.4.4, torch 2.9.1, libfabric 2.1.0, OFI plugin 1.4.0")
    assert output.err == "lumisite: 1 image, all can be read\n"


def test_an_unpacked_image_is_one_image(tmp_path: Path, capsys: Output) -> None:
    write_tree(tmp_path / "sandbox", laif() | {"/.singularity.d/labels.json": b'{"a": "1"}'})
    write_tree(tmp_path / "folder.sif", {"/etc/os-release": b""})
    entry = listing(capsys, str(tmp_path / "sandbox"))["sandbox"]
    assert (entry["digest"], entry["size"], entry["fault"]) == (None, None, "")
    entry = listing(capsys, str(tmp_path), code=1)["folder.sif"]
    assert "[no-image]" in entry["fault"]


ODD = "a\nb:c,d'e\"f .sif"


@pytest.mark.parametrize(
    ("name", "make", "fault"),
    [
        (ODD, b"text", "[no-image]"),
        ("gone.sif", Link("no.sif"), "leads to {folder}/no.sif, which is not there"),
        ("loop.sif", Link("loop.sif"), "is a loop of links"),
        (
            "cut.sif",
            30_000,
            "byte 128: of {size} bytes",
        ),
    ],
)
def test_a_bad_image_is_one_line_and_not_the_end(
    folder: Path, capsys: Output, name: str, make: bytes | int | Link, fault: str
) -> None:
    content = (folder / OLD).read_bytes()
    if isinstance(make, Link):
        (folder / name).symlink_to(make.to)
    else:
        (folder / name).write_bytes(content[:make] if isinstance(make, int) else make)
    entries = listing(capsys, str(folder), code=1)
    size = int.from_bytes(content[128 + 25 : 128 + 33], "little")
    assert fault.format(folder=folder, size=size) in entries[name]["fault"]
    assert [one for one, entry in entries.items() if entry["fault"]] == [name]
    assert main(["images", str(folder)]) == 1
    output = capsys.readouterr()
    assert output.err == "lumisite: 4 images, 1 cannot be used\n"
    assert len(output.out.splitlines()) < 20


def test_a_directory_that_cannot_be_listed_is_one_line(
    folder: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may list everything, so the refusal of the system is made here."""
    listdir = os.listdir

    def refuse(path: str) -> list[str]:
        if path == str(folder / "secret"):
            raise PermissionError(13, "Permission denied", path)
        return listdir(path)

    (folder / "secret").mkdir()
    monkeypatch.setattr(os, "listdir", refuse)
    entries = listing(capsys, str(folder), code=1)
    assert entries["secret"]["fault"] == (
        f"{folder}/secret: cannot list: Permission denied (chmod o+rx {folder}/secret) [system-refused]"
    )
    assert entries[LATEST]["fault"] == ""


def test_the_images_of_the_site_are_the_default(folder: Path, capsys: Output) -> None:
    site = Path("site.yaml")
    site.write_text(lumi_text().replace("/appl/local/laifs/containers,", f"{folder},"))
    entries = listing(capsys, "--site", str(site), code=1)
    assert entries[LATEST]["target"] == str(folder / OLD)
    faults = [entry["fault"] for entry in entries.values() if entry["fault"]]
    assert len(faults) == 4
    assert faults[0].startswith("/appl/local/containers/cotainr-baseimages: cannot list: No such file or directory")


def test_a_copy_of_a_host_is_read_below_its_root(folder: Path, capsys: Output, tmp_path: Path) -> None:
    top = tmp_path / "host"
    (top / "appl").mkdir(parents=True)
    (top / "appl/images").symlink_to("/pfs/images")  # absolute links stay inside
    (top / "pfs").mkdir()
    folder.rename(top / "pfs/images")
    entries = listing(capsys, "--host-root", str(top), "/appl/images")
    assert entries[LATEST]["path"] == f"/appl/images/{LATEST}"
    assert entries[LATEST]["target"] == f"/pfs/images/{OLD}"
    (top / "pfs/images/bad.sif").write_bytes(b"")
    entries = listing(capsys, "--host-root", str(top), "/appl/images", "--site", "twin", code=1)
    assert "[no-image]" in entries["bad.sif"]["fault"]
    assert (entries[LATEST]["family"], entries[LATEST]["why"]) == (
        "twin-torch",
        "image family twin-torch (by its path, /appl/images/*)",
    )
