"""What `images` and `binds` say of an image whose name and contents disagree, or that is for other GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.images.remarks import remarks
from lumisite.images.versions import ReadImage
from lumisite.site.load import load_site
from tests.support.dict_trees import DictTree, Files, write_tree
from tests.support.elves import elf
from tests.support.torch import VENV, torch

LUMI = load_site("lumi").site
ROCM70: Files = {"/opt/rocm-7.0.2/.info/version": b"7.0.2-56\n"}
CUDA: Files = {"/usr/local/cuda-12.4/bin/nvcc": b""}
NAMED = "/images/lumi-pytorch-rocm-6.0.3-python-3.12-pytorch-v2.7.1.sif"


@pytest.mark.parametrize(
    ("names", "files", "values"),
    [
        ((NAMED,), ROCM70, ("6.0.3", "7.0.2", "/opt/rocm-7.0.2/.info/version")),
        (("/images/mine_rocm6.0_ubuntu.sif",), ROCM70, ("6.0", "7.0.2", "/opt/rocm-7.0.2/.info/version")),
        (("/images/lumi-pytorch-rocm-7.0.1-x.sif",), ROCM70, None),
        (("/images/mine.sif",), ROCM70, None),
        ((NAMED,), {}, None),
    ],
)
def test_a_name_that_states_another_release_is_reported(
    names: tuple[str, ...], files: Files, values: tuple[str, ...] | None
) -> None:
    found = remarks(ReadImage(LUMI, DictTree(files)), names)
    assert [one.code for one in found] == ["image-misnamed"] * (values is not None)
    assert all(text in one.message for one in found for text in values or ())


def test_a_name_that_fits_one_of_two_copies_is_not_reported() -> None:
    own = {"torch/lib/librccl.so.1": elf("librccl.so.1")}
    files = torch(VENV, own, rpath="$ORIGIN", built="2.9.1+rocm7.0")
    files |= {"/opt/rocm-6.0.3/lib/librccl.so.1.0.60003": elf("librccl.so.1")}
    found = remarks(ReadImage(LUMI, DictTree(files)), (NAMED,))
    assert len(found) == 3
    assert "image-misnamed" not in [one.code for one in found]
    other = remarks(ReadImage(LUMI, DictTree(files)), (NAMED.replace("6.0.3", "5.6.1"),))
    assert "states ROCm 5.6.1, the image has ROCm 7.0, 6.0.3 (" in other[0].message


def test_an_image_for_other_gpus_is_reported() -> None:
    assert ReadImage(LUMI, DictTree(CUDA)).other_gpus == ("nvidia",)
    assert ReadImage(LUMI, DictTree({**CUDA, **ROCM70})).other_gpus == ReadImage(LUMI, DictTree({})).other_gpus == ()
    assert ReadImage(load_site("university").site, DictTree(CUDA)).other_gpus == ()
    (finding,) = remarks(ReadImage(LUMI, DictTree(CUDA)), ("/images/mine.sif",))
    assert finding.code == "image-unfit"
    assert finding.message == "built for GPUs of NVIDIA, but the job gets GPUs of AMD"


def test_images_and_binds_say_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = NAMED.rpartition("/")[2]
    write_tree(tmp_path / name, {**ROCM70, "/.singularity.d/x": b""})
    write_tree(tmp_path / "cuda", {**CUDA, "/.singularity.d/x": b""})
    write_tree(tmp_path / "host", {"/lib64/ld-linux-x86-64.so.2": elf("ld-linux-x86-64.so.2")})
    expected = {name: "[image-misnamed]", "cuda": "[image-unfit]"}
    words = {name: "states ROCm 6.0.3", "cuda": "GPUs of NVIDIA"}
    for image, code in expected.items():
        assert main(["images", str(tmp_path / image), "--site", "lumi"]) == 0
        assert code in capsys.readouterr().out
        main(["binds", image, "--site", "lumi", "--host-root", "host"])
        assert words[image] in capsys.readouterr().err


def test_env_names_both_copies_and_gives_nothing_that_depends_on_the_release(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = {"torch/lib/librccl.so.1": elf("librccl.so.1")}
    files = torch(VENV, own, rpath="$ORIGIN", built="2.9.1+rocm7.0")
    files |= {"/opt/rocm-6.1.3/lib/librccl.so.1.0.60103": elf("librccl.so.1"), "/.singularity.d/x": b""}
    image = write_tree(tmp_path / "mine.sif", files)
    assert main(["env", str(image), "--site", "lumi"]) == 0
    error = capsys.readouterr().err
    assert f"{VENV}/torch/lib/librccl.so.1: RCCL of ROCm 7.0 [collectives-copies]" in error
    assert "/opt/rocm-6.1.3/lib/librccl.so.1.0.60103: RCCL of ROCm 6.1.3 [collectives-copies]" in error
    assert main(["why", "NCCL_NET_GDR_LEVEL", "--image", str(image), "--site", "lumi"]) == 0
    output = capsys.readouterr().out
    assert "rocm not known" in output.partition("\n")[0]
    assert "  wins: " not in output, "neither release decides"
