from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lumisite.errors import LumisiteError
from lumisite.images.contents import Contents, glibc_of
from lumisite.images.known import know_image
from lumisite.images.versions import ReadImage, version_lines
from lumisite.site.images import Holds
from lumisite.site.load import load_site
from lumisite.site.model import Site
from lumisite.site.scalars import Line
from lumisite.site.software import Stack
from lumisite.site.versions import parse_version
from tests.support.dict_trees import DictTree, Files, Link, write_tree

LIBC = (
    b"\x7fELF"
    + bytes(300_000)
    + b"GNU C Library (Ubuntu GLIBC 2.39-0ubuntu8.4) stable release version 2.39.\n"
    + bytes(999)
)
LUMI = load_site("lumi").site
MULTIARCH = "/usr/lib/x86_64-linux-gnu"
PACKAGES = "/opt/venv/lib/python3.12/site-packages"


def versions(files: Files) -> dict[str, str]:
    return {name: one.value for name, one in ReadImage(LUMI, DictTree(files)).versions.items()}


def laif() -> dict[str, bytes | Link]:
    """As the recipes of the LUMI AI Factory lay an image out."""
    return {
        "/opt/rocm": Link("/etc/alternatives/rocm"),
        "/etc/alternatives/rocm": Link("/opt/rocm-6.4.4"),
        "/opt/rocm-6.4.4/.info/version": b"6.4.4-129\n",
        "/opt/venv/lib/python3.12/site-packages/torch/version.py": b"__version__ = '2.9.1+rocm6.4'\nhip: str = '6.4'\n",
        f"{MULTIARCH}/libc.so.6": LIBC,
        "/usr/lib/libfabric.so.1": Link("libfabric.so.1.29.0"),
        "/usr/lib/libfabric.so.1.29.0": b"\x7fELF",
        "/usr/lib/pkgconfig/libfabric.pc": b"Name: libfabric\nVersion: 2.1.0\n",
        "/usr/lib/libcxi.so.1": Link("libcxi.so.1.5.0"),
        "/usr/lib/libcxi.so.1.5.0": b"\x7fELF",
        "/usr/lib/librccl-net.so": b"\x7fELF" + bytes(9000) + b"NET/OFI Initializing aws-ofi-rccl 1.4.0\0",
    }


def test_every_version_is_read_where_it_is_stated() -> None:
    found = ReadImage(LUMI, DictTree(laif())).versions
    assert {name: (one.value, one.of) for name, one in found.items()} == {
        "rocm": ("6.4.4", "/opt/rocm/.info/version"),
        "torch": ("2.9.1+rocm6.4", "/opt/venv/lib/python3.12/site-packages/torch/version.py"),
        "libfabric": ("2.1.0", "/usr/lib/pkgconfig/libfabric.pc"),
        "ofi_plugin": ("1.4.0", "/usr/lib/librccl-net.so"),
    }
    assert next(version_lines(LUMI, found)) == "ROCm 6.4.4"


@pytest.mark.parametrize("name", ["rocm", "torch", "libfabric", "ofi_plugin"])
def test_what_is_not_stated_is_absent(name: str) -> None:
    """Each file alone, cut to its first byte, says nothing; only a file's own name may stand for it."""
    empty = {path: content if isinstance(content, Link) else content[:1] for path, content in laif().items()}
    assert versions({}) == {}
    assert versions(empty).get(name) == {
        "rocm": "6.4.4",
        "libfabric": "libfabric.so.1.29.0",
        "ofi_plugin": "librccl-net.so",
    }.get(name)


def test_several_environments_all_count() -> None:
    files = laif()
    files["/opt/miniconda3/envs/pytorch/lib/python3.10/site-packages/torch/version.py"] = b"__version__ = '2.1.2'\n"
    assert versions(files)["torch"] == "2.9.1+rocm6.4, 2.1.2"


def test_the_folder_of_a_release_of_libfabric_names_it() -> None:
    files: dict[str, bytes | Link] = {"/opt/cray/libfabric/1.22.0/lib64/libfabric.so.1": b"\x7fELF"}
    assert versions(files) == {"libfabric": "1.22.0"}


def test_the_path_that_the_image_sets_comes_first() -> None:
    files = laif() | {
        "/opt/own/libfabric.so.1": b"\x7fELF",
        "/.singularity.d/env/10-docker2singularity.sh": b'export LD_LIBRARY_PATH="/opt/own"\n',
    }
    assert ReadImage(LUMI, DictTree(files)).versions["libfabric"].of == "/opt/own/libfabric.so.1"


