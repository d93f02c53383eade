"""What is read in an image: versions, the release of ROCm or CUDA that programs get, the network plugin, its vendors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lumisite.errors import LumisiteError
from lumisite.images.contents import Contents, glibc_of
from lumisite.images.known import know_image
from lumisite.images.lock import Lock, LockedImage
from lumisite.images.versions import ReadImage, version_lines
from lumisite.site.images import Holds
from lumisite.site.load import load_site
from lumisite.site.scalars import Line
from lumisite.site.software import Stack
from lumisite.site.versions import parse_version
from tests.support.dict_trees import DictTree, Files, Link, write_tree
from tests.support.images import laif
from tests.support.nodes import NodeFiles
from tests.support.rocm10 import dpkg_files, rocm_files

LUMI = load_site("lumi").site
MULTIARCH = "/usr/lib/x86_64-linux-gnu"
PACKAGES = "/opt/venv/lib/python3.12/site-packages"
CONDA = "/opt/miniconda3/envs/x/lib"


def versions(files: Files) -> dict[str, str]:
    return {name: version.value for name, version in ReadImage(LUMI, DictTree(files)).versions.items()}


def test_every_version_is_read_where_it_is_stated() -> None:
    found = ReadImage(LUMI, DictTree(laif())).versions
    assert {name: (version.value, version.of) for name, version in found.items()} == {
        "rocm": ("6.4.4", "/opt/rocm/.info/version"),
        "torch": ("2.9.1+rocm6.4", f"{PACKAGES}/torch/version.py"),
        "libfabric": ("2.1.0", "/usr/lib/pkgconfig/libfabric.pc"),
        "ofi_plugin": ("1.4.0", "/usr/lib/librccl-net.so"),
    }
    assert next(version_lines(LUMI, found)) == "ROCm 6.4.4"


def test_what_no_file_states_is_absent_or_the_name_of_the_file() -> None:
    cut = {path: content if isinstance(content, Link) else content[:1] for path, content in laif().items()}
    assert versions({}) == {}
    assert versions(cut) == {"rocm": "6.4.4", "libfabric": "libfabric.so.1.29.0", "ofi_plugin": "librccl-net.so"}


def test_several_environments_all_count() -> None:
    files = laif()
    files["/opt/miniconda3/envs/pytorch/lib/python3.10/site-packages/torch/version.py"] = b"__version__ = '2.1.2'\n"
    assert versions(files)["torch"] == "2.9.1+rocm6.4, 2.1.2"


def test_a_libfabric_is_known_by_its_folder_and_the_path_that_the_image_sets_comes_first() -> None:
    assert versions({"/opt/cray/libfabric/1.22.0/lib64/libfabric.so.1": b"\x7fELF"}) == {"libfabric": "1.22.0"}
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


def test_labels_that_are_none_are_left_out_and_a_file_beyond_all_that_are_real_is_named() -> None:
    path = "/.singularity.d/labels.json"
    for content in (b"", b"[1]", b"{"):
        assert Contents(DictTree({path: content})).labels == {}
    assert Contents(DictTree({path: b'{"a": 1}'})).labels == {"a": "1"}
    with pytest.raises(LumisiteError, match=rf"^image: {path} has 16777217 bytes"):
        _ = Contents(DictTree({path: bytes(16 * 1024 * 1024 + 1)}, "image")).labels


# ---- the release of ROCm or CUDA

SDK = "/opt/venv/lib/python3.14/site-packages/rocm_sdk_core-10.0.0.dist-info"
OLD_ROCM: NodeFiles = {"/opt/rocm-7.2.1/.info/version": b"7.2.1-81\n", "/opt/rocm-6.10.0/.info/version": b"6.10.0\n"}
BOTH: NodeFiles = rocm_files("7.14.0", links=False) | rocm_files("10.0.0", links=False)


@pytest.mark.parametrize(
    ("files", "release", "of"),
    [
        ({"/opt/rocm-6.2.4/lib/x": b""}, "6.2.4", "/opt/rocm-6.2.4"),
        ({"/opt/rocm-6.2/lib/x": b"", "/opt/rocm-beta/x": b""}, "6.2", "/opt/rocm-6.2"),
        ({f"{MULTIARCH}/librccl.so.1.0.60204": b""}, "6.2.4", f"{MULTIARCH}/librccl.so.1.0.60204"),
        ({"/opt/rocm/lib/librccl.so.1.0": b""}, None, ""),
        # The layout of the Core SDK (7.14, 10.0).
        (rocm_files(), "10.0.0", "/opt/rocm/core/.info/version"),
        (rocm_files("7.14.1", links=False), "7.14.1", "/opt/rocm/core-7.14/.info/version"),
        (rocm_files(links=False, info=False), "10.0", "/opt/rocm/core-10.0"),
        (dpkg_files(), "10.0", "/var/lib/dpkg/info/amdrocm-base10.0.list"),
        ({f"{SDK}/METADATA": b""}, "10.0.0", SDK),
        # Of several the newest counts where no link names one: 10 is more than 7.14, and 7.14 more than 7.2.
        (OLD_ROCM, "7.2.1", "/opt/rocm-7.2.1/.info/version"),
        (OLD_ROCM | BOTH, "10.0.0", "/opt/rocm/core-10.0/.info/version"),
        (BOTH | {"/opt/rocm/core": Link("core-7.14")}, "7.14.0", "/opt/rocm/core/.info/version"),
    ],
)
def test_a_release_of_rocm_is_read_where_it_can_be(files: NodeFiles, release: str | None, of: str) -> None:
    image = ReadImage(LUMI, DictTree(files))
    found = image.versions.get("rocm")
    assert (found and found.value, found.of if found else "") == (release, of)
    assert image.holds("some").family == "some"
    assert image.holds("some").stacks == ({"rocm": parse_version(release)} if release else {})


@pytest.mark.parametrize("links", [True, False])
def test_the_libraries_of_the_core_sdk_are_found(links: bool) -> None:
    tree = DictTree(rocm_files(links=links))
    assert Contents(tree).find("librccl.so") == "/opt/rocm/core-10.0/lib/librccl.so.1.0"
    assert ReadImage(LUMI, tree).versions["rccl"].value == "2.30.4"


ROCM61: Files = {"/opt/rocm-6.1.3/.info/version": b"6.1.3-122\n", "/opt/rocm-6.1.3/lib/librccl.so.1": b"library"}
TORCH = f"{PACKAGES}/torch/version.py"
WHEEL: Files = {TORCH: b"__version__ = '2.9.1+rocm7.0'\n", f"{PACKAGES}/torch/lib/librccl.so": b"library"}


@pytest.mark.parametrize(
    ("files", "stated", "release"),
    [
        (WHEEL, "7.0", "7.0"),
        ({**WHEEL, **ROCM61}, "7.0, 6.1.3", None),
        ({**WHEEL, "/opt/rocm-7.0.2/lib/librccl.so.1.0.70002": b""}, "7.0.2", "7.0.2"),
        ({**WHEEL, TORCH: b"__version__ = '2.9.1'\n"}, "not known", None),
        ({TORCH: b"hip: Optional[str] = '6.2.41133-dd7f95766'\n", **ROCM61}, "6.1.3", "6.1.3"),
    ],
)
def test_the_release_is_that_of_the_library_which_programs_get(files: Files, stated: str, release: str | None) -> None:
    """A wheel of PyTorch often has its own copy; settings are right for one release."""
    image = ReadImage(LUMI, DictTree(files))
    assert image.releases["rocm"].value == stated
    assert image.holds("some").stacks == ({"rocm": parse_version(release)} if release else {})


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
    site = replace(LUMI, stacks={"mine": Stack(title=Line("the stack"), gpu=vendor, releases={})})
    image = ReadImage(site, DictTree(files))
    assert {name: version.value for name, version in image.versions.items()} == found
    assert image.holds(None).stacks == ({"mine": parse_version(found["mine"])} if "mine" in found else {})
    titles = {"mine": "the stack", "nccl": "NCCL", "rccl": "RCCL"}
    assert list(version_lines(site, image.versions)) == [f"{titles[name]} {value}" for name, value in found.items()]


# ---- the plugin, the family, and whose GPUs


@pytest.mark.parametrize(
    ("files", "plugin"),
    [
        (laif(), True),
        ({"/opt/aws-ofi-rccl/librccl-net.so": b""}, True),
        ({f"{CONDA}/python3.11/site-packages/pip.py": b"", f"{CONDA}/librccl-net.so": b""}, True),
        # That there is none is known only beside the library that opens it.
        ({"/usr/lib/libfabric.so.1": b"\x7fELF"}, None),
        ({"/opt/rocm-6.4.4/lib/librccl.so.1": b""}, False),
    ],
)
def test_the_plugin_is_there_where_its_file_is(files: Files, plugin: bool | None) -> None:
    image = ReadImage(LUMI, DictTree(files))
    assert bool(image.plugin) == bool(plugin)
    assert plugin or image.holds(None).plugin is plugin


def test_what_was_read_counts_else_what_a_lock_has_else_the_name(tmp_path: Path) -> None:
    mine = write_tree(tmp_path / "mine.sif", laif())
    known = know_image(LUMI, str(mine))
    assert known.holds == Holds(None, {"rocm": parse_version("6.4.4")}, True, parse_version("2.1.0"))
    assert known.note is None
    own = write_tree(tmp_path / "own.sif", {**laif(), "/opt/cotainr/conda/bin/python": b""})
    assert know_image(LUMI, str(own)).holds.family == "cotainr"
    broken = tmp_path / "lumi-rocm-rocm-6.1.3.sif"
    broken.write_text("text")
    known = know_image(LUMI, str(broken))
    assert known.holds == Holds("lumi-rocm")
    assert (note := known.note) is not None
    assert (note.code, note.subject) == ("image-unread", str(broken))
    assert note.message.startswith("byte 0: neither a SIF nor a squashfs file")
    assert note.advice == "give a SIF, or the directory of an unpacked image"
    lock = Lock("lumi", (), {str(broken): LockedImage(str(broken), versions={"rocm": "6.2.4"})})
    known = know_image(LUMI, str(broken), lock=lock)
    assert (known.is_locked, known.note, known.holds.stacks) == (True, None, {"rocm": parse_version("6.2.4")})
    assert know_image(LUMI, "a\0b").holds == Holds()


def test_labels_tell_a_family_where_the_path_does_not(tmp_path: Path) -> None:
    university = load_site("university").site
    labels = {"/.singularity.d/labels.json": b'{"com.nvidia.volumes.needed": "nvidia_driver"}'}
    assert know_image(university, str(write_tree(tmp_path / "mine.sif", labels))).holds.family == "ngc"
    bare = write_tree(tmp_path / "bare.sif", {"/.singularity.d/labels.json": b"{}"})
    assert know_image(university, str(bare)).holds.family is None


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/opt/rocm-6.2.4/.info/version", ("amd",)),
        (f"{MULTIARCH}/librccl.so.1.0.60204", ("amd",)),
        (f"{PACKAGES}/torch/lib/librccl.so", ("amd",)),
        (f"{PACKAGES}/_rocm_sdk_libraries_gfx90X/lib/librccl.so.1", ("amd",)),
        (f"{CONDA}/librccl.so.1", ("amd",)),
        ("/usr/local/cuda-12.4/version.json", ("nvidia",)),
        (f"{PACKAGES}/nvidia/nccl/lib/libnccl.so.2", ("nvidia",)),
        ("/usr/bin/true", ()),
    ],
)
def test_the_vendors_of_gpus_are_those_whose_libraries_are_there(path: str, found: tuple[str, ...]) -> None:
    content = CUDA_RECORD if path.endswith(".json") else b"6.2.4"
    assert Contents(DictTree({f"{CONDA}/python3.11/site-packages/pip.py": b"", path: content})).gpu_vendors == found
