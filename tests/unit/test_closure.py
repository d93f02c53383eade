from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lumisite.binds.closure import Line, Sides, closure
from lumisite.binds.container import container_of, library_path
from lumisite.binds.cpu import Cpu
from lumisite.binds.loader import Found, Loaded, Loader, Need, read_rules, walk
from lumisite.binds.versions import compare, is_foundation
from tests.unit.dict_trees import DictTree, Files, Link
from tests.unit.elves import elf

DATA = Path(__file__).parents[1] / "data" / "elf"
FABRIC = "/opt/cray/libfabric/1.22.0/lib64"
DEBIAN = "/usr/lib/x86_64-linux-gnu"


def sides(host: Files, image: Files, *, folders: tuple[str, ...] = (FABRIC,), binds: tuple[str, ...] = ()) -> Sides:
    host_tree, image_tree = DictTree(host, "host"), DictTree(image, "image")
    view = container_of(image_tree, host_tree, [(path, path, "the module") for path in binds])
    rules = read_rules(image_tree, Cpu(), library_path(image_tree)[0])
    host_loader = Loader(host_tree, read_rules(host_tree, Cpu(), folders, captured=True))
    return Sides(host_loader, Loader(image_tree, rules), Loader(view, rules), view)


def decided(roots: list[str], host: Files, image: Files, *, binds: tuple[str, ...] = ()) -> dict[str, Line]:
    return {line.name: line for line in closure(roots, sides(host, image, binds=binds))}


def stock(name: str, folder: str) -> dict[str, bytes | Link]:
    """The committed libraries of an image or a host, in one folder."""
    return {f"{folder}/{path.name}": path.read_bytes() for path in (DATA / name).iterdir()}


def host(name: str, fabric: str = FABRIC) -> dict[str, bytes | Link]:
    files = stock(name, "/usr/lib64")
    files[f"{fabric}/libfabric.so.1"] = files.pop("/usr/lib64/libfabric.so.1")
    return files


ROOTS = ["libcxi.so.1", "libfabric.so.1"]


def test_an_image_without_anything_gets_all_with_the_chain_that_led_there() -> None:
    lines = decided(ROOTS, host("after"), stock("suse155", "/lib64"))
    assert [(line.name, line.decision, " <- ".join(line.chain)) for line in lines.values()] == [
        ("libcxi.so.1", "bind", "libcxi.so.1 <- root"),
        ("libfabric.so.1", "bind", "libfabric.so.1 <- root"),
        ("libc.so.6", "skip", "libc.so.6 <- libcxi.so.1 <- root"),
        ("libjson-c.so.5", "bind", "libjson-c.so.5 <- libfabric.so.1 <- root"),
    ]
    fabric = lines["libfabric.so.1"]
    assert (fabric.source, fabric.target) == (f"{FABRIC}/libfabric.so.1", "/lib64/libfabric.so.1")
    assert fabric.reason == "the image has none; put where the loader looks by default"
    assert (fabric.wanted, fabric.found) == ("FABRIC_1.7", "-")


def test_a_library_in_a_default_directory_keeps_its_path() -> None:
    line = decided(ROOTS, host("after"), stock("suse155", "/lib64") | {"/usr/lib64/x": b""})["libcxi.so.1"]
    assert (line.source, line.target) == ("/usr/lib64/libcxi.so.1", "/usr/lib64/libcxi.so.1")
    assert line.reason == "the image has none; the loader looks in that directory"


def test_the_other_json_c_is_bound_beside_the_images_own_and_said_to_be_two() -> None:
    line = decided(ROOTS, host("after"), stock("suse155", "/lib64"))["libjson-c.so.5"]
    assert line.notes == ("two versions: the image also has libjson-c.so.3; a process that needs both loads both",)


def test_an_image_with_the_same_or_newer_needs_nothing() -> None:
    lines = decided(ROOTS, host("after"), stock("ubuntu24", DEBIAN))
    assert {line.decision for line in lines.values()} == {"skip"}
    assert lines["libcxi.so.1"].reason == "the image has the same: both have up to LIBCXI_1.5"
    fabric = lines["libfabric.so.1"]
    assert fabric.reason == "the image has the newer: it has up to FABRIC_1.8, the host's up to FABRIC_1.7"
    assert fabric.target == f"{DEBIAN}/libfabric.so.1".replace("/usr", "", 1) or fabric.target
    assert "libjson-c.so.5" not in lines, "what only a library of the image needs is the image's own business"