def test_a_banner_across_two_reads_is_found() -> None:
    banner = b"GNU C Library (GNU libc) stable release version 2.31 (git 0d1)"
    for start in range(128 * 1024 - len(banner) - 2, 128 * 1024 + 2, 7):
        content = bytes(start) + banner + bytes(200_000)
        found = glibc_of(DictTree({"/lib64/libc.so.6": content}), "/lib64/libc.so.6")
        assert found is not None
        assert found.value == "2.31"


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b'{"a": 1}'])
def test_labels_that_are_none_are_no_end(content: bytes) -> None:
    assert set(Contents(DictTree({"/.singularity.d/labels.json": content})).labels.values()) <= {"1"}


def test_a_text_beyond_all_that_are_real_is_named() -> None:
    path = "/.singularity.d/labels.json"
    with pytest.raises(LumisiteError, match=rf"^image: {path} has 16777217 bytes"):
        _ = Contents(DictTree({path: bytes(16 * 1024 * 1024 + 1)}, "image")).labels


# ---- what settings depend on


@pytest.mark.parametrize(
    ("files", "rocm"),
    [
        ({"/opt/rocm-6.2.4/lib/x": b""}, "6.2.4"),
        ({"/opt/rocm-6.2/lib/x": b"", "/opt/rocm-beta/x": b""}, "6.2"),
        ({"/opt/rocm-6.2.4/lib/x": b"", "/opt/rocm-6.4.4/lib/x": b""}, "6.4.4"),
        ({"/opt/rocm/lib/librccl.so.1.0.70002": b""}, "7.0.2"),
        ({f"{MULTIARCH}/librccl.so.1.0.60204": b""}, "6.2.4"),
        ({"/opt/rocm/lib/librccl.so.1.0": b""}, None),
        ({}, None),
    ],
)
def test_the_rocm_release_is_read_where_it_can_be(files: Files, rocm: str | None) -> None:
    holds = ReadImage(LUMI, DictTree(files)).holds("some")
    assert (holds.family, holds.stacks) == ("some", {"rocm": parse_version(rocm)} if rocm else {})


ROCM61: Files = {"/opt/rocm-6.1.3/.info/version": b"6.1.3-122\n", "/opt/rocm-6.1.3/lib/librccl.so.1": b"library"}
WHEEL: Files = {
    f"{PACKAGES}/torch/version.py": b"__version__ = '2.9.1+rocm7.0'\n",
    f"{PACKAGES}/torch/lib/librccl.so": b"library",
}


@pytest.mark.parametrize(
    ("files", "stated", "release"),
    [
        (WHEEL, "7.0", "7.0"),
        ({**WHEEL, **ROCM61}, "7.0, 6.1.3", None),
        ({**WHEEL, "/opt/rocm-7.0.2/lib/librccl.so.1.0.70002": b""}, "7.0.2", "7.0.2"),
        ({**WHEEL, f"{PACKAGES}/torch/version.py": b"__version__ = '2.9.1'\n"}, "not known", None),
        ({f"{PACKAGES}/torch/version.py": b"hip: Optional[str] = '6.2.41133-dd7f95766'\n", **ROCM61}, "6.1.3", "6.1.3"),
    ],
)
def test_the_release_is_that_of_the_library_which_programs_get(files: Files, stated: str, release: str | None) -> None:
    """A wheel of PyTorch often has its own copy; settings are right for one release."""
    image = ReadImage(LUMI, DictTree(files))
    assert image.releases["rocm"].value == stated
    assert image.holds("some").stacks == ({"rocm": parse_version(release)} if release else {})


def of_vendor(vendor: str, stack: str) -> Site:
    """LUMI with GPUs of another vendor, and a stack for them of any name."""
    return replace(LUMI, stacks={stack: Stack(title=Line(f"the {stack}"), gpu=vendor, releases={})})


CUDA_RECORD = b'{\n  "cuda" : {\n "name" : "CUDA SDK",\n "version" : "12.4.1"\n },\n "nsight" : {"version" : "9.9.9"}}'


