"""Reading a SIF, a squashfs, or the folder that one was unpacked to; a bad one is one error that names the byte."""

from __future__ import annotations

import os
import random
import struct
import sys
import tracemalloc
from pathlib import Path

import pytest

from lumisite.errors import ToolError
from lumisite.images.sif import open_image
from lumisite.images.squashfs import ImageError, read_squashfs
from lumisite.machine.tree import Tree, resolve
from tests.support import images
from tests.support.damaged import mutated
from tests.support.dict_trees import Link, Memory, write_tree
from tests.support.images import PRIMARY, SQUASHFS, needs_mksquashfs, primary, sif, squash

SUPERBLOCK = struct.Struct("<4sIIIIHHHHHHQQQQQQQQ")


def source_tree(top: Path, *, large: bool = True) -> Path:
    """A folder with everything that squashfs stores in a way of its own."""
    choose = random.Random(3)
    files: dict[str, bytes | Link] = {
        "/empty": b"",
        "/small": b"small",
        "/usr/lib64/one-block": choose.randbytes(4096),
        "/usr/lib64/many-blocks": choose.randbytes(4096 * 7 + 13),
        "/usr/lib64/zeros": bytes(4096 * 5),
        "/usr/lib64/text": b"a line of text\n" * 3000,
        "/lib64": Link("usr/lib64"),
        "/absolute": Link("/usr/lib64/text"),
        "/long": Link("x" * 3000),
        "/name-\u00e9\u4e2d": b"name",
    }
    if large:  # so many names that the directory has a header of its own for each 256, and an index
        files.update({f"/many/a-name-that-takes-some-room-{number:05d}": b"%d" % number for number in range(1000)})
    write_tree(top, files)
    (top / "no-names").mkdir()
    os.mkfifo(top / "pipe")
    return top


def contents(tree: Tree, path: str = "/") -> dict[str, bytes | str | None]:
    """Return every file of a tree with its content, every link with where it leads, and folders that are empty."""
    found: dict[str, bytes | str | None] = {}
    for name in tree.names(path) if path.count("/") < 9 else ():  # damage may put a folder into itself
        inner = path.rstrip("/") + "/" + name
        entry = tree.look(inner)
        assert entry is not None, inner
        if entry.kind == "directory":
            found.update(contents(tree, inner) or {inner: None})
        elif entry.kind == "link":
            found[inner] = entry.link
        elif entry.kind == "other":
            found[inner] = None
        else:
            file = tree.source(inner)
            assert file is not None
            found[inner] = file.read(0, file.size + 10)
    return found


@needs_mksquashfs
@pytest.mark.parametrize(
    "options",
    [
        ("-comp", "zstd"),
        ("-comp", "xz", "-Xbcj", "x86"),
        ("-comp", "gzip", "-b", "4096", "-no-fragments"),
        ("-comp", "gzip", "-b", "4096", "-always-use-fragments", "-no-xattrs"),
        ("-comp", "zstd", "-noI", "-noD", "-noF", "-b", "4096"),
    ],
    ids=" ".join,
)
def test_every_file_of_a_squashfs_is_read_as_it_went_in(tmp_path: Path, options: tuple[str, ...]) -> None:
    tree = source_tree(tmp_path / "tree")
    image = open_image(str(squash(tree, tmp_path / "image.sqfs", *options)))
    unpacked = open_image(str(tree)).tree
    assert contents(image.tree) == contents(unpacked)
    assert resolve(unpacked, "/lib64/text").path == "/usr/lib64/text"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    top = tmp_path_factory.mktemp("small")
    tree = source_tree(top / "tree", large=False)
    return squash(tree, top / "image", "-comp", "zstd", "-b", "4096").read_bytes()


def opened(content: bytes) -> Tree:
    Path("image.sif").write_bytes(content)
    return open_image("image.sif").tree


@needs_mksquashfs
def test_a_sif_is_read_where_its_primary_partition_is(small: bytes) -> None:
    parts = [(images.DEFINITION, b"Bootstrap: docker", 0, 0), (images.PARTITION, b"hsqs", SQUASHFS, images.SYSTEM)]
    tree = opened(sif(*parts, (images.PARTITION, small, SQUASHFS, PRIMARY)))
    file = tree.source(resolve(tree, "/lib64/text").path)
    assert file is not None
    assert file.read(15, 30) == b"a line of text\n" * 2
    assert file.read(4090, 12) == (b"a line of text\n" * 3000)[4090:4102]
    assert file.read(44_990, 100) == b"e of text\n"[-10:]
    assert file.read(99_999, 5) == b""


@needs_mksquashfs
def test_an_overlay_in_a_sif_is_said_to_be_left_out(small: bytes) -> None:
    root = (images.PARTITION, small, SQUASHFS, PRIMARY)
    Path("image.sif").write_bytes(sif(root, (images.PARTITION, b"x", images.EXT3, images.OVERLAY)))
    assert [note.code for note in open_image("image.sif").notes] == ["image-unsupported"]