def test_a_glibc_that_is_too_old_is_named_with_what_the_image_has() -> None:
    lines = decided(ROOTS, host("after"), stock("debian11", DEBIAN))
    assert [(line.name, line.decision) for line in lines.values()] == [
        ("libcxi.so.1", "refuse"),
        ("libfabric.so.1", "refuse"),
    ]
    assert lines["libcxi.so.1"].reason == "needs GLIBC_2.34 of libc.so.6, where the image has up to GLIBC_2.30"
    assert lines["libfabric.so.1"].reason.endswith("; libcxi.so.1, which is refused")
    assert all(line.target is None for line in lines.values())


def test_a_libstdcxx_that_is_too_old_refuses_the_gpu_layer_only() -> None:
    lines = decided(["libmpi_gnu_123.so.12", "libmpi_gtl_hsa.so.0"], host("after"), stock("suse155", "/lib64"))
    assert lines["libmpi_gnu_123.so.12"].decision == "bind"
    gpu = lines["libmpi_gtl_hsa.so.0"]
    assert gpu.decision == "refuse"
    assert gpu.reason == "needs GLIBCXX_3.4.32 of libstdc++.so.6, where the image has up to GLIBCXX_3.4.30"
    assert "libstdc++.so.6" not in lines, "only the refused library needs it, and it is not why"


def test_an_older_copy_in_the_image_is_covered_where_the_loader_finds_it() -> None:
    image = stock("debian11", DEBIAN)
    image[f"{DEBIAN}/libfabric.so.1.17.0"] = image[f"{DEBIAN}/libfabric.so.1"]
    image[f"{DEBIAN}/libfabric.so.1"] = Link("libfabric.so.1.17.0")
    line = decided(ROOTS, host("before", FABRIC), image)["libfabric.so.1"]
    assert (line.decision, line.target) == ("bind", f"{DEBIAN}/libfabric.so.1.17.0")
    assert line.reason.startswith(
        "the image's copy is older: it has up to FABRIC_1.4, the host's up to FABRIC_1.5; put over"
    )


def test_what_a_module_binds_already_is_marked_where_the_loader_looks_there() -> None:
    image = stock("suse155", "/lib64")
    lines = decided(ROOTS, host("after"), image, binds=("/usr/lib64/libcxi.so.1", "/opt/cray"))
    assert lines["libcxi.so.1"].target == "/usr/lib64/libcxi.so.1"
    assert (
        "the module binds /usr/lib64/libcxi.so.1 already, and the loader finds it in a default"
        in lines["libcxi.so.1"].reason
    )
    assert lines["libfabric.so.1"].target == "/lib64/libfabric.so.1"
    assert "the module binds /opt/cray, but this image's loader does not look there" in lines["libfabric.so.1"].reason


def test_a_library_path_of_the_image_into_a_bound_folder_needs_no_bind_of_its_own() -> None:
    image = stock("suse155", "/lib64")
    image["/.singularity.d/env/10-docker2singularity.sh"] = f'export LD_LIBRARY_PATH="{FABRIC}"'.encode()
    line = decided(ROOTS, host("after"), image, binds=("/opt/cray",))["libfabric.so.1"]
    assert (line.decision, line.source, line.target) == ("bind", f"{FABRIC}/libfabric.so.1", f"{FABRIC}/libfabric.so.1")
    assert "the module binds /opt/cray already, and the loader finds it through LD_LIBRARY_PATH" in line.reason


def test_a_library_path_of_the_image_to_a_renamed_folder_does_not_help() -> None:
    """The images of 2025 name /opt/cray/libfabric/1.15.2.0, which went with the update of January 2026."""
    image = stock("suse155", "/lib64")
    image["/.singularity.d/env/10-x.sh"] = b'export LD_LIBRARY_PATH="/opt/cray/libfabric/1.15.2.0/lib64"'
    line = decided(ROOTS, host("after"), image, binds=("/opt/cray",))["libfabric.so.1"]
    assert (line.decision, line.target) == ("bind", "/lib64/libfabric.so.1")


