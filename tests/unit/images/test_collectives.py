"""Several copies of a library for collectives in one image: which one programs get, and what follows from it."""

from __future__ import annotations

import re
import struct
from dataclasses import replace

import pytest

from lumisite.images.contents import find_constant
from lumisite.images.remarks import remarks
from lumisite.images.versions import ReadImage
from lumisite.site.load import load_site
from lumisite.site.model import Site
from lumisite.site.scalars import Line
from lumisite.site.software import Stack
from tests.support.dict_trees import DictTree, Files, Link
from tests.support.elves import elf
from tests.support.torch import CONDA, VENV, torch

LUMI = load_site("lumi").site
CUDA: Site = replace(LUMI, stacks={"cuda": Stack(title=Line("CUDA"), gpu="nvidia", releases={})})
ROCM61: Files = {
    "/opt/rocm": Link("rocm-6.1.3"),
    "/opt/rocm-6.1.3/.info/version": b"6.1.3-122\n",
    "/opt/rocm-6.1.3/lib/librccl.so.1": Link("librccl.so.1.0.60103"),
    "/opt/rocm-6.1.3/lib/librccl.so.1.0.60103": elf("librccl.so.1"),
}
#: The wheel of PyTorch has its own copies, and an RPATH that finds them.
RCCL: Files = {"torch/lib/librccl.so.1": elf("librccl.so.1")}
WHEEL = torch(VENV, RCCL, rpath="$ORIGIN", built="2.9.1+rocm7.0")
OWN = f"{VENV}/torch/lib/librccl.so.1"


def copies(files: Files) -> list[str]:
    (collection,) = ReadImage(LUMI, DictTree(files)).collections.values()
    return [one.path for one in collection.copies]


def release(files: Files, site: Site = LUMI) -> str | None:
    found = ReadImage(site, DictTree(files)).holds(None).stacks.get(str(site.gpu_stack))
    return None if found is None else str(found)


def test_all_copies_are_found_those_of_packages_first() -> None:
    files = {**ROCM61, **WHEEL}
    assert copies(files) == [OWN, "/opt/rocm-6.1.3/lib/librccl.so.1.0.60103"]
    assert len(copies({**files, "/opt/rocm-6.2.4/lib/librccl.so.1": elf("librccl.so.1")})) == 3


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, "7.0"),
        (ROCM61, None),
        ({"/opt/rocm-6.1.3/.info/version": b"6.1.3\n"}, "7.0"),
        ({"/opt/rocm-7.0.2/lib/librccl.so.1.0.70002": elf("librccl.so.1")}, "7.0"),
        ({f"{VENV}/torch/version.py": b"__version__ = '2.9.1'\n"}, None),
        ({f"{VENV}/torch/version.py": b"", "/opt/rocm/.info/version": b"6.1.3"}, None),
        ({f"{VENV}/torch/version.py": b"hip: Optional[str] = '6.2.41133-dd7f95766'\n"}, "6.2"),
    ],
)
def test_the_release_is_that_of_all_copies(more: Files, expected: str | None) -> None:
    assert release({**WHEEL, **more}) == expected


def test_both_releases_are_named_and_no_setting_follows() -> None:
    tree = DictTree({**ROCM61, **WHEEL})
    versions = ReadImage(LUMI, tree).versions
    assert versions["rocm"].value == "7.0, 6.1.3"
    found = remarks(ReadImage(LUMI, tree), ())
    assert [(one.code, one.subject) for one in found] == [
        ("collectives-copies", OWN),
        ("collectives-copies", "/opt/rocm-6.1.3/lib/librccl.so.1.0.60103"),
        ("collectives-copies", "RCCL"),
    ]
    assert [one.message for one in found[:2]] == ["RCCL of ROCm 7.0", "RCCL of ROCm 6.1.3"]


def test_one_inside_pytorch_counts() -> None:
    inside = {**ROCM61, **torch(VENV, name="libc.so.6", built="2.9.1+rocm7.0")}
    found = remarks(ReadImage(LUMI, DictTree(inside)), ())
    assert [one.subject for one in found] == [f"{VENV}/torch", "/opt/rocm-6.1.3/lib/librccl.so.1.0.60103", "RCCL"]


def test_one_copy_is_nothing_to_speak_of() -> None:
    assert remarks(ReadImage(LUMI, DictTree(ROCM61)), ()) == ()


