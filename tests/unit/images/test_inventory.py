"""Where image names lead and what is in them; what cannot be read is said with what would open it."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from lumisite.cli import main
from lumisite.site.load import load_site
from tests.support.closures import stock
from tests.support.dict_trees import Files, Link, write_tree
from tests.support.elves import elf
from tests.support.images import LATEST, NEW, OLD, Output, image_folder, laif, listing, needs_mksquashfs
from tests.support.nodes import AFTER, lumi_node

pytestmark = [pytest.mark.usefixtures("at_lumi"), needs_mksquashfs]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
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


def test_an_unpacked_image_is_one_image(tmp_path: Path, capsys: Output) -> None:
    write_tree(tmp_path / "sandbox", laif() | {"/.singularity.d/labels.json": b'{"a": "1"}'})
    write_tree(tmp_path / "folder.sif", {"/etc/os-release": b""})
    entry = listing(capsys, str(tmp_path / "sandbox"))["sandbox"]
    assert (entry["digest"], entry["size"], entry["fault"]) == (None, None, "")
    entry = listing(capsys, str(tmp_path), code=1)["folder.sif"]
    assert "[no-image]" in entry["fault"]


@pytest.mark.parametrize(
    ("name", "make", "fault"),
    [
        ("a\nb:c,d'e\"f .sif", b"text", "[no-image]"),
        ("gone.sif", Link("no.sif"), "leads to {folder}/no.sif, which is not there"),
        ("loop.sif", Link("loop.sif"), "is a loop of links"),
        ("cut.sif", 30_000, "byte 128: of {size} bytes"),
        ("pipe.sif", None, "neither a file nor a directory"),  # which is not waited for
    ],
)
def test_a_bad_image_is_one_line_and_not_the_end(
    folder: Path, capsys: Output, name: str, make: bytes | int | Link | None, fault: str
) -> None:
    content = (folder / OLD).read_bytes()
    if isinstance(make, Link):
        (folder / name).symlink_to(make.to)
    elif make is None:
        os.mkfifo(folder / name)
    else:
        (folder / name).write_bytes(content[:make] if isinstance(make, int) else make)
    entries = listing(capsys, str(folder), code=1)
    size = int.from_bytes(content[128 + 25 : 128 + 33], "little")
    assert fault.format(folder=folder, size=size) in entries[name]["fault"]
    assert [image for image, entry in entries.items() if entry["fault"]] == [name]
    assert main(["images", str(folder)]) == 1
    output = capsys.readouterr()
    assert output.err == "lumisite: 4 images, 1 cannot be used\n"
    assert len(output.out.splitlines()) < 20


def test_the_images_of_the_site_are_the_default(folder: Path, capsys: Output) -> None:
    text = load_site("lumi").data.decode()
    Path("site.yaml").write_text(text.replace("/appl/local/laifs/containers,", f"{folder},"))
    entries = listing(capsys, "--site", "site.yaml", code=1)
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
    entries = listing(capsys, "--host-root", str(top), "/appl/images", "--site", "twin")
    assert entries[LATEST]["path"] == f"/appl/images/{LATEST}"
    assert entries[LATEST]["target"] == f"/pfs/images/{OLD}"
    assert entries[LATEST]["why"] == "image family twin-torch (by its path, /appl/images/*)"


# ---- names that lead to an image of another family

LAIF, CONTAINERS = "/appl/local/laifs/containers", "/appl/local/containers"
PYTORCH = f"{CONTAINERS}/lumi-pytorch-rocm-6.2.4-python-3.12-pytorch-v2.7.1.sif"


def image_at(path: str) -> Files:
    files = {**stock("suse155", "/lib64"), "/.singularity.d/labels.json": b"{}"}
    return {f"{path}{name}": content for name, content in files.items()}


@pytest.mark.parametrize(
    ("files", "name", "family"),
    [
        ({**image_at(f"{LAIF}/new.sif"), PYTORCH: Link(f"{LAIF}/new.sif")}, PYTORCH, "laif-multitorch"),
        (
            {**image_at(f"{LAIF}/new.sif"), CONTAINERS: Link("laifs/containers")},
            *(f"{CONTAINERS}/new.sif", "laif-multitorch"),
        ),
        ({**image_at("/data/one.sif"), PYTORCH: Link("/data/one.sif")}, PYTORCH, "lumi-pytorch"),
    ],
    ids=["a link to a file", "in a folder of links", "to what its own name does not tell"],
)
def test_images_and_binds_recognise_a_name_by_what_it_leads_to(
    tmp_path: Path, capsys: Output, files: Files, name: str, family: str
) -> None:
    write_tree(tmp_path / "host", {**files, "/usr/lib64/.keep": b""})
    assert listing(capsys, "--host-root", "host", name)[Path(name).name]["family"] == family
    main(["binds", f"host{name}", "--host-root", "host", "--write", "plan.yaml"])
    assert f"lumisite: image family {family} (by its path" in capsys.readouterr().err
    plan = yaml.safe_load(Path("plan.yaml").read_text())
    assert (plan["family"], plan["paths"][0]) == (family, name), "the paths are those of the host"
    assert str(tmp_path) not in json.dumps(plan["paths"])


# ---- what a user may not read, which is not gone


@pytest.fixture(name="top", scope="module")
def _top() -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("another user can only be tried by root")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        write_tree(Path(folder) / "node", lumi_node())
        labels, loader = "/.singularity.d/labels.json", "/lib64/ld-linux-x86-64.so.2"
        libc = elf("libc.so.6", verdef=["GLIBC_2.38"])
        files = {labels: b"{}", "/lib64/libc.so.6": libc, loader: elf("ld-linux-x86-64.so.2")}
        write_tree(Path(folder) / "image", files)
        yield Path(folder)


def as_user(place: Path, words: list[str], capsys: Output) -> tuple[int, str]:
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
    output = capsys.readouterr()
    return status, output.out + output.err


@pytest.mark.parametrize(
    ("path", "library"),
    [
        ("node/usr/lib64/libcxi.so.1.6.0", "libcxi.so.1"),
        ("node/usr/lib64", "libcxi.so.1"),
        ("node/opt/cray/libfabric", "libfabric.so.1"),
        ("image/lib64", ""),
    ],
)
def test_binds_says_what_cannot_be_read_with_the_command_that_opens_it(
    path: str, library: str, top: Path, capsys: Output
) -> None:
    words = ["binds", str(top / "image"), "--host-root", str(top / "node"), "--family", "lumi-rocm"]
    status, text = as_user(top / path, words, capsys)
    command = f"chmod o+{'rx' if (top / path).is_dir() else 'r'} {top / path}"
    if library:
        line = text.partition(f"missing   {library}")[2].splitlines()[1]
        assert line.startswith("    the host has none that can be read: ")
        assert (status, line.count(f"{command})")) == (1, 1)
    else:
        assert [line.count(command) for line in text.splitlines() if "chmod" in line] == [1]


@pytest.mark.parametrize("path", [f"{LAIF}/lumi-multitorch-{AFTER.image}", "/appl/local/laifs"])
def test_images_says_what_cannot_be_read_with_the_command_that_opens_it(path: str, top: Path, capsys: Output) -> None:
    place = top / "node" / path[1:]
    status, text = as_user(place, ["images", "--host-root", str(top / "node"), f"{LAIF}/{LATEST}"], capsys)
    assert (status, f"(chmod o+rx {place})" in text, "which is not there" in text) == (1, True, False)