def test_an_image_that_brings_its_own_is_told_when_a_module_hides_it() -> None:
    image = {f"/usr/lib64/{Path(path).name}": content for path, content in stock("ubuntu24", "/").items()}
    line = decided(ROOTS, host("before"), image, binds=("/usr/lib64/libcxi.so.1",))["libcxi.so.1"]
    assert line.decision == "skip"
    assert line.notes == ("the module binds /usr/lib64/libcxi.so.1 over the image's own all the same",)


def without_network(image: Files, *, host_versions: list[str] | None = None) -> Line:
    files: Files = {"/lib64/libc.so.6": elf("libc.so.6", verdef=["GLIBC_2.34"]), **image}
    versions = ["FABRIC_1.6", "FABRIC_1.7"] if host_versions is None else host_versions
    fabric = elf("libfabric.so.1", ["libcxi.so.1"], verdef=versions)
    only = {**host("after"), f"{FABRIC}/libfabric.so.1": fabric}
    return decided(ROOTS, only, files)["libfabric.so.1"]


NEWER = elf("libfabric.so.1", ["libc.so.6"], verdef=["FABRIC_1.6", "FABRIC_1.7", "FABRIC_1.8"])


def using(*versions: str) -> bytes:
    return elf("librccl-net.so", ["libfabric.so.1"], verneed={"libfabric.so.1": list(versions)} if versions else {})


def test_a_newer_copy_without_the_network_is_refused_where_something_needs_it() -> None:
    """The image's own would go over TCP, and what was linked with it cannot load with the host's older one."""
    plugin = {"/opt/plugin/librccl-net.so": using("FABRIC_1.6", "FABRIC_1.8")}
    path = {"/.singularity.d/env/10-x.sh": b"export LD_LIBRARY_PATH=/opt/plugin"}
    line = without_network({"/lib64/libfabric.so.1": NEWER, **plugin, **path})
    assert (line.decision, line.target) == ("refuse", None)
    assert line.reason == (
        "the image's copy was built without libcxi.so.1, so its traffic would go over TCP; the host's cannot stand in "
        "for it: librccl-net.so needs FABRIC_1.8 of it"
    )


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"/lib64/librccl-net.so": using("FABRIC_1.6")}, "and librccl-net.so need FABRIC_1.6 at most"),
        ({"/lib64/librccl-net.so": using()}, "and librccl-net.so need no version at most"),
        ({}, "which nothing on the image's search path needs"),
        ({"/lib64/libbroken.so": b"x"}, "which nothing on the image's search path needs"),
    ],
    ids=["less", "no version", "nobody", "damaged"],
)
def test_a_newer_copy_without_the_network_gives_way_where_nothing_needs_it(more: Files, why: str) -> None:
    line = without_network({"/lib64/libfabric.so.1": NEWER, **more})
    assert (line.decision, line.target) == ("bind", "/lib64/libfabric.so.1")
    assert f"the host's lacks FABRIC_1.8 of it, {why}; put over the copy" in line.reason


@pytest.mark.parametrize("versions", [["FABRIC_1.6", "FABRIC_1.7"], []], ids=["the same versions", "no versions"])
def test_a_copy_without_the_network_gives_way_to_one_that_serves_all_its_users(versions: list[str]) -> None:
    same = elf("libfabric.so.1", ["libc.so.6"], verdef=versions)
    line = without_network({"/lib64/libfabric.so.1": same}, host_versions=versions)
    assert (line.decision, line.target) == ("bind", "/lib64/libfabric.so.1")
    assert line.reason == (
        "the image's copy was built without libcxi.so.1, so its traffic would go over TCP; the host's has all of its "
        "versions; put over the copy that the loader finds in a default directory"
    )


def test_a_copy_whose_provider_is_opened_by_name_has_the_network() -> None:
    """libfabric --enable-cxi=dl puts the provider into a file of its own, which alone needs libcxi."""
    image: Files = {
        "/lib64/libfabric.so.1": Link("libfabric.so.1.29.0"),
        "/lib64/libfabric.so.1.29.0": elf("libfabric.so.1", ["libc.so.6"], verdef=["FABRIC_1.6", "FABRIC_1.8"]),
        "/lib64/libfabric/libcxi-fi.so": elf(None, ["libcxi.so.1", "libc.so.6"]),
    }
    assert without_network(image, host_versions=["FABRIC_1.6"]).decision == "skip"
    image = {**image, "/lib64/libfabric/libcxi-fi.so": b"damaged"}
    assert "was built without libcxi.so.1" in without_network(image, host_versions=["FABRIC_1.6"]).reason


