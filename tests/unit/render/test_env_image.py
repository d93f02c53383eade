"""`lumisite env IMAGE`: whether the image fits the machine, what it sets itself, and whether it reaches the network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lumisite.cli import main
from tests.support.dict_trees import Files, write_tree
from tests.support.elves import elf
from tests.support.sites import lumi_with_lock
from tests.support.torch import torch

pytestmark = pytest.mark.usefixtures("at_lumi")

Output = pytest.CaptureFixture[str]
SCRIPT = "/.singularity.d/env/90-environment.sh"
R64: Files = {"/opt/rocm-6.4.4/.info/version": b"6.4.4-1\n", "/opt/rocm-6.4.4/lib/librccl.so.1": elf("librccl.so.1")}


def env(capsys: Output, code: int, *words: str) -> dict[str, Any]:
    assert main(["env", *words, "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def codes(found: dict[str, Any]) -> list[str]:
    return [one["code"] for one in found["harmful"]]


@pytest.mark.parametrize(
    ("name", "files", "unfit"),
    [
        ("mine", {"/usr/local/cuda-12.4/bin/nvcc": b""}, "built for GPUs of NVIDIA, but the job gets GPUs of AMD"),
        ("gone-cuda12.sif", None, "built for GPUs of NVIDIA, but the job gets GPUs of AMD"),
        ("docker://vllm/vllm-rocm5.7", None, "has ROCm 5.7, but the GPU driver of this system supports >=6.1,<7.1"),
        # What is in it counts, not its name.
        ("lumi-rocm-rocm-6.2.4.sif", {"/opt/rocm-5.7.3/.info/version": b"5.7.3-1\n"}, "has ROCm 5.7.3, but the"),
        ("lumi-rocm-rocm-5.6.1.sif", R64, None),
        ("cuda-like.sif", R64, None),
        ("lumi-multitorch-full-u24r72f21m50t211-20260929_104918.sif", None, None),
        ("mine.sif", {"/usr/bin/true": b""}, None),
    ],
)
def test_an_image_that_cannot_use_the_gpus_is_a_fault(
    name: str, files: Files | None, unfit: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.chdir(tmp_path)
    if files is not None:
        write_tree(tmp_path / name, {**files, "/.singularity.d/x": b""})
    found = env(capsys, 0 if unfit is None else 1, name)
    assert [one["code"] for one in found["harmful"]] == ([] if unfit is None else ["image-unfit"])
    assert all(one["message"].startswith(str(unfit)) for one in found["harmful"])
    assert codes(env(capsys, 0, name, "--partition", "standard")) == [], "no GPUs there"


def test_an_image_whose_libfabric_is_gone_is_a_fault_for_several_nodes(tmp_path: Path, capsys: Output) -> None:
    files = {**R64, "/opt/aws-ofi-rccl/librccl-net.so": elf("librccl-net.so")}
    script = b"L=/opt/cray/libfabric; export LD_LIBRARY_PATH=$L/1.20.1/lib64\n"
    image = str(write_tree(tmp_path / "lumi-rocm-rocm-6.4.4.sif", {**files, SCRIPT: script}))
    (one,) = env(capsys, 1, image, "--nodes", "2")["harmful"]
    assert one["code"] == "image-without-network"
    assert "looks for libfabric in /opt/cray/libfabric/1.20.1/lib64, which has none" in one["message"]
    assert codes(env(capsys, 0, image)) == ["image-without-network"], "one node does not need it"
    assert codes(env(capsys, 0, image, "--nodes", "2", "--partition", "standard")) == []
    assert main(["images", image]) == 0
    assert "[image-without-network]" in capsys.readouterr().out


def test_what_the_image_sets_counts_as_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    """By its own environment whatever the host has, or only where the host has nothing."""
    script = (
        "export NCCL_SOCKET_IFNAME=hsn1\n"
        'export FI_CXI_DEFAULT_CQ_SIZE="${FI_CXI_DEFAULT_CQ_SIZE:-"262144"}" NCCL_BUFFSIZE="${NCCL_BUFFSIZE:-"8388608"}"\n'
    )
    image = str(write_tree(tmp_path / "mine.sif", {**R64, SCRIPT: script.encode()}))

    def by(*words: str) -> list[tuple[str, str | None]]:
        variables = env(capsys, 0, image, "--nodes", "2", *words)["variables"]
        names = ("NCCL_SOCKET_IFNAME", "FI_CXI_DEFAULT_CQ_SIZE", "NCCL_BUFFSIZE")
        return [(variables[name]["by"], variables[name]["value"]) for name in names]

    assert by() == [("image", "hsn1"), ("prolog", "131072"), ("image", "8388608")]
    # Once the wrapper knows the image, its own default stays.
    assert main(["images", image, "--lock", str(tmp_path / "lock")]) == 0
    capsys.readouterr()
    assert by("--site", lumi_with_lock()) == [("image", "hsn1"), ("image", "262144"), ("image", "8388608")]
    monkeypatch.setenv("NCCL_BUFFSIZE", "1")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "hsn0")
    assert by()[0] == ("image", "hsn1")
    assert by()[2][0] != "image", "the user's own"
    assert main(["why", "NCCL_SOCKET_IFNAME", "--image", image]) == 0
    assert "the image itself sets NCCL_SOCKET_IFNAME=hsn1" in capsys.readouterr().out


def test_a_harmful_value_of_the_image_is_told(tmp_path: Path, capsys: Output) -> None:
    """An environment of cotainr, with a wheel for ROCm 7.0, on a base that sets the level of PHB by its number."""
    own = {"torch/lib/librccl.so.1": elf("librccl.so.1")}
    conda = "/opt/cotainr/conda/envs/mine/lib/python3.12/site-packages"
    wheel = torch(conda, own, rpath="$ORIGIN", built="2.10.0+rocm7.0")
    base = {"/opt/rocm-6.2.4/.info/version": b"6.2.4-1\n", SCRIPT: b"export NCCL_NET_GDR_LEVEL=3\n"}
    library = {"/opt/rocm-6.2.4/lib/librccl.so.1.0.60204": elf("librccl.so.1")}
    both = str(write_tree(tmp_path / "both.sif", {**wheel, **base, **library}))
    (one,) = env(capsys, 4, both, "--nodes", "2")["harmful"]
    assert (one["code"], one["subject"]) == ("value-may-harm", "NCCL_NET_GDR_LEVEL")
    assert one["message"].startswith("the image itself sets it to 3; where rocm is >=7.0,<7.1: ")
    alone = str(write_tree(tmp_path / "alone.sif", {**wheel, SCRIPT: base[SCRIPT]}))
    assert codes(env(capsys, 1, alone, "--nodes", "2")) == ["harmful-value-exported"]
    assert codes(env(capsys, 0, alone)) == [], "one node"
    main(["images", alone, both])
    assert capsys.readouterr().out.count("[value-may-harm]") == 2
    older = str(write_tree(tmp_path / "older.sif", {**base, **library}))
    assert codes(env(capsys, 0, older, "--nodes", "2")) == []
