"""A newer libfabric in the image that knows nothing of the host's network."""

from __future__ import annotations

import pytest

from lumisite.binds.closure import Line
from tests.support.closures import FABRIC, ROOTS, decided, host
from tests.support.dict_trees import Files, Link
from tests.support.elves import elf


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
