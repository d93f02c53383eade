"""What is decided for each library, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.closures import DEBIAN, FABRIC, ROOTS, decided, host, stock
from tests.support.dict_trees import Files, Link
from tests.support.elves import elf

UNWANTED = "the module binds /usr/lib64/libcxi.so.1 over the image's own, /usr/lib64/libcxi.so.1"


def test_an_image_without_anything_gets_all_with_the_chain_that_led_there() -> None:
    lines = decided(ROOTS, host("after"), stock("suse155", "/lib64"))
    assert [(line.library, line.decision, " <- ".join(line.chain)) for line in lines.values()] == [
        ("libcxi.so.1", "bind", "libcxi.so.1 <- root"),
        ("libfabric.so.1", "bind", "libfabric.so.1 <- root"),
        ("libc.so.6", "skip", "libc.so.6 <- libcxi.so.1 <- root"),
        ("libjson-c.so.5", "bind", "libjson-c.so.5 <- libfabric.so.1 <- root"),
    ]
    fabric = lines["libfabric.so.1"]
    assert (fabric.source, fabric.target) == (f"{FABRIC}/libfabric.so.1", "/lib64/libfabric.so.1")
    assert fabric.why == ("the image has none", "put into /lib64, where the loader looks")


def test_an_image_with_the_same_or_newer_needs_nothing() -> None:
    lines = decided(ROOTS, host("after"), stock("ubuntu24", DEBIAN))
    assert {line.decision for line in lines.values()} == {"skip"}
    assert lines["libcxi.so.1"].why == ("the image has the same: LIBCXI_1.5",)
    fabric = lines["libfabric.so.1"]
    assert fabric.why == ("the image has the newer: FABRIC_1.8, the host's FABRIC_1.7",)
    assert fabric.target == f"{DEBIAN}/libfabric.so.1"
    assert "libjson-c.so.5" not in lines, "what only a library of the image needs is the image's own business"


def test_a_glibc_that_is_too_old_is_named_with_what_the_image_has() -> None:
    lines = decided(ROOTS, host("after"), stock("debian11", DEBIAN))
    assert [(line.library, line.decision) for line in lines.values()] == [
        ("libcxi.so.1", "refuse"),
        ("libfabric.so.1", "refuse"),
    ]
    needs = "needs GLIBC_2.34 of libc.so.6, where the image has up to GLIBC_2.30"
    assert lines["libcxi.so.1"].why == (needs,)
    assert lines["libfabric.so.1"].why[-1] == "needs libcxi.so.1, whose decision is refuse"
    assert all(line.target is None for line in lines.values())


def test_a_libstdcxx_that_is_too_old_refuses_the_gpu_layer_only() -> None:
    lines = decided(["libmpi_gnu_123.so.12", "libmpi_gtl_hsa.so.0"], host("after"), stock("suse155", "/lib64"))
    assert lines["libmpi_gnu_123.so.12"].decision == "bind"
    gpu = lines["libmpi_gtl_hsa.so.0"]
    assert gpu.decision == "refuse"
    needs = "needs GLIBCXX_3.4.32 of libstdc++.so.6, where the image has up to GLIBCXX_3.4.30"
    assert gpu.why == (needs,)
    assert "libstdc++.so.6" not in lines, "only the refused library needs it, and it is not why"


def test_an_older_copy_in_the_image_is_covered_where_the_loader_finds_it() -> None:
    image = stock("debian11", DEBIAN)
    image[f"{DEBIAN}/libfabric.so.1.17.0"] = image[f"{DEBIAN}/libfabric.so.1"]
    image[f"{DEBIAN}/libfabric.so.1"] = Link("libfabric.so.1.17.0")
    line = decided(ROOTS, host("before", FABRIC), image)["libfabric.so.1"]
    assert (line.decision, line.target) == ("bind", f"{DEBIAN}/libfabric.so.1.17.0")
    assert line.why[0] == "the image's copy is older: FABRIC_1.4, the host's FABRIC_1.5"
    assert line.why[1].startswith("put over the copy that the loader finds ")


def test_what_a_module_binds_already_is_marked_where_the_loader_looks_there() -> None:
    image = stock("suse155", "/lib64")
    lines = decided(ROOTS, host("after"), image, binds=("/usr/lib64/libcxi.so.1", "/opt/cray"))
    assert (lines["libcxi.so.1"].by, lines["libfabric.so.1"].by) == ("the module", None)
    assert lines["libcxi.so.1"].target == "/usr/lib64/libcxi.so.1"
    assert lines["libcxi.so.1"].why[-1].startswith("the module binds /usr/lib64/libcxi.so.1 already")
    assert lines["libfabric.so.1"].target == "/lib64/libfabric.so.1"
    assert lines["libfabric.so.1"].why[-1] == "the module binds /opt/cray, but this image's loader does not look there"


def test_a_folder_on_the_images_library_path_needs_no_bind_of_its_own_while_it_is_there() -> None:
    """The images of 2025 name /opt/cray/libfabric/1.15.2.0, which went with the update of January 2026."""
    image = stock("suse155", "/lib64")
    targets = {FABRIC: f"{FABRIC}/libfabric.so.1", "/opt/cray/libfabric/1.15.2.0/lib64": "/lib64/libfabric.so.1"}
    for folder, target in targets.items():
        image["/.singularity.d/env/10-x.sh"] = f'export LD_LIBRARY_PATH="{folder}"'.encode()
        line = decided(ROOTS, host("after"), image, binds=("/opt/cray",))["libfabric.so.1"]
        assert (line.decision, line.source, line.target) == ("bind", f"{FABRIC}/libfabric.so.1", target)
        is_bound_already = line.why[-1].startswith("the module binds /opt/cray already, and the loader finds it ")
        assert is_bound_already == (folder == FABRIC)


def test_what_a_module_brings_of_a_library_that_the_image_must_keep_is_named() -> None:
    image = {f"/usr/lib64/{Path(path).name}": content for path, content in stock("ubuntu24", "/").items()}
    line = decided(ROOTS, host("before"), image, binds=("/usr/lib64/libcxi.so.1",))["libcxi.so.1"]
    assert (line.decision, line.without, line.by) == ("skip", "/usr/lib64/libcxi.so.1", None)
    assert line.warnings == (UNWANTED,)
    folder = decided(ROOTS, host("before"), image, binds=("/usr/lib64",))["libcxi.so.1"]
    assert folder.without is None, "a folder is not taken away for one file in it"
    assert folder.warnings == (UNWANTED.replace("/usr/lib64/libcxi.so.1 over", "/usr/lib64 over"),)


def test_what_a_module_brings_of_a_library_that_the_image_cannot_load_is_named() -> None:
    image = {**stock("debian11", DEBIAN), "/usr/lib64/x": b""}
    image["/etc/ld.so.conf"] = b"/usr/lib64\n"
    image["/.singularity.d/env/10-x.sh"] = b"export LD_LIBRARY_PATH=/usr/lib64"
    line = decided(ROOTS, host("after"), image, binds=("/usr/lib64/libcxi.so.1",))["libcxi.so.1"]
    assert (line.decision, line.without) == ("refuse", "/usr/lib64/libcxi.so.1")
    assert line.warnings == ("the module binds /usr/lib64/libcxi.so.1, which the image cannot load",)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"libcxi.so.2": elf("libcxi.so.2")}, ["the host has none; it has libcxi.so.2"]),
        (
            {"libcxi.so.1": Link("libcxi.so.1.4.9")},
            ["the host has none", "/lib64/libcxi.so.1 leads to /lib64/libcxi.so.1.4.9, which is not there"],
        ),
        ({"libother.so": b""}, ["the host has none"]),
    ],
    ids=["SONAME", "dangling", "gone"],
)
def test_a_root_that_the_host_lacks_is_missing_and_says_what_is_there(changes: Files, expected: list[str]) -> None:
    line = decided(["libcxi.so.1"], {f"/lib64/{name}": what for name, what in changes.items()}, {"/lib64/x": b""})[
        "libcxi.so.1"
    ]
    assert (line.decision, line.source, line.target, [*line.why]) == ("missing", None, None, expected)


def test_a_library_that_neither_has_refuses_what_needs_it() -> None:
    lines = decided(["liba.so"], {"/lib64/liba.so": elf("liba.so", ["libb.so"])}, {"/lib64/x": b""})
    assert (lines["liba.so"].decision, lines["liba.so"].why) == (
        "refuse",
        ("needs libb.so, whose decision is missing",),
    )
    assert (lines["libb.so"].decision, lines["libb.so"].chain) == ("missing", ("libb.so", "liba.so", "root"))


def test_a_need_that_only_the_image_can_serve_is_skipped() -> None:
    lines = decided(["liba.so"], {"/lib64/liba.so": elf("liba.so", ["libb.so"])}, {"/lib64/libb.so": elf("libb.so")})
    assert (lines["liba.so"].decision, lines["libb.so"].decision) == ("bind", "skip")
    assert lines["libb.so"].source is None


def test_a_damaged_library_is_refused_with_file_and_byte() -> None:
    cut = elf("liba.so")[:50]
    line = decided(["liba.so"], {"/lib64/liba.so": cut}, {"/lib64/x": b""})["liba.so"]
    assert line.decision == "refuse"
    assert "at byte 16 is damaged" in line.why[0]


def test_the_c_library_is_never_bound_even_when_it_is_asked_for() -> None:
    files = stock("after", "/lib64")
    lines = decided(["libc.so.6", "libstdc++.so.6"], files, stock("suse155", "/lib64"))
    assert [line.decision for line in lines.values()] == ["skip", "skip"]
    (missing,) = decided(["libc.so.6"], files, {"/lib64/x": b""})["libc.so.6"].why
    assert missing == "the image has no libc.so.6, which is never bound by itself"
    assert lines["libc.so.6"].why[0].startswith("part of the C or GCC run time, never bound by itself")


def test_an_older_copy_that_suffices_stands_in_for_one_that_cannot_be_loaded() -> None:
    libc = ["GLIBC_2.30"]
    files: Files = {
        "/lib64/liba.so": elf("liba.so", ["libb.so.1"], verneed={"libb.so.1": ["B_1"]}),
        "/lib64/libb.so.1": elf(
            "libb.so.1", ["libc.so.6"], verneed={"libc.so.6": ["GLIBC_2.38"]}, verdef=["B_1", "B_2"]
        ),
        "/lib64/libc.so.6": elf("libc.so.6", verdef=[*libc, "GLIBC_2.38"]),
    }
    image = {"/lib64/libb.so.1": elf("libb.so.1", verdef=["B_1"]), "/lib64/libc.so.6": elf("libc.so.6", verdef=libc)}
    lines = decided(["liba.so"], files, image)
    assert (lines["liba.so"].decision, lines["libb.so.1"].decision) == ("bind", "skip")
    assert lines["libb.so.1"].why == (
        "the image's copy is older but has all that is needed",
        "needs GLIBC_2.38 of libc.so.6, where the image has up to GLIBC_2.30",
    )
    assert decided(["libb.so.1"], files, image)["libb.so.1"].decision == "refuse", "a root must come from the host"


@pytest.mark.parametrize(("versions", "decision"), [((), "refuse"), (("X_1", "X_2"), "bind")])
def test_a_root_without_versions_does_not_replace_a_copy_whose_versions_the_image_needs(
    versions: tuple[str, ...], decision: str
) -> None:
    image: Files = {
        "/lib64/libx.so.1": Link("libx.so.1.1"),
        "/lib64/libx.so.1.1": elf("libx.so.1", verdef=["X_1"]),
        "/lib64/libuser.so": elf("libuser.so", ["libx.so.1"], verneed={"libx.so.1": ["X_1"]}),
    }
    files: Files = {
        "/lib64/libx.so.1": Link("libx.so.1.2"),
        "/lib64/libx.so.1.2": elf("libx.so.1", verdef=versions),
    }
    line = decided(["libx.so.1"], files, image)["libx.so.1"]
    assert line.decision == decision


@pytest.mark.parametrize(("needed", "decision"), [(["CURL_4"], "bind"), (["SUSE_1"], "refuse")])
def test_another_build_serves_where_it_has_what_is_needed(needed: list[str], decision: str) -> None:
    files: Files = {
        "/lib64/liba.so": elf("liba.so", ["libcurl.so.4"], verneed={"libcurl.so.4": needed}),
        "/lib64/libcurl.so.4": elf("libcurl.so.4", verdef=["CURL_4", "SUSE_1"]),
    }
    image = {"/lib64/libcurl.so.4": elf("libcurl.so.4", verdef=["CURL_4", "DEBIAN_1"])}
    assert decided(["liba.so"], files, image)["liba.so"].decision == decision


def test_a_search_path_from_the_librarys_own_place_counts_for_nothing_at_its_new_one() -> None:
    files: Files = {
        f"{FABRIC}/liba.so": elf("liba.so", ["libb.so"], runpath="$ORIGIN/private:/opt/fixed"),
        f"{FABRIC}/libb.so": elf("libb.so"),
    }
    beside: Files = {"/lib64/x": b"", f"{FABRIC}/private/libb.so": elf("libb.so")}
    assert decided(["liba.so"], files, beside)["libb.so"].decision == "bind"
    fixed: Files = {"/lib64/x": b"", "/opt/fixed/libb.so": elf("libb.so")}
    assert decided(["liba.so"], files, fixed)["libb.so"].decision == "skip"


def test_a_dangling_link_in_the_image_is_not_bound_over() -> None:
    image: Files = {"/lib64/libx.so.1": Link("/opt/gone"), "/usr/lib64/y": b""}
    line = decided(["libx.so.1"], {f"{FABRIC}/libx.so.1": elf("libx.so.1")}, image)["libx.so.1"]
    assert line.target == "/usr/lib64/libx.so.1"


def test_a_damaged_copy_in_the_image_is_refused() -> None:
    line = decided(["liba.so"], {"/lib64/liba.so": elf("liba.so")}, {"/lib64/liba.so": elf("liba.so")[:50]})["liba.so"]
    assert (line.decision, line.why[0]) == ("refuse", "the image's own copy is broken")
    assert "cannot be loaded" in line.why[1]


def test_a_library_that_is_needed_by_its_path_keeps_it() -> None:
    files: Files = {"/lib64/liba.so": elf("liba.so", ["/opt/b/libb.so"]), "/opt/b/libb.so": elf("libb.so")}
    line = decided(["liba.so"], files, {"/lib64/x": b""})["/opt/b/libb.so"]
    assert (line.decision, line.target) == ("bind", "/opt/b/libb.so")
    assert line.why == ("the image has none", "it is needed by this path")
