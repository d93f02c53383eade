"""A newer libfabric in the image that knows nothing of the host's network."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lumisite.binds.closure import PlannedLibrary
from tests.support.closures import FABRIC, ROOTS, decided, host
from tests.support.dict_trees import Files, Link
from tests.support.elves import elf


def lines(image: Files, versions: Sequence[str]) -> dict[str, PlannedLibrary]:
    """Decide for an image and a host whose libfabric has these versions."""
    files: Files = {"/lib64/libc.so.6": elf("libc.so.6", verdef=["GLIBC_2.34"]), **image}
    fabric = elf("libfabric.so.1", ["libcxi.so.1"], verdef=versions)
    return decided(ROOTS, {**host("after"), f"{FABRIC}/libfabric.so.1": fabric}, files)


def libfabric(image: Files, versions: Sequence[str] = ("FABRIC_1.6", "FABRIC_1.7")) -> PlannedLibrary:
    return lines(image, versions)["libfabric.so.1"]


WITHOUT = "the image's copy was built without libcxi.so.1, so its traffic would go over TCP"
OLD = ("FABRIC_1.4", "FABRIC_1.5")
NEWER = elf("libfabric.so.1", ["libc.so.6"], verdef=["FABRIC_1.6", "FABRIC_1.7", "FABRIC_1.8"])


def using(*versions: str) -> bytes:
    return elf("librccl-net.so", ["libfabric.so.1"], verneed={"libfabric.so.1": list(versions)} if versions else {})


def test_a_newer_copy_without_the_network_is_refused_where_something_needs_it() -> None:
    """The image's own would go over TCP, and what was linked with it cannot load with the host's older one."""
    plugin = {"/opt/plugin/librccl-net.so": using("FABRIC_1.6", "FABRIC_1.8")}
    path = {"/.singularity.d/env/10-x.sh": b"export LD_LIBRARY_PATH=/opt/plugin"}
    line = libfabric({"/lib64/libfabric.so.1": NEWER, **plugin, **path})
    assert (line.decision, line.target) == ("refuse", None)
    assert line.why == (
        WITHOUT,
        "the host's copy lacks FABRIC_1.8, which librccl-net.so of the image needs; it has up to FABRIC_1.7",
    )


@pytest.mark.parametrize(
    "more",
    [{"/lib64/librccl-net.so": using("FABRIC_1.6")}, {"/lib64/librccl-net.so": using()}, {"/lib64/libbroken.so": b"x"}],
)
def test_a_newer_copy_without_the_network_gives_way_where_nothing_needs_it(more: Files) -> None:
    line = libfabric({"/lib64/libfabric.so.1": NEWER, **more})
    assert (line.decision, line.target) == ("bind", "/lib64/libfabric.so.1")
    assert line.why[0] == WITHOUT
    assert line.why[1].startswith("put over the copy")


@pytest.mark.parametrize("versions", [["FABRIC_1.6", "FABRIC_1.7"], []], ids=["the same versions", "no versions"])
def test_a_copy_without_the_network_gives_way_to_one_that_serves_all_its_users(versions: list[str]) -> None:
    same = elf("libfabric.so.1", ["libc.so.6"], verdef=versions)
    line = libfabric({"/lib64/libfabric.so.1": same}, versions)
    assert (line.decision, line.target) == ("bind", "/lib64/libfabric.so.1")
    assert line.why[0] == WITHOUT


def test_a_copy_whose_provider_is_opened_by_name_has_the_network() -> None:
    """libfabric --enable-cxi=dl puts the provider into a file of its own, which alone needs libcxi."""
    image: Files = {
        "/lib64/libfabric.so.1": Link("libfabric.so.1.29.0"),
        "/lib64/libfabric.so.1.29.0": elf("libfabric.so.1", ["libc.so.6"], verdef=["FABRIC_1.6", "FABRIC_1.8"]),
        "/lib64/libfabric/libcxi-fi.so": elf(None, ["libcxi.so.1", "libc.so.6"]),
    }
    assert libfabric(image, ["FABRIC_1.6"]).decision == "skip"
    image = {**image, "/lib64/libfabric/libcxi-fi.so": b"damaged"}
    assert libfabric(image, ["FABRIC_1.6"]).why[0] == WITHOUT


def test_a_copy_that_reaches_the_network_through_another_library_has_it() -> None:
    image: Files = {
        "/lib64/libfabric.so.1": elf("libfabric.so.1", ["libnet.so.1"], verdef=["FABRIC_1.6", "FABRIC_1.8"]),
        "/lib64/libnet.so.1": elf("libnet.so.1", ["libcxi.so.1"]),
    }
    assert libfabric(image, ["FABRIC_1.6"]).decision == "skip"


@pytest.mark.parametrize(
    ("plugin", "own"),
    [
        ("/lib64/librccl-net.so", {}),
        ("/opt/aws-ofi-rccl/librccl-net.so", {"/lib64/libfabric.so.1": elf("libfabric.so.1", verdef=["FABRIC_1.4"])}),
        ("/opt/aws-ofi-nccl-1.9/lib/libnccl-net-ofi.so", {}),
    ],
)
def test_a_host_library_that_is_too_old_for_what_the_image_holds_is_refused(plugin: str, own: Files) -> None:
    user = elf(plugin.rpartition("/")[2], ["libfabric.so.1"], verneed={"libfabric.so.1": ["FABRIC_1.0", "FABRIC_1.6"]})
    line = libfabric({**own, plugin: user}, OLD)
    name = plugin.rpartition("/")[2]
    assert (line.decision, line.target) == ("refuse", None)
    assert line.why[-1] == f"the host's copy lacks FABRIC_1.6, which {name} of the image needs; it has up to FABRIC_1.5"


def test_a_host_library_that_has_what_the_image_needs_is_bound() -> None:
    for versions, needed in ((OLD, "FABRIC_1.5"), ([], "FABRIC_1.6")):
        assert libfabric({"/lib64/librccl-net.so": using(needed)}, versions).decision == "bind"
    weak = elf("librccl-net.so", ["libfabric.so.1"], verneed={"libfabric.so.1": ["FABRIC_1.6"]}, weak=["FABRIC_1.6"])
    assert libfabric({"/lib64/librccl-net.so": weak}, OLD).decision == "bind"


def test_what_the_host_brings_in_place_of_the_images_needs_nothing_of_the_image() -> None:
    """The image's own older libfabric, which is bound over, may ask a newer libcxi than the host's."""
    own = elf("libfabric.so.1", ["libcxi.so.1"], verdef=["FABRIC_1.4"], verneed={"libcxi.so.1": ["LIBCXI_9.9"]})
    found = lines({"/lib64/libfabric.so.1": own}, OLD)
    assert [found[name].decision for name in ROOTS] == ["bind", "bind"]


def test_the_images_older_copy_serves_where_the_hosts_cannot() -> None:
    """No root: json-c of the image has what the host's libfabric needs, and more than the host's for the image's own."""
    old = elf("libjson-c.so.5", verdef=["JSONC_0.14"])
    new = elf("libjson-c.so.5", verdef=["JSONC_0.14", "JSONC_0.15"])
    user = elf("libuser.so.1", ["libjson-c.so.5"], verneed={"libjson-c.so.5": ["JSONC_0.16"]})
    fabric = elf("libfabric.so.1", ["libjson-c.so.5"], verneed={"libjson-c.so.5": ["JSONC_0.14"]})
    image: Files = {
        "/lib64/libc.so.6": elf("libc.so.6", verdef=["GLIBC_2.34"]),
        "/lib64/libjson-c.so.5": old,
        "/lib64/libuser.so.1": user,
    }
    only = {f"{FABRIC}/libfabric.so.1": fabric, "/usr/lib64/libjson-c.so.5": new}
    line = decided(["libfabric.so.1"], only, image)["libjson-c.so.5"]
    assert line.decision == "skip"
    assert line.why == (
        "the image's copy is older but has all that is needed",
        "the host's copy lacks JSONC_0.16, which libuser.so.1 of the image needs; it has up to JSONC_0.15",
    )