def test_a_copy_that_reaches_the_network_through_another_library_has_it() -> None:
    image: Files = {
        "/lib64/libfabric.so.1": elf("libfabric.so.1", ["libnet.so.1"], verdef=["FABRIC_1.6", "FABRIC_1.8"]),
        "/lib64/libnet.so.1": elf("libnet.so.1", ["libcxi.so.1"]),
    }
    assert without_network(image, host_versions=["FABRIC_1.6"]).decision == "skip"


def test_what_a_module_brings_of_a_library_that_the_image_must_keep_is_named() -> None:
    image = {f"/usr/lib64/{Path(path).name}": content for path, content in stock("ubuntu24", "/").items()}
    line = decided(ROOTS, host("before"), image, binds=("/usr/lib64/libcxi.so.1",))["libcxi.so.1"]
    assert (line.decision, line.without, line.by) == ("skip", "/usr/lib64/libcxi.so.1", None)
    folder = decided(ROOTS, host("before"), image, binds=("/usr/lib64",))["libcxi.so.1"]
    assert folder.without is None, "a folder is not taken away for one file in it"
    assert folder.notes == ("the module binds /usr/lib64 over the image's own all the same",)


def test_what_a_module_brings_of_a_library_that_the_image_cannot_load_is_named() -> None:
    image = {**stock("debian11", DEBIAN), "/usr/lib64/x": b""}
    image["/etc/ld.so.conf"] = b"/usr/lib64\n"
    image["/.singularity.d/env/10-x.sh"] = b"export LD_LIBRARY_PATH=/usr/lib64"
    line = decided(ROOTS, host("after"), image, binds=("/usr/lib64/libcxi.so.1",))["libcxi.so.1"]
    assert (line.decision, line.without) == ("refuse", "/usr/lib64/libcxi.so.1")
    assert line.notes == ("the module binds /usr/lib64/libcxi.so.1 which the image cannot load",)


def test_a_bind_that_a_module_makes_names_it() -> None:
    lines = decided(ROOTS, host("after"), stock("suse155", "/lib64"), binds=("/usr/lib64/libcxi.so.1",))
    assert (lines["libcxi.so.1"].by, lines["libfabric.so.1"].by) == ("the module", None)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"libcxi.so.2": elf("libcxi.so.2")}, "the host has none; it has libcxi.so.2"),
        (
            {"libcxi.so.1": Link("libcxi.so.1.4.9")},
            "the host has none; /lib64/libcxi.so.1 leads to /lib64/libcxi.so.1.4.9, which is not there",
        ),
        (
            {"libcxi.so.1": elf("libcxi.so.1", bits=32, machine=3)},
            "the host has none; /lib64/libcxi.so.1 is for another machine (i386, 32 bits, little-endian)",
        ),
        ({"libother.so": b""}, "the host has none"),
    ],
    ids=["SONAME", "dangling", "machine", "gone"],
)
def test_a_root_that_the_host_lacks_is_missing_and_says_what_is_there(changes: Files, reason: str) -> None:
    line = decided(["libcxi.so.1"], {f"/lib64/{name}": what for name, what in changes.items()}, {"/lib64/x": b""})[
        "libcxi.so.1"
    ]
    assert (line.decision, line.source, line.target, line.reason) == ("missing", "libcxi.so.1", None, reason)


def test_a_root_that_the_host_lacks_is_missing_even_where_the_image_has_it() -> None:
    line = decided(["libcxi.so.1"], {"/lib64/x": b""}, {"/lib64/libcxi.so.1": elf("libcxi.so.1")})["libcxi.so.1"]
    assert line.decision == "missing"
    assert line.reason == "the host has none; the image has its own, /lib64/libcxi.so.1"


def test_a_library_that_neither_has_refuses_what_needs_it() -> None:
    lines = decided(["liba.so"], {"/lib64/liba.so": elf("liba.so", ["libb.so"])}, {"/lib64/x": b""})
    assert (lines["liba.so"].decision, lines["liba.so"].reason) == (
        "refuse",
        "needs libb.so, which neither the host nor the image has",
    )
    assert (lines["libb.so"].decision, lines["libb.so"].chain) == ("missing", ("libb.so", "liba.so", "root"))


