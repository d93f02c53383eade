"""The base images of cotainr, pinned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lumisite.cli import main
from tests.support.image_folders import LATEST, OLD, Output, image_folder, lumi_text, retarget
from tests.support.images import needs_mksquashfs
from tests.support.sites import printed_codes

pytestmark = needs_mksquashfs


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return image_folder(tmp_path)


def cotainr_site(folder: Path) -> str:
    text = lumi_text()
    start = text.index("  cotainr:\n", text.index("\nimages:\n"))
    end = text.index("# ---", start)
    systems = "  cotainr:\n    lumi-c: {base_image: 'docker://ubuntu:24.04', source: here}\n"
    systems += f"    lumi-g: {{base_image: {folder / LATEST}, source: here}}\n\n"
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
    kept, unpinned, written = capsys.readouterr().err.splitlines()
    assert "[system-kept]" in kept
    assert "images.cotainr.lumi-c: docker://ubuntu:24.04" in unpinned
    assert "[base-image-unpinned]" in unpinned
    assert written == "lumisite: systems.json: written"
    assert main(["images", "--site", site, "--systems", "systems.json"]) == 0
    assert capsys.readouterr().err.endswith("systems.json: is the same already\n")


def test_a_base_image_that_is_gone_is_not_written(folder: Path, capsys: Output) -> None:
    site = cotainr_site(folder)
    retarget(folder, "no.sif")
    assert main(["images", "--site", site, "--systems", "systems.json"]) == 1
    error = capsys.readouterr().err
    assert f"images.cotainr.lumi-g: {folder / LATEST} cannot be used: leads to {folder}/no.sif" in error
    assert "[base-image-unusable]" in error
    assert error.endswith("lumisite: systems.json was not written\n")
    assert not Path("systems.json").exists()


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"a": 1}', b'{"a": {}}', b"\xff"])
def test_what_is_no_systems_json_is_kept(folder: Path, capsys: Output, content: bytes) -> None:
    Path("systems.json").write_bytes(content)
    assert main(["images", "--site", cotainr_site(folder), "--systems", "systems.json"]) == 1
    assert printed_codes(capsys.readouterr().err) == "systems.json: systems-file-unfit"
    assert Path("systems.json").read_bytes() == content


def test_a_site_without_systems_says_so(folder: Path, capsys: Output) -> None:
    text = lumi_text()
    start = text.index("  cotainr:\n", text.index("\nimages:\n"))
    Path("site.yaml").write_text(text[:start] + text[text.index("# ---", start) :])
    assert main(["images", "--site", "site.yaml", "--systems", "systems.json"]) == 2
    assert "site lumi names no system of cotainr (add images.cotainr to it)" in capsys.readouterr().err