def superblock(**changes: int) -> bytes:
    names = ("inodes", "time", "block", "fragments", "compression", "log", "flags", "ids", "major", "minor", "root")
    values = dict.fromkeys((*names, "used"), 0)
    values |= {"block": 131072, "log": 17, "compression": 1, "major": 4, "used": 96} | changes
    return SUPERBLOCK.pack(b"hsqs", *values.values(), 0, 0, 0, 0, 0, 0).ljust(4096, b"\0")


ROOT = 28672  # where the first part of a SIF begins


@pytest.mark.parametrize(
    ("content", "code", "byte"),
    [
        (b"", "no-image", None),
        (b"PK\3\4" * 20, "no-image", 0),
        (primary(superblock())[:2000], "image-damaged", 128),
        (sif(version=b"02\0"), "image-unsupported", 42),
        (sif((images.DEFINITION, b"x", 0, 0)), "image-unsupported", None),
        (sif((images.OCI_INDEX, b"{}", 0, 0)), "image-unsupported", None),
        (primary(b"", images.ENCRYPTED), "image-unsupported", 128),
        (primary(b"", images.EXT3), "image-unsupported", 128),
        (primary(superblock())[: ROOT + 900], "image-damaged", 128),
        (primary(bytes(4096)), "image-damaged", ROOT),
        (primary(superblock(major=3)), "image-unsupported", ROOT),
        (primary(superblock(compression=5)), "image-unsupported", ROOT),
        (primary(superblock(used=9999)), "image-damaged", ROOT),
    ],
    ids=[
        *("empty", "something else", "cut in the list", "version 02", "no partition", "OCI", "encrypted", "ext3"),
        *("cut", "not squashfs", "version 3", "lz4", "cut inside"),
    ],
)
def test_a_bad_image_is_one_error_that_names_the_file_and_the_byte(content: bytes, code: str, byte: int | None) -> None:
    with pytest.raises(ImageError) as caught:
        opened(content)
    finding = caught.value.finding
    assert (finding.code, finding.subject) == (code, "image.sif")
    assert finding.message.startswith("" if byte is None else f"byte {byte}: ")


def test_without_the_module_for_zstd_the_advice_is_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "compression" if sys.version_info >= (3, 14) else "backports", None)
    with pytest.raises(ImageError) as caught:
        opened(superblock(compression=6))
    assert caught.value.finding.message == "byte 0: packed with zstd, which this Python cannot unpack"
    assert "pip install backports.zstd" in caught.value.finding.advice


def test_what_is_no_image_or_not_there_is_refused(tmp_path: Path) -> None:
    write_tree(tmp_path, {"/releases/a/MANIFEST.json": b"{}", "/current": Link("releases/a")})
    with pytest.raises(ImageError) as caught:
        open_image(str(tmp_path))
    assert caught.value.finding.code == "no-image"
    with pytest.raises(ToolError, match=r"gone\.sif: cannot read: No such file or directory"):
        open_image("gone.sif")
    with pytest.raises(ToolError, match="embedded null byte"):
        open_image("a\0b")


@needs_mksquashfs
def test_an_inode_of_absurd_size_is_damaged(tmp_path: Path) -> None:
    """Else a link could be as long as the image."""
    tree = write_tree(tmp_path / "tree", {"/long": Link("x" * 3000)})
    content = squash(tree, tmp_path / "image", "-noI").read_bytes()
    size_at = content.index(b"x" * 3000) - 4
    image = read_squashfs(Memory("image", content[:size_at] + b"\xff" * 4 + content[size_at + 4 :]))
    with pytest.raises(ImageError, match=r"^image: byte \d+: a damaged inode "):
        image.look("/long")


@needs_mksquashfs
def test_an_image_of_20_gigabytes_takes_no_more_memory(tmp_path: Path, small: bytes) -> None:
    gigabyte = 1024**3
    image = tmp_path / "image.sif"
    image.write_bytes(primary(small))
    with image.open("r+b") as stream:
        stream.truncate(20 * gigabyte)
        stream.seek(128)
        stream.write(images.descriptor(images.PARTITION, 11 * gigabyte, 9 * gigabyte, file_system=1, part=PRIMARY))
        stream.seek(11 * gigabyte)
        stream.write(small)
    tracemalloc.start()
    assert contents(open_image(str(image)).tree)["/small"] == b"small"
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20 * 1024 * 1024


@needs_mksquashfs
def test_five_hundred_damaged_images_give_errors_and_no_traceback(tmp_path: Path, small: bytes) -> None:
    """A file system that is not packed shows damage everywhere, a packed one mostly as a bad block."""
    tree = source_tree(tmp_path / "tree", large=False)
    plain = squash(tree, tmp_path / "plain", "-noI", "-noD", "-noF", "-b", "4096").read_bytes()
    choose = random.Random(5)
    refused = 0
    for _ in range(500):
        try:
            contents(read_squashfs(Memory("image", damaged(choose.choice([plain, small]), choose))))
        except ImageError:
            refused += 1
    assert refused > 150


def damaged(content: bytes, choose: random.Random) -> bytes:
    """Damage where it counts: half of the time in the head, the inodes and the names, which stand at the end."""
    if choose.random() < 0.5:
        start = choose.choice([0, max(0, len(content) - 6000)])
        return content[:start] + mutated(content[start : start + 6000], choose) + content[start + 6000 :]
    return mutated(content, choose)
