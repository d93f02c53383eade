"""Damaged libraries and images, through a bind plan and through the command line."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lumisite.binds.plan_file import reason_of
from lumisite.cli import main
from tests.support.closures import decided, stock
from tests.support.dict_trees import Link, write_tree
from tests.support.elves import elf

pytestmark = pytest.mark.usefixtures("at_lumi")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (elf("libcxi.so.1", order=">"), "is for another machine (x86-64, 64 bits, big-endian)"),
        (
            elf("libcxi.so.1", bits=32, order=">", machine=20),
            "is for another machine (20, 32 bits, big-endian)",
        ),
        (b"", "cannot be loaded: e_ident at byte 0 "),
        (b"\x7fELF" + bytes(60), "cannot be loaded: e_ident at byte 0 "),
        (elf("libcxi.so.1")[:200], "cannot be loaded: PT_DYNAMIC at byte "),
    ],
    ids=["big-endian", "32 bits and big-endian", "zero bytes", "no class", "cut"],
)
def test_a_library_that_no_loader_takes_is_named_with_its_file(content: bytes, reason: str) -> None:
    line = decided(["libcxi.so.1"], {"/lib64/libcxi.so.1": content}, stock("suse155", "/lib64"))["libcxi.so.1"]
    assert line.decision in ("refuse", "missing")
    assert f"/lib64/libcxi.so.1 {reason}" in reason_of(line)


def test_an_image_that_leads_to_itself_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("loop.sif").symlink_to("loop.sif")
    assert main(["binds", "loop.sif"]) == 3
    assert capsys.readouterr().err.startswith("lumisite: loop.sif: cannot read: Too many levels of symbolic links")


@pytest.mark.parametrize("format_", [[], ["--json"]], ids=["table", "json"])
@pytest.mark.parametrize("name", ["\udcff", "a\nb", "\x1b[2J"])
def test_a_link_to_a_name_that_does_not_print_is_spelled_out(
    capsys: pytest.CaptureFixture[str], name: str, format_: list[str]
) -> None:
    write_tree(Path("host"), {"/usr/lib64/libcxi.so.1": Link(f"/{name}"), "/lib64/x": b""})
    write_tree(Path("image"), {"/lib64/x": b""})
    assert main(["binds", "image", "--host-root", "host", "--family", "lumi-rocm", *format_]) == 1
    output = capsys.readouterr().out
    output.encode()
    assert "leads to '/" in output.replace("\\\\", "\\")
    assert all(line.isprintable() for line in output.splitlines())


NOBODY = 65534


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that any user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="lumisite-damage-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def as_nobody(call: Callable[[], int]) -> int:
    """Run something as a user who is not root, for whom a file may be closed; gives its exit code."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            if os.geteuid() == 0:
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            code = call()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_what_may_not_be_read_is_one_line_or_a_reason(open_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    closed = open_folder / "closed.sif"
    closed.write_bytes(b"x")
    write_tree(open_folder / "host", {"/usr/lib64/libcxi.so.1": elf("libcxi.so.1"), "/lib64/x": b""})
    write_tree(open_folder / "image", {"/lib64/x": b""})
    arguments = ["--host-root", str(open_folder / "host"), "--family", "lumi-rocm"]
    assert main(["binds", str(open_folder / "image"), *arguments]) == 1
    assert "bind      libcxi.so.1" in capfd.readouterr().out
    closed.chmod(0)
    (open_folder / "host/usr/lib64/libcxi.so.1").chmod(0)
    assert as_nobody(lambda: main(["binds", str(closed), *arguments])) == 3
    assert f"{closed}: cannot read: Permission denied (chmod o+r {closed})" in capfd.readouterr().err

    def planned() -> int:
        code = main(["binds", str(open_folder / "image"), *arguments])
        print(end="", flush=True)
        return code

    assert as_nobody(planned) == 1
    opened = f"chmod o+r {open_folder}/host/usr/lib64/libcxi.so.1"
    told = (
        f"the host has none that can be read: /usr/lib64/libcxi.so.1; /usr/lib64/libcxi.so.1 may not be read ({opened})"
    )
    assert told in capfd.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        "render --rocm 6.2 --out round",
        "env --site lumi round",
        "validate --resume round",
        "validate --out round",
        "report round",
        "deploy round root",
        "binds round",
        "check round/site.yaml",
    ],
)
def test_links_that_go_round_are_one_line(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("round").symlink_to("other")
    Path("other").symlink_to("round")
    code = main(words.split())
    told = capsys.readouterr().err
    assert (code, told.count("\n")) in ((2, 1), (3, 1), (0, 1)), told