def test_a_need_that_only_the_image_can_serve_is_skipped() -> None:
    lines = decided(["liba.so"], {"/lib64/liba.so": elf("liba.so", ["libb.so"])}, {"/lib64/libb.so": elf("libb.so")})
    assert (lines["liba.so"].decision, lines["libb.so"].decision) == ("bind", "skip")
    assert lines["libb.so"].source == "libb.so"


def test_a_damaged_library_is_refused_with_file_and_byte() -> None:
    cut = elf("liba.so")[:50]
    line = decided(["liba.so"], {"/lib64/liba.so": cut}, {"/lib64/x": b""})["liba.so"]
    assert line.decision == "refuse"
    assert (
        line.reason
        == "/lib64/liba.so cannot be loaded: /lib64/liba.so: byte 16: the file ends in its header (it has 50 bytes)"
    )


def test_the_c_library_is_never_bound_even_when_it_is_asked_for() -> None:
    files = stock("after", "/lib64")
    lines = decided(["libc.so.6", "libstdc++.so.6"], files, stock("suse155", "/lib64"))
    assert [line.decision for line in lines.values()] == ["skip", "skip"]
    assert (
        decided(["libc.so.6"], files, {"/lib64/x": b""})["libc.so.6"].reason
        == "the image has no libc.so.6, which is never bound by itself"
    )


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
    assert lines["libb.so.1"].reason == (
        "the image's copy is older but has all that is needed; the host's needs GLIBC_2.38 of libc.so.6, "
        "where the image has up to GLIBC_2.30"
    )
    assert decided(["libb.so.1"], files, image)["libb.so.1"].decision == "refuse", "a root must come from the host"


@pytest.mark.parametrize(("needed", "decision"), [(["CURL_4"], "bind"), (["SUSE_1"], "refuse")])
def test_another_build_serves_where_it_has_what_is_needed(needed: list[str], decision: str) -> None:
    files: Files = {
        "/lib64/liba.so": elf("liba.so", ["libcurl.so.4"], verneed={"libcurl.so.4": needed}),
        "/lib64/libcurl.so.4": elf("libcurl.so.4", verdef=["CURL_4", "SUSE_1"]),
    }
    image = {"/lib64/libcurl.so.4": elf("libcurl.so.4", verdef=["CURL_4", "DEBIAN_1"])}
    assert decided(["liba.so"], files, image)["liba.so"].decision == decision


def test_two_files_for_one_soname_on_the_host_are_told() -> None:
    files: Files = {
        "/lib64/liba.so": elf("liba.so", ["libx.so.1"], runpath="/opt/one"),
        "/lib64/libb.so": elf("libb.so", ["libx.so.1"], runpath="/opt/two"),
        "/opt/one/libx.so.1": elf("libx.so.1"),
        "/opt/two/libx.so.1": elf("libx.so.1", verdef=["X_2"]),
    }
    line = decided(["liba.so", "libb.so"], files, {"/lib64/y": b""})["libx.so.1"]
    assert (line.source, line.target) == ("/opt/one/libx.so.1", "/lib64/libx.so.1")
    assert line.notes == ("two versions: libb.so by itself would load /opt/two/libx.so.1",)


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


def found(file: str, *verdef: str) -> Found:
    (loaded,) = [
        Loader(DictTree({f"/{file}": elf("x", verdef=verdef)}), read_rules(DictTree({}))).search(f"/{file}").found
    ]
    assert loaded is not None
    return loaded


