"""Images with ROCm in the layout of its Core SDK (7.14, 10.0): read, planned, and what the wrapper gives them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from lumisite.cli import main
from lumisite.images.contents import Contents
from lumisite.images.versions import ReadImage
from lumisite.site.load import load_site
from lumisite.site.versions import parse_version
from tests.support.closures import stock
from tests.support.dict_trees import DictTree, Files, Link, write_tree
from tests.support.nodes import NodeFiles
from tests.support.rocm10 import HSA, dpkg_files, rocm_files
from tests.support.sites import site_text

LUMI = load_site("lumi").site
SITE_PACKAGES = "/opt/venv/lib/python3.14/site-packages"


def stated(*parts: Files) -> tuple[str, str] | None:
    """Return the release of an image and what states it, without its libraries, which may state more."""
    files: dict[str, bytes | Link] = {}
    for part in parts:
        files |= {path: content for path, content in part.items() if "rccl" not in path}
    found = ReadImage(LUMI, DictTree(files)).versions.get("rocm")
    return None if found is None else (found.value, found.of)


@pytest.mark.parametrize(
    ("files", "release", "of"),
    [
        (rocm_files(), "10.0.0", "/opt/rocm/core/.info/version"),
        (rocm_files(links=False), "10.0.0", "/opt/rocm/core-10.0/.info/version"),
        (rocm_files("7.14.1", links=False), "7.14.1", "/opt/rocm/core-7.14/.info/version"),
        (rocm_files(links=False, info=False), "10.0", "/opt/rocm/core-10.0"),
        (dpkg_files(), "10.0", "/var/lib/dpkg/info/amdrocm-base10.0.list"),
        ({f"{SITE_PACKAGES}/rocm_sdk_core-10.0.0.dist-info/METADATA": b""}, "10.0.0", f"{SITE_PACKAGES}/rocm_sdk_core-10.0.0.dist-info"),
        (rocm_files() | {"/opt/rocm-10.0.0": Link("rocm/core-10.0")}, "10.0.0", "/opt/rocm/core/.info/version"),
        ({"/opt/rocm/core/.info/version": b"10.0.0\n"}, "10.0.0", "/opt/rocm/core/.info/version"),
    ],
)  # fmt: skip
def test_a_release_is_read_with_and_without_links(files: NodeFiles, release: str, of: str) -> None:
    assert stated(files) == (release, of)


def test_the_newest_of_several_counts_where_no_link_names_one() -> None:
    """10 is more than 7.14, and 7.14 more than 7.2, whatever their texts are."""
    old: NodeFiles = {"/opt/rocm-7.2.1/.info/version": b"7.2.1-81\n", "/opt/rocm-6.10.0/.info/version": b"6.10.0\n"}
    assert stated(old) == ("7.2.1", "/opt/rocm-7.2.1/.info/version")
    both = rocm_files("7.14.0", links=False) | rocm_files("10.0.0", links=False)
    assert stated(old, both) == ("10.0.0", "/opt/rocm/core-10.0/.info/version")
    assert stated(both, {"/opt/rocm/core": Link("core-7.14")}) == ("7.14.0", "/opt/rocm/core/.info/version")


@pytest.mark.parametrize("links", [True, False])
def test_its_libraries_are_found(links: bool) -> None:
    tree = DictTree(rocm_files(links=links))
    assert Contents(tree).find("librccl.so") == "/opt/rocm/core-10.0/lib/librccl.so.1.0"
    assert ReadImage(LUMI, tree).versions["rccl"].value == "2.30.4"
    assert ReadImage(LUMI, tree).holds("laif-multitorch").stacks == {"rocm": parse_version("10.0.0")}


@pytest.mark.parametrize("links", [True, False])
def test_binds_finds_a_library_of_the_hosts_and_the_release_of_the_image(
    links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    host = stock("after", "/usr/lib64") | {"/lib64": Link("usr/lib64")} | rocm_files(links=links)
    write_tree(tmp_path / "host", host)
    write_tree(tmp_path / "image", stock("ubuntu24", "/usr/lib/x86_64-linux-gnu") | rocm_files(links=links))
    (tmp_path / "site.yaml").write_text(site_text())
    words = ["binds", "image", "--site", "site.yaml", "--host-root", "host", "--family", "twin-torch"]
    main([*words, "--library", HSA, "--json", "--write", "plan.yaml"])
    lines = {line["chain"]: line for line in json.loads(capsys.readouterr().out)}
    assert Path(f"host{lines[f'{HSA} <- root']['source']}").resolve().parent.name == "lib"
    holds = yaml.safe_load((tmp_path / "plan.yaml").read_text())["holds"]
    assert holds == {"stacks": {"rocm": "10.0.0"}, "plugin": False}