@pytest.mark.parametrize(
    ("vendor", "files", "found"),
    [
        ("nvidia", {"/usr/local/cuda-12.4/version.json": CUDA_RECORD}, {"mine": "12.4.1"}),
        (
            "nvidia",
            {"/usr/local/cuda": Link("cuda-11.0"), "/usr/local/cuda-11.0/version.txt": b"CUDA Version 11.0.228\n"},
            {"mine": "11.0.228"},
        ),
        ("nvidia", {"/usr/local/cuda-12.8/bin/nvcc": b"", "/usr/local/cuda-beta/x": b""}, {"mine": "12.8"}),
        ("nvidia", {f"{MULTIARCH}/libcudart.so.12.9.79": b""}, {"mine": "12.9"}),
        (
            "nvidia",
            {
                f"{PACKAGES}/nvidia_cuda_runtime_cu12-12.6.77.dist-info/RECORD": b"",
                f"{PACKAGES}/nvidia_nccl_cu12-2.21.5.dist-info/RECORD": b"",
            },
            {"mine": "12.6", "nccl": "2.21.5"},
        ),
        ("nvidia", {f"{MULTIARCH}/libnccl.so.2.27.5": b""}, {"nccl": "2.27.5"}),
        ("nvidia", {"/opt/rocm-6.2.4/.info/version": b"6.2.4-1"}, {}),
        (
            "amd",
            {
                "/opt/rocm/.info/version": b"6.4.4-129\n",
                "/opt/rocm/lib/cmake/rccl/rccl-config-version.cmake": b'set(PACKAGE_VERSION "2.22.3")\n',
            },
            {"mine": "6.4.4", "rccl": "2.22.3"},
        ),
        ("nvidia", {"/usr/local/cuda/version.json": b'{"cuda": 7}'}, {}),
    ],
)
def test_each_vendors_releases_are_read_by_the_name_that_the_site_has(
    vendor: str, files: Files, found: dict[str, str]
) -> None:
    site = of_vendor(vendor, "mine")
    assert {name: one.value for name, one in ReadImage(site, DictTree(files)).versions.items()} == found
    release = {"mine": parse_version(found["mine"])} if "mine" in found else {}
    assert ReadImage(site, DictTree(files)).holds(None).stacks == release


def test_people_read_titles_of_the_site_and_of_the_vendor() -> None:
    site = of_vendor("nvidia", "mine")
    files: Files = {"/usr/local/cuda-12.4/version.json": CUDA_RECORD, f"{MULTIARCH}/libnccl.so.2.27.5": b""}
    assert list(version_lines(site, ReadImage(site, DictTree(files)).versions)) == ["the mine 12.4.1", "NCCL 2.27.5"]


def test_the_plugin_is_there_where_its_file_is() -> None:
    assert ReadImage(LUMI, DictTree(laif())).plugin
    assert ReadImage(LUMI, DictTree({"/opt/aws-ofi-rccl/librccl-net.so": b""})).plugin
    conda = "/opt/miniconda3/envs/x/lib"
    files = {f"{conda}/python3.11/site-packages/pip.py": b"", f"{conda}/librccl-net.so": b""}
    assert ReadImage(LUMI, DictTree(files)).plugin


def test_that_there_is_no_plugin_is_known_only_beside_the_library_that_opens_it() -> None:
    without = {path: content for path, content in laif().items() if "rccl-net" not in path}
    assert ReadImage(LUMI, DictTree(without)).holds(None).plugin is None
    assert ReadImage(LUMI, DictTree({**without, "/opt/rocm-6.4.4/lib/librccl.so.1": b""})).holds(None).plugin is False


def test_what_was_read_counts_and_a_name_where_nothing_can_be(tmp_path: Path) -> None:
    site = load_site("lumi").site
    mine = write_tree(tmp_path / "mine.sif", laif())
    known = know_image(site, str(mine))
    assert known.holds == Holds(None, {"rocm": parse_version("6.4.4")}, True, parse_version("2.1.0"))
    assert known.note is None
    own = write_tree(tmp_path / "own.sif", {**laif(), "/opt/cotainr/conda/bin/python": b""})
    assert know_image(site, str(own)).holds.family == "cotainr"
    broken = tmp_path / "lumi-rocm-rocm-6.1.3.sif"
    broken.write_text("text")
    known = know_image(site, str(broken))
    assert known.holds == Holds("lumi-rocm")
    assert (note := known.note) is not None
    assert (note.code, note.subject) == ("image-unread", str(broken))
    assert note.message.startswith("byte 0: neither a SIF nor a squashfs file")
    assert note.advice == "give a SIF, or the directory of an unpacked image"
    assert know_image(site, "a\0b").holds == Holds()


# ---- whose GPUs


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/opt/rocm-6.2.4/.info/version", ("amd",)),
        (f"{MULTIARCH}/librccl.so.1.0.60204", ("amd",)),
        (f"{PACKAGES}/torch/lib/librccl.so", ("amd",)),
        (f"{PACKAGES}/_rocm_sdk_libraries_gfx90X/lib/librccl.so.1", ("amd",)),
        ("/usr/local/cuda-12.4/version.json", ("nvidia",)),
        (f"{PACKAGES}/nvidia/nccl/lib/libnccl.so.2", ("nvidia",)),
        ("/opt/miniconda3/envs/pytorch/lib/python3.11/site-packages/torch/lib/libnccl.so.2", ("nvidia",)),
        ("/opt/miniconda3/envs/x/lib/librccl.so.1", ("amd",)),
        ("/usr/bin/true", ()),
    ],
)
def test_the_vendors_of_gpus_are_those_whose_libraries_are_there(path: str, found: tuple[str, ...]) -> None:
    content = CUDA_RECORD if path.endswith(".json") else b"6.2.4"
    python = {"/opt/miniconda3/envs/x/lib/python3.11/site-packages/pip.py": b""}
    assert Contents(DictTree({**python, path: content})).gpu_vendors == found
