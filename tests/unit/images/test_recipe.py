"""An image that is no longer what the description says of its family: named by `images` and by `binds`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.images.remarks import compare_recipe
from lumisite.images.versions import ReadImage
from lumisite.site.load import load_site
from tests.support.closures import stock
from tests.support.dict_trees import DictTree, Link, write_tree
from tests.support.elves import elf

LUMI = load_site("lumi").site
Tree = dict[str, bytes | Link]
Output = pytest.CaptureFixture[str]
RUNSCRIPT: Tree = {"/.singularity.d/runscript": b'#!/bin/sh\nexec "$@"\n'}
PLUGIN: Tree = {"/usr/lib64/librccl-net.so": b"\x7fELF"}
CONDA: Tree = {
    "/.singularity.d/env/10-docker2singularity.sh": b'#!/bin/sh\nexport WITH_CONDA="${WITH_CONDA:-"source /opt/x"}"\n',
    "/opt/miniconda3/envs/pytorch/bin/python": b"",
}
#: What the runtime writes for a definition without %runscript.
EMPTY = b'#!/bin/sh\n\necho "There is no runscript defined for this container\\n";\n'
#: What opens a plugin: where it is not, nobody looked for one.
RCCL: Tree = {"/usr/lib64/librccl.so.1": elf("librccl.so.1")}


def found(family: str, *parts: Tree) -> list[tuple[str, str]]:
    files: Tree = {"/etc/os-release": b""}
    for part in parts:
        files |= part
    findings = tuple(compare_recipe(ReadImage(LUMI, DictTree(files)), family))
    assert all(one.code == "family-unlike" for one in findings)
    return [(one.subject.rpartition(".")[2], one.message) for one in findings]


def test_an_image_as_its_family_is_described_has_no_line() -> None:
    assert found("laif-multitorch", RUNSCRIPT, PLUGIN, RCCL) == []
    assert found("lumi-pytorch-conda", CONDA, PLUGIN, RCCL) == []
    assert found("lumi-rocm", PLUGIN, RCCL) == []
    assert found("tykky") == found("tykky", RCCL) == []


@pytest.mark.parametrize(
    ("family", "parts", "message"),
    [
        ("laif-multitorch", (RUNSCRIPT, RCCL), "the image has no network plugin (described as: in-image)"),
        ("laif-multitorch", (PLUGIN,), "the image has no runscript (described as: runscript)"),
        (
            "laif-multitorch",
            (PLUGIN, {"/.singularity.d/runscript": EMPTY}),
            "the image has no runscript (described as: runscript)",
        ),
        ("tykky", (PLUGIN,), "the image has a network plugin (described as: from-host)"),
    ],
)
def test_what_differs_is_named(family: str, parts: tuple[Tree, ...], message: str) -> None:
    assert [text for _, text in found(family, *parts)] == [message]


def test_an_environment_that_has_gone_is_named() -> None:
    lacking = found("lumi-pytorch-conda", PLUGIN)
    assert lacking == [
        ("activation", "the image does not set $WITH_CONDA (described as: with-conda)"),
        ("prepend_path", "the image has no such directory (described as: /opt/miniconda3/envs/pytorch/bin)"),
    ]


def test_images_prints_it_for_images_that_a_family_recognises(tmp_path: Path, capsys: Output) -> None:
    for name in ("lumi-multitorch-a.sif", "mine.sif"):
        write_tree(tmp_path / name, {"/.singularity.d/labels.json": b"{}", "/etc/os-release": b""})
    assert main(["images", "--site", "lumi", "--json", str(tmp_path)]) == 0
    notes = {Path(one["path"]).name: one["notes"] for one in json.loads(capsys.readouterr().out)}
    assert ["[family-unlike]" in line for line in notes["lumi-multitorch-a.sif"]] == [True]
    assert notes["mine.sif"] == [], "the default family is no recipe of it"


@pytest.mark.parametrize(("options", "lines"), [([], 0), (["--family", "lumi-rocm"], 1)])
def test_binds_prints_it(tmp_path: Path, capsys: Output, options: list[str], lines: int) -> None:
    write_tree(tmp_path / "host", stock("after", "/usr/lib64") | {"/lib64": Link("usr/lib64")})
    write_tree(tmp_path / "image", stock("suse155", "/lib64") | RCCL)
    main(["binds", str(tmp_path / "image"), "--site", "lumi", "--host-root", str(tmp_path / "host"), *options])
    said = capsys.readouterr().err
    assert said.count("families.") == lines, "the default family is no recipe of an image"
    assert said.count("families.lumi-rocm.plugin: ") == lines
