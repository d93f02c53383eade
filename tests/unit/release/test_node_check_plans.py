"""`check --host` and `render` with stored plans: what they bind, and the image that they were made for."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from lumisite.cli import main
from lumisite.images.digest import digest_of
from lumisite.machine.host import open_file
from tests.support.dict_trees import Link, write_tree
from tests.support.elves import elf
from tests.support.images import sif
from tests.support.sites import site_text
from tests.unit.release.test_node_check import LIBCXI, host

Output = pytest.CaptureFixture[str]
RCCL = "/appl/plugin/lib/librccl-net.so"
MPI = "/opt/cray/pe/mpich/8.1.32/lib/libmpi.so.12"
IMAGE = "/appl/images/torch.sif"
PLAN = f"""\
plan: 2
site: twin
platform: 2026-01
stacks: {{cpe: 25.03, rocm: 6.2.4}}
family: twin-torch
paths: [IMAGE, '*/copies/*.sif']
image: {{bytes: 5, digest: 'DIGEST'}}
library_path: [/appl/plugin/lib]
lines:
  - {{library: libcxi.so.1, decision: bind, source: {LIBCXI}, target: /lib64/libcxi.so.1, reason: r, chain: c}}
  - {{library: librccl-net.so, decision: bind, soname: librccl-net.so.0, source: {RCCL}, target: /lib/librccl-net.so, reason: r,
     chain: c}}
  - {{library: libmpi.so.12, decision: bind, source: {MPI}, target: {MPI}, by: singularity-CPEbits, reason: r, chain: c}}
  - {{library: libz.so.1, decision: skip, target: /lib64/libz.so.1, reason: r, chain: c}}
"""
GOOD: dict[str, bytes | Link] = host() | {RCCL: elf("librccl-net.so.0"), IMAGE: sif()}


def deploy(folder: Path, image: str = IMAGE) -> None:
    """Render with a plan and deploy; the host is in `host`."""
    top = write_tree(folder / "host", GOOD)
    (top / "usr/bin/apptainer").chmod(0o755)
    (folder / "site.yaml").write_text(site_text(("modules:\n", "plans: [plans/a.yaml, plans/b.yaml]\nmodules:\n")))
    (folder / "plans").mkdir()
    digest = digest_of(open_file(f"{top}{IMAGE}"))
    text = PLAN.replace("DIGEST", digest)
    (folder / "plans/a.yaml").write_text(text.replace("IMAGE", image))
    (folder / "plans/b.yaml").write_text(text.replace("IMAGE", "/appl/images/gone.sif").replace("/copies/", "/more/"))
    assert main(["render", "--site", "site.yaml", "--out", "out"]) == 0
    assert main(["deploy", "out", "root", "--apply"]) == 0


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    deploy(tmp_path)
    return tmp_path / "host"


def check(capsys: Output) -> list[dict[str, Any]]:
    capsys.readouterr()
    code = main(["check", "site.yaml", "--host", "--root", "root", "--host-root", "host", "--json"])
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert code == (1 if found else 0)
    return found


def test_a_plan_with_all_that_it_binds_is_silent(top: Path, capsys: Output) -> None:
    assert check(capsys) == []
    assert main(["check", "site.yaml", "--host", "--root", "root", "--host-root", "host"]) == 0
    said = capsys.readouterr().err
    assert "lumisite: /appl/images/gone.sif: " in said
    assert "[plan-image-missing]" in said
    assert "28 checks passed" in said, "two files and a folder more than without plans"


BOTH = "plans/a.yaml, plans/b.yaml"
FAULTS: dict[str, tuple[str, bytes | Link | None, str]] = {
    "gone": (RCCL, None, "host-path"),
    "dangling": (RCCL, Link("librccl-net.so.0"), "host-path"),
    "another SONAME": (RCCL, elf("librccl-net.so.1"), "host-library"),
    "no SONAME at all, which loads": (RCCL, elf(None), ""),
    "no library": (RCCL, b"text", "library-damaged"),
    "a folder": (f"{RCCL}/x", b"", "host-path"),
    "by a module": (MPI, elf("libmpi.so.40"), "host-library"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_what_is_wrong_with_a_planned_file_is_named(top: Path, capsys: Output, case: str) -> None:
    path, content, code = FAULTS[case]
    source = path.removesuffix("/x")
    (top / source[1:]).unlink()
    (top / "appl/plugin/lib/librccl-net.so.1").touch()
    if content is not None:
        write_tree(top, {path: content})
    found = [(one["path"], one["code"], one["expected"]) for one in check(capsys)]
    assert found == ([(source, code, BOTH)] if code else [])


def test_a_folder_of_the_library_path_that_is_gone_is_named(top: Path, capsys: Output) -> None:
    (top / "appl/plugin").rename(top / "appl/other")
    assert [(one["path"], one["code"], one["expected"]) for one in check(capsys)] == [
        ("/appl/plugin/lib", "host-path", BOTH),
    ]


def test_another_image_behind_the_path_is_a_fault(top: Path, capsys: Output) -> None:
    (top / IMAGE[1:]).write_bytes(sif((1, b"another", 0, 0)))
    (fault,) = check(capsys)
    assert (fault["path"], fault["code"]) == (IMAGE, "plan-image-changed")
    (top / IMAGE[1:]).write_bytes(b"")
    assert check(capsys)[0]["code"] == "plan-image-changed"


def test_a_pipe_in_place_of_an_image_is_not_waited_for(top: Path, capsys: Output) -> None:
    (top / IMAGE[1:]).unlink()
    os.mkfifo(top / IMAGE[1:])
    assert [one["code"] for one in check(capsys)] == ["plan-image-changed"]


def test_render_says_that_an_image_is_not_the_planned_one(tmp_path: Path, monkeypatch: Any, capsys: Output) -> None:
    monkeypatch.chdir(tmp_path)
    image = f"{tmp_path}/mine.sif"
    Path(image).write_bytes(sif())
    deploy(tmp_path, image)
    assert "mine.sif" not in capsys.readouterr().err
    Path(image).write_bytes(sif((1, b"another", 0, 0)))
    assert main(["render", "--site", "site.yaml", "--out", "out"]) == 0
    assert f"lumisite: {image}: " in (err := capsys.readouterr().err)
    assert "[plan-image-changed]" in err
