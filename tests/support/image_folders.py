"""Folders of images with an alias, and what `images` says of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from lumisite.cli import main
from lumisite.site.load import load_site
from tests.support.dict_trees import Files, write_tree
from tests.support.images import PARTITION, PRIMARY, SQUASHFS, sif, squash
from tests.unit.images.test_contents import laif

Output = pytest.CaptureFixture[str]
LABELS = 0x4004 + 1  # a generic part of a SIF, small


def make_sif(path: Path, files: Files, *parts: bytes) -> Path:
    work = path.with_suffix(".tree")
    squashed = squash(write_tree(work, files), path.with_suffix(".squash")).read_bytes()
    path.write_bytes(sif((PARTITION, squashed, SQUASHFS, PRIMARY), *((LABELS, part, 0, 0) for part in parts)))
    shutil.rmtree(work)
    path.with_suffix(".squash").unlink()
    return path


def image_folder(tmp_path: Path) -> Path:
    """Two images of the LUMI AI Factory in their folders, and the alias above them."""
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


def lumi_text() -> str:
    return load_site("lumi").data.decode()