@pytest.mark.parametrize(
    ("image", "host_copy", "relation"),
    [
        (found("x.so.1", "A_1", "A_2"), found("x.so.1", "A_1"), "newer"),
        (found("x.so.1", "A_1"), found("x.so.1", "A_1"), "same"),
        (found("x.so.1", "A_1"), found("x.so.1", "A_1", "A_2"), "older"),
        (found("x.so.1", "A_1", "B_1"), found("x.so.1", "A_1", "C_1"), "different"),
        (found("x.so.1", "A_1", "X_PRIVATE_9"), found("x.so.1", "A_1", "X_PRIVATE_3"), "same"),
        (found("x.so.1"), found("x.so.1", "A_1"), "older"),
        (found("x.so.1.10.0"), found("x.so.1.9.2"), "newer"),
        (found("x.so.1.2"), found("x.so.1.2"), "same"),
        (found("x.so.1.2"), found("x.so.1.2.1"), "older"),
        (found("x.so.1.2", "A_1"), found("x.so.1.3"), "older"),
        (found("x.so.1"), found("x.so.1.3"), "unknown"),
        (found("x.so"), found("x.so"), "unknown"),
    ],
)
def test_two_copies_are_compared_by_symbol_versions_then_by_their_files(
    image: Found, host_copy: Found, relation: str
) -> None:
    assert compare(image, host_copy)[0] == relation


def test_the_parts_of_the_c_library_are_known() -> None:
    inside = "ld-linux-x86-64.so.2 ld-linux-aarch64.so.1 libc.so.6 libm.so.6 libpthread.so.0 libdl.so.2 librt.so.1 libresolv.so.2 libnss_files.so.2 libgcc_s.so.1 libstdc++.so.6"
    outside = "libcxi.so.1 libcrypt.so.1 libgomp.so.1 libcurl.so.4 libmpi.so.12 libnl-3.so.200 libcap.so.2 libdlb.so.1 ldmud.so.1"
    assert all(is_foundation(name) for name in inside.split())
    assert not any(is_foundation(name) for name in outside.split())


@pytest.mark.parametrize(
    ("scripts", "path", "unknown"),
    [
        ({}, (), ()),
        (
            {"10-docker2singularity.sh": 'export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-"/opt/rocm/lib:/a"}"'},
            ("/opt/rocm/lib", "/a"),
            (),
        ),
        (
            {
                "10-a.sh": "LD_LIBRARY_PATH=/a",
                "90-environment.sh": "export LD_LIBRARY_PATH=/b:$LD_LIBRARY_PATH # first",
            },
            ("/b", "/a"),
            (),
        ),
        ({"90-environment.sh": "export LD_LIBRARY_PATH=$CONDA_PREFIX/lib:/b;"}, ("/b",), ("$CONDA_PREFIX/lib",)),
        ({"90-environment.sh": "export LD_LIBRARY_PATH=/b${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"}, ("/b",), ()),
        ({"95-apps.sh": "LD_LIBRARY_PATH=/scif:$LD_LIBRARY_PATH", "99-base.sh": "LD_LIBRARY_PATH=/x"}, (), ()),
    ],
)
def test_the_library_path_is_read_from_the_images_own_scripts(
    scripts: dict[str, str], path: tuple[str, ...], unknown: tuple[str, ...]
) -> None:
    tree = DictTree({f"/.singularity.d/env/{name}": text.encode() for name, text in scripts.items()} or {"/x": b""})
    own = ("/.singularity.d/libs",) if scripts else ()
    assert library_path(tree) == ((*path, *own), unknown)


NAMES = [f"lib{letter}.so.1" for letter in "pqrxyz"]
GLIBC = ["GLIBC_2.2.5", "GLIBC_2.30", "GLIBC_2.34", "GLIBC_2.38"]


def random_sides(
    choose: random.Random, *, versions: bool = True
) -> tuple[dict[str, bytes | Link], dict[str, bytes | Link]]:
    """A host whose libraries need each other and an image that has some of them, newer, older or of another build."""
    levels = {name: choose.randrange(4) if versions else 0 for name in NAMES}

    def library(name: str, level: int, glibc: int) -> bytes:
        needed = choose.sample(NAMES, choose.randrange(3))
        verneed = {
            one: [f"V_{choose.randrange(levels[one]) + 1}"] for one in needed if levels[one] and choose.random() < 0.7
        }
        verneed["libc.so.6"] = GLIBC[: choose.randrange(glibc) + 1][-1:] if versions else GLIBC[:1]
        verdef = [f"V_{number + 1}" for number in range(level)] + (
            ["W_1"] if versions and choose.random() < 0.1 else []
        )
        return elf(name, [*needed, "libc.so.6"], verneed=verneed, verdef=verdef)

    on_host: dict[str, bytes | Link] = {"/lib64/libc.so.6": elf("libc.so.6", verdef=GLIBC)}
    in_image: dict[str, bytes | Link] = {"/lib64/libc.so.6": elf("libc.so.6", verdef=GLIBC[: choose.randrange(1, 5)])}
    for name in NAMES:
        if choose.random() < 0.85:
            folder = choose.choice(["/lib64", "/usr/lib64", FABRIC])
            on_host[f"{folder}/{name}"] = library(name, levels[name], 4)
        if choose.random() < 0.4:
            in_image[f"{choose.choice(['/lib64', '/usr/lib64'])}/{name}"] = library(
                name, choose.randrange(5) if versions else 0, 1
            )
    if choose.random() < 0.5:
        in_image["/.singularity.d/env/10-x.sh"] = f"export LD_LIBRARY_PATH={FABRIC}".encode()
    return on_host, in_image


