from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from lumisite.binds.digest import digest_of
from lumisite.binds.host import open_file
from lumisite.binds.inventory import Reading, read_inventory, wanted_of
from lumisite.binds.tree import Memory
from lumisite.cli import main
from lumisite.release.drift import compare_images
from lumisite.release.lock import format_lock, lock_of, parse_lock
from lumisite.site.load import load_site
from tests.unit.dict_trees import Files, Link, write_tree
from tests.unit.images import PARTITION, PRIMARY, SQUASHFS, needs_mksquashfs, sif, squash
from tests.unit.test_contents import laif

pytestmark = needs_mksquashfs
Output = pytest.CaptureFixture[str]
LABELS = 0x4004 + 1  # a generic part of a SIF, small


def make_sif(path: Path, files: Files, *parts: bytes) -> Path:
    work = path.with_suffix(".tree")
    squashed = squash(write_tree(work, files), path.with_suffix(".squash")).read_bytes()
    path.write_bytes(sif((PARTITION, squashed, SQUASHFS, PRIMARY), *((LABELS, part, 0, 0) for part in parts)))
    shutil.rmtree(work)
    path.with_suffix(".squash").unlink()
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two images of the LUMI AI Factory in their folders, and the alias above them."""
    monkeypatch.chdir(tmp_path)
    top = tmp_path / "containers"
    for stamp, torch in (("20260225", "2.9.1"), ("20260513", "2.10.0")):
        version = f"__version__ = '{torch}'\n".encode()
        files = laif() | {"/opt/venv/lib/python3.12/site-packages/torch/version.py": version}
        (top / f"lumi-multitorch-{stamp}").mkdir(parents=True)
        make_sif(top / f"lumi-multitorch-{stamp}/lumi-multitorch-full-{stamp}.sif", files, stamp.encode())
    (top / "lumi-multitorch-latest.sif").symlink_to("lumi-multitorch-20260225/lumi-multitorch-full-20260225.sif")
    return top


OLD, NEW = (f"lumi-multitorch-{stamp}/lumi-multitorch-full-{stamp}.sif" for stamp in ("20260225", "20260513"))
LATEST = "lumi-multitorch-latest.sif"


def listing(capsys: Output, *words: str, code: int = 0) -> dict[str, dict[str, Any]]:
    assert main(["images", *words, "--json"]) == code
    return {Path(entry["path"]).name: entry for entry in json.loads(capsys.readouterr().out)}


def retarget(folder: Path, to: str = NEW) -> None:
    (folder / LATEST).unlink()
    (folder / LATEST).symlink_to(to)


def test_an_alias_is_followed_and_the_image_behind_it_described(folder: Path, capsys: Output) -> None:
    entries = listing(capsys, str(folder))
    assert list(entries) == [Path(OLD).name, Path(NEW).name, LATEST]
    latest = entries[LATEST]
    assert (latest["links"], latest["target"]) == ([OLD], str(folder / OLD))
    assert (latest["family"], latest["why"]) == ("laif-multitorch", "by its path, */lumi-multitorch-*.sif")
    assert latest["size"] == (folder / OLD).stat().st_size
    assert latest["versions"]["torch"]["value"] == "2.9.1"
    assert latest["versions"]["glibc"] == {"value": "2.39", "of": "/usr/lib/x86_64-linux-gnu/libc.so.6"}
    assert latest["digest"] == entries[Path(OLD).name]["digest"] != entries[Path(NEW).name]["digest"]


def test_the_list_for_people_says_the_same(folder: Path, capsys: Output) -> None:
    assert main(["images", str(folder / LATEST)]) == 0
    output = capsys.readouterr()
    lines = output.out.splitlines()
    assert lines[:2] == [str(folder / LATEST), f"    -> {OLD}"]
    assert lines[2].startswith("    laif-multitorch (by its path, */lumi-multitorch-*.sif); 0 MB; header:")
    assert lines[3] == (
        "    ROCm 6.4.4, torch 2.9.1, libfabric 2.1.0, OFI plugin 1.4.0, libcxi libcxi.so.1.5.0, glibc 2.39, Python 3.12.3"
    )
    assert output.err == "lumisite: 1 image, all can be read\n"


def test_an_unpacked_image_is_one_image(tmp_path: Path, capsys: Output) -> None:
    write_tree(tmp_path / "sandbox", laif() | {"/.singularity.d/labels.json": b'{"a": "1"}'})
    write_tree(tmp_path / "folder.sif", {"/etc/os-release": b""})
    entry = listing(capsys, str(tmp_path / "sandbox"))["sandbox"]
    assert (entry["digest"], entry["size"], entry["fault"], entry["labels"]) == (None, None, "", {"a": "1"})
    entry = listing(capsys, str(tmp_path), code=1)["folder.sif"]
    assert entry["fault"] == "is a directory, without the .singularity.d of an unpacked image"


ODD = "a\nb:c,d'e\"f .sif"


@pytest.mark.parametrize(
    ("name", "make", "fault"),
    [
        ("empty.sif", b"", "is empty, where a SIF or an unpacked image would be right"),
        (ODD, b"text", "byte 0: is neither a SIF nor a squashfs file, it begins with b'text'"),
        ("gone.sif", Link("no.sif"), "leads to {folder}/no.sif, which is not there"),
        ("loop.sif", Link("loop.sif"), "is a loop of links"),
        (
            "cut.sif",
            30_000,
            "byte 128: its root file system is cut: of its {size} bytes from byte 28672 on 1328 are there",
        ),
        ("head.sif", 100, "byte 0: the file ends in the header of the SIF (it has 100 bytes)"),
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
    assert entries[name]["fault"] == fault.format(folder=folder, size=size)
    assert [one for one, entry in entries.items() if entry["fault"]] == [name]
    assert main(["images", str(folder)]) == 1
    output = capsys.readouterr()
    assert output.err == "lumisite: 4 images, 1 cannot be used\n"
    assert len(output.out.splitlines()) < 20


def test_a_pipe_and_a_huge_file_take_no_time(folder: Path, capsys: Output) -> None:
    os.mkfifo(folder / "pipe.sif")
    content = (folder / OLD).read_bytes()
    with (folder / "sparse.sif").open("wb") as stream:
        stream.write(content)
        stream.truncate(20 * 1024**3)
    entries = listing(capsys, str(folder), code=1)
    assert entries["pipe.sif"]["fault"] == "is neither a file nor a directory"
    assert (entries["sparse.sif"]["size"], entries["sparse.sif"]["fault"]) == (20 * 1024**3, "")


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
    assert entries["secret"]["fault"] == f"cannot list {folder}/secret: Permission denied"
    assert entries[LATEST]["fault"] == ""


def test_the_images_of_the_site_are_the_default(folder: Path, capsys: Output) -> None:
    site = Path("site.yaml")
    site.write_text(_lumi().replace("/appl/local/laifs/containers,", f"{folder},"))
    entries = listing(capsys, "--site", str(site), code=1)
    assert entries[LATEST]["target"] == str(folder / OLD)
    faults = [entry["fault"] for entry in entries.values() if entry["fault"]]
    assert len(faults) == 4
    assert faults[0] == "cannot list /appl/local/containers/cotainr-baseimages: No such file or directory"


def _lumi() -> str:
    return load_site("lumi").data.decode()


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
    assert entries["bad.sif"]["fault"] == "is empty, where a SIF or an unpacked image would be right"
    assert (entries[LATEST]["family"], entries[LATEST]["why"]) == ("twin-torch", "by its path, /appl/images/*")


# The lock


def lock(folder: Path, *words: str) -> Path:
    assert main(["images", str(folder), "--lock", "images.lock", *words]) == 0
    return Path("images.lock")


def changes(capsys: Output, *words: str, code: int = 1) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["images", "--check", "--lock", "images.lock", "--json", *words]) == code
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, list)
    return found


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


def test_a_moved_alias_names_what_it_touches(folder: Path, capsys: Output) -> None:
    lock(folder)
    retarget(folder)
    (change,) = changes(capsys)
    assert (change["path"], change["kind"]) == (str(folder / LATEST), "moved")
    assert change["what"] == [
        f"leads to {folder / NEW}, not to {folder / OLD}; the content is another",
        "torch 2.9.1 -> 2.10.0",
    ]
    assert change["families"] == ["laif-multitorch"]
    assert change["modules"] == ["singularity-userfilesystems", "singularity-AI-bindings"]
    assert main(["images", "--check", "--lock", "images.lock"]) == 1
    output = capsys.readouterr()
    assert output.out.splitlines() == [
        f"moved     {folder / LATEST}",
        f"    leads to {folder / NEW}, not to {folder / OLD}; the content is another",
        "    torch 2.9.1 -> 2.10.0",
        "    touches family laif-multitorch; modules singularity-userfilesystems, singularity-AI-bindings",
    ]
    assert output.err == "lumisite: 3 images, 1 differ from images.lock\n"


def test_every_difference_has_its_kind(folder: Path, capsys: Output) -> None:
    make_sif(folder / "stays.sif", {"/etc/a": b"1"})
    make_sif(folder / "goes.sif", {"/etc/a": b"1"})
    make_sif(folder / "breaks.sif", {"/etc/a": b"1"})
    lock(folder)
    (folder / "goes.sif").unlink()
    (folder / "breaks.sif").write_bytes(b"")
    make_sif(folder / "comes.sif", {"/etc/a": b"1"})
    make_sif(folder / OLD, {"/etc/a": b"2"})
    shutil.copy2(folder / NEW, folder / "copy.sif")
    (folder / "copy.sif").rename(folder / NEW)  # the same content is no change
    found = [(Path(one["path"]).name, one["kind"]) for one in changes(capsys)]
    assert found == [
        ("goes.sif", "vanished"),
        ("breaks.sif", "broken"),
        (Path(OLD).name, "changed"),
        (LATEST, "changed"),
        ("comes.sif", "new"),
    ]


def test_an_alias_that_comes_to_dangle_has_vanished(folder: Path, capsys: Output) -> None:
    lock(folder)
    retarget(folder, "no.sif")
    (change,) = changes(capsys)
    assert (change["kind"], change["what"]) == ("vanished", [f"leads to {folder}/no.sif, which is not there"])
    assert change["families"] == ["laif-multitorch"]


def test_what_was_broken_and_stays_so_is_no_difference(folder: Path, capsys: Output) -> None:
    (folder / "bad.sif").write_bytes(b"")
    assert main(["images", str(folder), "--lock", "images.lock"]) == 1
    assert changes(capsys, code=0) == []
    make_sif(folder / "bad.sif", {"/etc/a": b"1"})
    (change,) = changes(capsys)
    assert change["what"][0].startswith("can be read again; it was: is empty")


def test_given_paths_are_remembered_and_can_be_fewer(folder: Path, capsys: Output) -> None:
    lock(folder)
    retarget(folder)
    (folder / NEW).unlink()
    assert len(changes(capsys)) == 2
    assert [one["kind"] for one in changes(capsys, str(folder / LATEST))] == ["vanished"]
    assert changes(capsys, str(folder / OLD), code=0) == []


def test_the_validation_image_and_cotainrs_are_named(folder: Path, capsys: Output) -> None:
    text = _lumi().replace("/appl/local/laifs/containers/lumi-multitorch-latest.sif", str(folder / LATEST))
    Path("site.yaml").write_text(text.replace("docker://ubuntu:24.04", str(folder / OLD)))
    lock(folder, "--site", "site.yaml")
    retarget(folder)
    (change,) = changes(capsys, "--site", "site.yaml")
    assert change["used_by"] == ["images.cotainr.lumi-c", "validation.image"]


def test_plans_for_the_image_are_named(folder: Path) -> None:
    site = load_site("lumi").site
    reading = Reading(site, site.platforms[site.platform].rocm)
    wanted = wanted_of([str(folder)], reading.tree)
    locked = lock_of("lumi", "header", (), read_inventory(reading, wanted))
    retarget(folder)
    plans = {"latest.yaml": ["*/lumi-multitorch-latest.sif"], "old.yaml": [f"*/{OLD}"], "other.yaml": ["/other/*"]}
    (change,) = compare_images(locked, read_inventory(reading, wanted), site, (), plans)
    assert change.plans == ("latest.yaml", "old.yaml")


def test_a_plan_that_the_site_names_is_named(folder: Path, capsys: Output) -> None:
    Path("site.yaml").write_text(f"{_lumi()}\nplans: [latest.yaml]\n")
    lines = ["plan: 1", "site: lumi", "platform: 2026-01", "cpe: 25.03", "rocm: 6.3.4", "family: laif-multitorch"]
    Path("latest.yaml").write_text("\n".join([*lines, f"paths: ['{folder / LATEST}']", "lines: []", ""]))
    lock(folder, "--site", "site.yaml")
    retarget(folder)
    (change,) = changes(capsys, "--site", "site.yaml")
    assert change["plans"] == ["latest.yaml"]


@pytest.mark.parametrize("kind", ["header", "whole"])
def test_a_plan_that_was_made_for_another_file_is_named(folder: Path, capsys: Output, kind: str) -> None:
    """Also where the lock has agreed to the new file since."""
    Path("site.yaml").write_text(f"{_lumi()}\nplans: [latest.yaml, other.yaml]\n")
    lines = ["plan: 1", "site: lumi", "platform: 2026-01", "cpe: 25.03", "rocm: 6.3.4", "family: laif-multitorch"]
    image = {"bytes": 1, "digest": digest_of(open_file(str(folder / OLD)), "header")}
    for name, path in (("latest.yaml", LATEST), ("other.yaml", OLD)):
        text = [*lines, f"paths: ['*/{path}']", f"image: {json.dumps(image)}", "lines: []", ""]
        Path(name).write_text("\n".join(text))
    lock(folder, "--site", "site.yaml", "--digest", kind)
    assert changes(capsys, "--site", "site.yaml", code=0) == []
    retarget(folder)
    (change,) = changes(capsys, "--site", "site.yaml")
    assert change["kind"] == "moved"
    assert change["what"][-1] == "is another file than latest.yaml was made for"
    lock(folder, "--site", "site.yaml", "--digest", kind)
    (change,) = changes(capsys, "--site", "site.yaml")
    assert (change["kind"], change["plans"]) == ("stale", ["latest.yaml"])
    assert main(["images", "--check", "--lock", "images.lock", "--site", "site.yaml"]) == 1
    assert "    is another file than latest.yaml was made for\n" in capsys.readouterr().out


def test_an_unpacked_image_is_compared_by_what_it_states(tmp_path: Path, capsys: Output, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    sandbox = write_tree(tmp_path / "a.sif", laif() | {"/.singularity.d/labels.json": b"{}"})
    write_tree(tmp_path / "b.sif", {"/.singularity.d/labels.json": b"{}"})
    (tmp_path / "latest.sif").symlink_to("a.sif")
    lock(tmp_path)
    (sandbox / "opt/rocm-6.4.4/.info/version").write_text("7.0.2-56\n")
    (sandbox / "opt/rocm").unlink()
    (tmp_path / "latest.sif").unlink()
    (tmp_path / "latest.sif").symlink_to("b.sif")
    moved, changed = changes(capsys)
    assert changed["what"] == ["has other content under the same name", "ROCm 6.4.4 -> 7.0.2"]
    assert moved["what"][0] == f"leads to {tmp_path}/b.sif, not to {tmp_path}/a.sif"


# Digests


def test_header_and_whole_see_what_they_say(folder: Path) -> None:
    path = folder / OLD
    content = path.read_bytes()

    def digests(changed: bytes) -> tuple[bool, bool]:
        """Whether header and whole see a change."""
        one, other = Memory("a", content), Memory("b", changed)
        return (
            digest_of(one, "header") != digest_of(other, "header"),
            digest_of(one, "whole") != digest_of(other, "whole"),
        )

    assert digests(content) == (False, False)
    assert digests(content + b"\0") == (True, True)
    assert digests(content[:-1]) == (True, True)
    seen = {
        name: digests(_flipped(content, at)) for name, at in {"launch": 5, "id": 50, "times": 70, "table": 130}.items()
    }
    assert set(seen.values()) == {(True, True)}
    assert digests(content.replace(b"20260225", b"20260226")) == (True, True)  # a small part of the SIF
    root = int.from_bytes(content[128 + 17 : 128 + 25], "little")
    assert digests(_flipped(content, root + 8)) == (True, True)  # the time in the head of the file system
    whole, _, header = str(digest_of(open_file(str(path)), "whole")).partition(":")
    assert (whole, len(header)) == ("whole", 64)


def test_content_that_changes_in_place_is_seen_by_whole_only(tmp_path: Path, capsys: Output) -> None:
    """The honest limit of the quick digest, as its page says."""
    squash(write_tree(tmp_path / "t", {"/big": os.urandom(300_000)}), tmp_path / "a.sqfs")
    content = (tmp_path / "a.sqfs").read_bytes()
    one, other = Memory("a", content), Memory("b", _flipped(content, 1000))
    assert digest_of(one, "header") == digest_of(other, "header")
    assert digest_of(one, "whole") != digest_of(other, "whole")


def _flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def test_the_lock_says_which_digest_it_has(folder: Path, capsys: Output) -> None:
    lock(folder, "--digest", "whole")
    assert changes(capsys, code=0) == []
    assert main(["images", "--check", "--lock", "images.lock", "--digest", "header"]) == 2
    assert "has digests of kind whole, which header cannot be compared with" in capsys.readouterr().err


# Bad locks


def test_no_other_file_is_replaced_by_a_lock(folder: Path, capsys: Output) -> None:
    for name in (OLD, LATEST):
        before = (folder / name).read_bytes()
        assert main(["images", str(folder), "--lock", str(folder / name)]) == 2
        assert "it is not replaced" in capsys.readouterr().err
        assert (folder / name).read_bytes() == before
    lock(folder)
    assert main(["images", str(folder), "--lock", "images.lock", "--site", "twin"]) == 2
    assert "is a lock of site lumi, not of twin" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '"site": "lumi"',
            '"site": "twin"',
            ":{n}: site: is a lock of site twin, not of lumi (give --site, or another --lock)",
        ),
        ('"site": "lumi"', '"site": 5', ":{n}: site: 5 is wrong (the name of a site would be right)"),
        (
            '"lumisite_images": 1',
            '"lumisite_images": 2',
            ":{n}: lumisite_images: 2 is a format that is not read here (1 is)",
        ),
        ('"lumisite_images": 1', '"lumisite": 1', ":1: is no lock of images (it would have the key lumisite_images)"),
        (
            '"digest": "header"',
            '"digest": "half"',
            ':{n}: digest: "half" is not known here (header or whole would be right)',
        ),
        ('"digest": "header:', '"digest": "header:x', ":{n}: images.{image}.digest: "),
        (
            '"family": "laif-multitorch"',
            '"family": []',
            ":{n}: images.{image}.family: [] is wrong (a text would be right)",
        ),
        (
            '"size": ',
            '"size": -0.5, "b": ',
            ":{n}: images.{image}.size: -0.5 is wrong (a number of bytes would be right)",
        ),
        ('"given": [', '"given": [1, ', ":{n}: given: "),
        ('"images": {', '"image": {', ":1: images is missing (an object with a key for each image would be right)"),
        ('"images": {', '"images": {"x": {},', ":{n}: images.x: is no absolute path"),
        ('"given": [', '"given": ', ":5:3: is no JSON: Expecting ',' delimiter"),
        (
            '"site": "lumi"',
            '"site": "lumi", "site": "lumi"',
            ": is no lock of images: the key site stands twice in one object",
        ),
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
    message = message.replace("{n}", str(number))
    assert error.startswith("lumisite: images.lock" + message.replace("{image}", str(folder / OLD)))
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"\xff", b"[" * 100_000, b"null", b'{"lumisite_images": true}', b"{} x"]
)
def test_what_is_no_lock_is_said_in_one_line(folder: Path, capsys: Output, content: bytes) -> None:
    Path("images.lock").write_bytes(content)
    assert main(["images", "--check", "--lock", "images.lock"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("lumisite: images.lock:")
    assert error.count("\n") == 1


def test_usage_that_makes_no_sense_is_refused(folder: Path, capsys: Output) -> None:
    for words, said in (
        (["--check"], "--check: needs --lock FILE"),
        (["--check", "--lock", "no.lock"], "--lock: no.lock is not there"),
        (["--systems", "s.json", "--lock", "x"], "--systems: goes with --site and --host-root only"),
        (["--lock", str(folder)], "it is not a file"),
        (["--lock", "a\0b"], "cannot read 'a\\x00b'"),
    ):
        assert main(["images", *words]) in (2, 3)
        assert said in capsys.readouterr().err


def test_a_lock_that_cannot_be_written_names_its_file(folder: Path, capsys: Output) -> None:
    assert main(["images", str(folder), "--lock", "no/where.lock"]) == 3
    assert capsys.readouterr().err.endswith("lumisite: cannot write no/where.lock: No such file or directory\n")
    assert not list(Path().glob(".lumisite*"))


# cotainr


def cotainr_site(folder: Path) -> str:
    text = _lumi()
    start = text.index("  cotainr:\n", text.index("\nimages:\n"))
    end = text.index("# ---", start)
    systems = "  cotainr:\n    lumi-c: {base_image: 'docker://ubuntu:24.04', source: s}\n"
    systems += f"    lumi-g: {{base_image: {folder / LATEST}, source: s}}\n\n"
    Path("site.yaml").write_text(text[:start] + systems + text[end:])
    return "site.yaml"


def test_systems_name_files_instead_of_aliases(folder: Path, capsys: Output) -> None:
    site = cotainr_site(folder)
    Path("systems.json").write_text('{"old": {"base-image": "x"}, "lumi-g": {"base-image": "y", "more": 1}}')
    assert main(["images", "--site", site, "--systems", "systems.json"]) == 0
    assert json.loads(Path("systems.json").read_text()) == {
        "lumi-c": {"base-image": "docker://ubuntu:24.04"},
        "lumi-g": {"base-image": str(folder / OLD), "more": 1},
        "old": {"base-image": "x"},
    }
    assert capsys.readouterr().err.splitlines() == [
        "lumisite: systems.json: old: is not in the site description, and is kept",
        "lumisite: images.cotainr.lumi-c: docker://ubuntu:24.04 may come to mean another image (one with @sha256: may not)",
        "lumisite: systems.json: written",
    ]
    assert main(["images", "--site", site, "--systems", "systems.json"]) == 0
    assert capsys.readouterr().err.endswith("systems.json: is the same already\n")


def test_a_base_image_that_is_gone_is_not_written(folder: Path, capsys: Output) -> None:
    site = cotainr_site(folder)
    retarget(folder, "no.sif")
    assert main(["images", "--site", site, "--systems", "systems.json"]) == 1
    assert capsys.readouterr().err == (
        f"images.cotainr.lumi-g: {folder / LATEST}: leads to {folder}/no.sif, which is not there\n"
        "lumisite: systems.json was not written\n"
    )
    assert not Path("systems.json").exists()


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"a": 1}', b'{"a": {}}', b"\xff"])
def test_what_is_no_systems_json_is_kept(folder: Path, capsys: Output, content: bytes) -> None:
    Path("systems.json").write_bytes(content)
    assert main(["images", "--site", cotainr_site(folder), "--systems", "systems.json"]) == 1
    assert "so it is not replaced" in capsys.readouterr().err
    assert Path("systems.json").read_bytes() == content


def test_a_site_without_systems_says_so(folder: Path, capsys: Output) -> None:
    text = _lumi()
    start = text.index("  cotainr:\n", text.index("\nimages:\n"))
    Path("site.yaml").write_text(text[:start] + text[text.index("# ---", start) :])
    assert main(["images", "--site", "site.yaml", "--systems", "systems.json"]) == 2
    assert "site lumi names no system of cotainr (add images.cotainr to it)" in capsys.readouterr().err