def test_a_link_over_the_wheels_copy_makes_one_of_two() -> None:
    files = {**ROCM61, **WHEEL, OWN: Link("/opt/rocm/lib/librccl.so.1")}
    assert copies(files) == ["/opt/rocm-6.1.3/lib/librccl.so.1.0.60103"]
    assert release(files) == "6.1.3"


def test_a_wheel_of_rocm_states_its_release() -> None:
    sdk = "_rocm_sdk_libraries_gfx90X/lib/librccl.so.1"
    files = torch(VENV, {sdk: elf("librccl.so.1")}, runpath="/opt/rocm/lib")
    files[f"{VENV}/rocm_sdk_libraries_gfx90x-7.0.2.dist-info/RECORD"] = b""
    assert (copies(files), release(files)) == ([f"{VENV}/{sdk}"], "7.0.2")


def test_a_banner_states_the_release_of_a_conda_environment() -> None:
    top = CONDA.partition("/lib/python")[0]
    banner = elf("librccl.so.1") + b"RCCL version : 2.26.6-HEAD:64f48b6\0ROCm version : 7.0.2.0-56-9428210\0"
    files = {**torch(CONDA), f"{top}/lib/librccl.so.1.0": banner, f"{top}/lib/librccl.so.1": Link("librccl.so.1.0")}
    found = ReadImage(LUMI, DictTree(files)).versions
    assert (found["rocm"].value, found["rccl"].value) == ("7.0.2", "2.26.6")


def test_nccl_of_a_wheel_beside_the_systems() -> None:
    wheel: Files = {"nvidia/nccl/lib/libnccl.so.2": elf("libnccl.so.2") + b"NCCL version 2.27.5+cuda12.9\0"}
    files = torch(VENV, wheel, name="libnccl.so.2", rpath="$ORIGIN/../../nvidia/nccl/lib", built="2.9.1+cu128")
    system: Files = {
        "/usr/lib/x86_64-linux-gnu/libnccl.so.2": Link("libnccl.so.2.21.5"),
        "/usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5": elf("libnccl.so.2"),
    }
    assert release(files, CUDA) == "12.8", "NCCL's banner has the release of its build"
    both = {**files, **system, "/usr/local/cuda/version.txt": b"CUDA Version 11.8.0\n"}
    versions = ReadImage(CUDA, DictTree(both)).versions
    assert (versions["nccl"].value, versions["cuda"].value) == ("2.27.5, 2.21.5", "12.8, 11.8.0")
    assert release(both, CUDA) is None


def test_a_library_that_pytorch_has_inside_counts_by_what_pytorch_was_built_for() -> None:
    files = torch(VENV, name="libc.so.6", built="2.1.2+cu118")
    assert release(files, CUDA) == "11.8"
    system = {"/usr/lib/x86_64-linux-gnu/libnccl.so.2": elf("libnccl.so.2"), "/usr/local/cuda-12.4/x": b""}
    assert release({**files, **system}, CUDA) is None


def large(constants: bytes, *, name: bytes = b".rodata") -> bytes:
    """A library of 9 MB with sections, of which one has constants."""
    names = b"\0" + name + b"\0"
    start, body = 9_000_000, elf("librccl.so.1").ljust(9_000_000, b"\0")
    table = start + len(constants) + len(names)
    sections = b"".join(
        struct.pack("<IIQQQQIIQQ", at, 1, 0, 0, offset, size, 0, 0, 0, 0)
        for at, offset, size in ((0, 0, 0), (1, start, len(constants)), (0, start + len(constants), len(names)))
    )
    head = bytearray(body[:64])
    struct.pack_into("<Q", head, 40, table)
    struct.pack_into("<HHH", head, 58, 64, 3, 2)
    return bytes(head) + body[64:] + constants + names + sections


def test_the_constants_of_a_large_library_are_found_by_its_sections() -> None:

    pattern = re.compile(rb"ROCm version : (\d+)")
    for content, found in (
        (large(b"x" * 200_000 + b"ROCm version : 7.0.2\0" + b"y" * 300_000), True),
        (large(b"ROCm version : 7.0.2\0", name=b".comment"), False),
        (large(b"ROCm version : 7.0.2\0")[:-70], False),
        (b"ROCm version : 7.0.2\0" * 500_000, False),
    ):
        assert bool(find_constant(pattern, DictTree({"/x": content}), "/x")) == found