@given(st.integers(0, 2**32), st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True), st.booleans())
@settings(deadline=None)
def test_a_plan_that_is_carried_out_loads_exactly_what_it_says(seed: int, roots: list[str], module: bool) -> None:
    """Put the bound files into the image and ask its loader, which the real loader agrees with."""
    on_host, in_image = random_sides(random.Random(seed))
    before = sides(on_host, in_image, binds=(FABRIC,) if module else ())
    lines = closure(roots, before)
    assert set(roots) <= {line.name for line in lines}
    assert not any(line.decision == "bind" and is_foundation(line.name) for line in lines)
    bound = {line.name: line for line in lines if line.decision == "bind"}
    after = dict(in_image)
    if module:
        after.update({path: content for path, content in on_host.items() if path.startswith(FABRIC)})
    after.update({line.target: on_host[line.source] for line in bound.values() if line.target is not None})
    tree = DictTree(after)
    loader = Loader(tree, read_rules(tree, Cpu(), library_path(tree)[0]))
    for name, line in bound.items():
        one = loader.search(name).found
        assert one is not None
        assert after[one.path] == on_host[line.source], f"the loader finds another {name}"
        assert_loads(loader, Loaded(name, one), set(bound))


def assert_loads(loader: Loader, root: Loaded, bound: set[str]) -> None:
    """Everything that a bound library needs directly is there, and has the versions that it needs."""
    for need in walk(loader, [root]):
        if need.requester is root or (need.requester is not None and need.requester.name in bound):
            assert need.loaded is not None, f"{need.name} is not found for {need.requester}"
            wanted = need.requester.found.info.verneed.get(need.name, ())
            had = need.loaded.found.info.verdef
            assert not had or set(wanted) <= set(had), f"{need.name} lacks {set(wanted) - set(had)}"


@given(st.integers(0, 2**32), st.lists(st.sampled_from(NAMES), min_size=2, max_size=4, unique=True))
@settings(deadline=None)
def test_more_roots_never_take_a_library_away(seed: int, roots: list[str]) -> None:
    on_host, in_image = random_sides(random.Random(seed), versions=False)
    loader = sides(on_host, in_image).host
    found = [one for name in roots[:-1] if (one := loader.search(name).found) is not None]
    # A root that another root needs tells what the image's copy of that one was built without.
    assume(not any(roots[-1] in one.info.needed for one in found))
    fewer = closure(roots[:-1], sides(on_host, in_image))
    more = {line.name: line for line in closure(roots, sides(on_host, in_image))}
    for line in fewer:
        assert more[line.name].decision == line.decision or line.name == roots[-1]


def test_the_walk_serves_everyone_by_the_first_of_a_name() -> None:
    files: Files = {
        "/lib64/liba.so": elf("liba.so", ["libb.so", "libc-alias.so"]),
        "/lib64/libb.so": elf("libreal.so.1"),
        "/lib64/libc-alias.so": elf("libalias.so", ["libreal.so.1"]),
        "/lib64/libreal.so.1": elf("libreal.so.1", verdef=["OTHER_1"]),
    }
    loader = Loader(DictTree(files), read_rules(DictTree(files)))
    root = loader.search("liba.so")
    assert root.found is not None
    needs = walk(loader, [Need("liba.so", None, Loaded("liba.so", root.found), root)], others=True)
    last = needs[-1]
    assert (last.name, last.other) == ("libreal.so.1", "/lib64/libreal.so.1")
    assert last.loaded is not None
    assert last.loaded.found.path == "/lib64/libb.so"
