"""The plugin in an image: what it loads in a container that has the plan, by search paths of its own too."""

from __future__ import annotations

import pytest

from lumisite.binds.closure import PlannedLibrary, closure
from lumisite.binds.plugin import plugin_lines
from lumisite.site.load import load_site
from tests.support.closures import DEBIAN, FABRIC, ROOTS, sides
from tests.support.dict_trees import Files, Link
from tests.support.elves import elf

LUMI = load_site("lumi").site
HOST: Files = {
    f"{FABRIC}/libfabric.so.1": elf("libfabric.so.1", ["libcxi.so.1"], verdef=["FABRIC_1.7"]),
    "/usr/lib64/libcxi.so.1": elf("libcxi.so.1", verdef=["LIBCXI_1.5"]),
}
OFI = "/opt/ofi/lib"
RCCL: Files = {"/opt/rocm-6.4.4/lib/librccl.so.1": elf("librccl.so.1", rpath="/opt/ofi/lib")}
WITHOUT = elf("libfabric.so.1", verdef=["FABRIC_1.7"])
WITH = elf("libfabric.so.1", ["libcxi.so.1"], verdef=["FABRIC_1.7"])


def plugin(*, needs: str = "FABRIC_1.7", rpath: str | None = None, runpath: str | None = None) -> bytes:
    versions = {"libfabric.so.1": [needs]}
    return elf("librccl-net.so", ["libfabric.so.1"], verneed=versions, rpath=rpath, runpath=runpath)


def lines(image: Files, roots: list[str] = ROOTS, *, binds: tuple[str, ...] = ()) -> dict[str, PlannedLibrary]:
    """Return the lines past the plan's own, by library."""
    both = sides(HOST, {"/lib64/libc.so.6": elf("libc.so.6", verdef=["GLIBC_2.38"]), **image}, binds=binds)
    found, _ = plugin_lines(LUMI, both, closure(roots, both))
    assert len({line.library for line in found}) == len(found)
    return {str(line.library): line for line in found}


def decided(image: Files, roots: list[str] = ROOTS) -> dict[str, str]:
    return {name: line.decision for name, line in lines(image, roots).items()}


@pytest.mark.parametrize("kind", ["rpath", "runpath"])
def test_the_hosts_libfabric_is_put_over_the_copy_that_the_plugin_has_for_itself(kind: str) -> None:
    """The plan binds it where a search without the plugin's own paths finds it, which the plugin never does."""
    image = {
        **RCCL,
        f"{OFI}/librccl-net.so": plugin(**{kind: "$ORIGIN"}),
        f"{OFI}/libfabric.so.1": Link("libfabric.so.1.2"),
    }
    image[f"{OFI}/libfabric.so.1.2"] = WITHOUT
    found = lines(image)
    line = found["libfabric.so.1"]
    assert (line.decision, line.source, line.target) == ("bind", f"{FABRIC}/libfabric.so.1", f"{OFI}/libfabric.so.1.2")
    way = f"through the {kind.upper()} of librccl-net.so"
    assert line.why == (f"librccl-net.so loads the image's own {way}, past the one that is bound",)
    assert line.chain == ("libfabric.so.1", "librccl-net.so", "/opt/rocm-6.4.4/lib/librccl.so.1")
    plugin_of_image = found["librccl-net.so"]
    way = "through the RPATH of /opt/rocm-6.4.4/lib/librccl.so.1"
    assert plugin_of_image.why == (f"the image's own, found {way}",)
    assert plugin_of_image.chain[1] == "/opt/rocm-6.4.4/lib/librccl.so.1"


def test_what_the_host_lacks_a_version_of_is_refused() -> None:
    image = {**RCCL, f"{OFI}/librccl-net.so": plugin(needs="FABRIC_1.8", rpath="$ORIGIN")}
    image[f"{OFI}/libfabric.so.1"] = elf("libfabric.so.1", verdef=["FABRIC_1.7", "FABRIC_1.8"])
    line = lines(image)["libfabric.so.1"]
    assert line.decision == "refuse"
    assert line.why[1].startswith("the host's copy lacks FABRIC_1.8, which librccl-net.so of the image needs")


def test_a_copy_without_the_network_is_refused_where_the_family_takes_nothing_from_the_host() -> None:
    image = {**RCCL, f"{OFI}/librccl-net.so": plugin(rpath="$ORIGIN"), f"{OFI}/libfabric.so.1": WITHOUT}
    line = lines(image, [])["libfabric.so.1"]
    assert (line.decision, line.target) == ("refuse", f"{OFI}/libfabric.so.1")
    assert line.why[1] == "traffic between nodes goes over TCP"
    assert "has no provider cxi, as nothing in or beside it is linked with libcxi.so.1; `--library" in line.why[0]
    beside = {
        f"{OFI}/libfabric/libcxi-fi.so": elf("libcxi-fi.so", ["libcxi.so.1"]),
        "/lib64/libcxi.so.1": elf("libcxi.so.1"),
    }
    assert decided({**image, **beside}, [])["libfabric.so.1"] == "skip", "a provider stands beside it"


def test_a_search_path_of_the_plugin_may_hide_the_images_good_copy() -> None:
    image = {**RCCL, f"{OFI}/librccl-net.so": plugin(runpath=OFI), f"{OFI}/libfabric.so.1": WITHOUT}
    image |= {f"{DEBIAN}/libfabric.so.1": WITH, f"{DEBIAN}/libcxi.so.1": elf("libcxi.so.1", verdef=["LIBCXI_1.5"])}
    assert decided(image, [])["libfabric.so.1"] == "refuse"
    path = {"/.singularity.d/env/10-x.sh": f"export LD_LIBRARY_PATH={DEBIAN}".encode()}
    found = lines({**image, **path}, [])
    assert found["libfabric.so.1"].decision == found["libcxi.so.1"].decision == "skip"
    assert found["libfabric.so.1"].target == f"{DEBIAN}/libfabric.so.1", "LD_LIBRARY_PATH comes before a RUNPATH"


def test_what_the_plan_says_of_the_same_copy_is_not_said_again() -> None:
    image = {**RCCL, f"{OFI}/librccl-net.so": plugin()}
    image[f"{DEBIAN}/libcxi.so.1"] = elf("libcxi.so.1", verdef=["LIBCXI_1.5"])
    assert "libfabric.so.1" not in decided({**image, f"{DEBIAN}/libfabric.so.1": WITH})
    newer = elf("libfabric.so.1", verdef=["FABRIC_1.7", "FABRIC_1.8"])
    user = elf("libuser.so", ["libfabric.so.1"], verneed={"libfabric.so.1": ["FABRIC_1.8"]})
    refused = {f"{DEBIAN}/libfabric.so.1": newer, f"{DEBIAN}/libuser.so": user}
    assert decided({**image, **refused}) == {"librccl-net.so": "skip"}


def test_a_libfabric_is_known_by_its_soname_where_the_plugin_needs_a_path() -> None:
    by_path = elf("librccl-net.so", [f"{OFI}/net.so"])
    assert (
        decided({**RCCL, f"{OFI}/librccl-net.so": by_path, f"{OFI}/net.so": WITHOUT}, [])["libfabric.so.1"] == "refuse"
    )


def test_a_libfabric_that_is_nowhere_or_damaged_is_named() -> None:
    image = {**RCCL, f"{OFI}/librccl-net.so": plugin(rpath="$ORIGIN/../gone")}
    line = lines(image, [])["libfabric.so.1"]
    assert (line.decision, line.target) == ("missing", None)
    assert line.why == (
        "librccl-net.so needs it, and its search finds none",
        "traffic between nodes goes over TCP",
    )
    line = lines({**image, f"{DEBIAN}/libfabric.so.1": b"text"}, [])["libfabric.so.1"]
    assert line.decision == "refuse"
    assert "cannot be loaded" in line.why[0]


def test_a_provider_whose_library_is_nowhere_is_named() -> None:
    image = {**RCCL, f"{OFI}/librccl-net.so": plugin(rpath="$ORIGIN"), f"{OFI}/libfabric.so.1": WITH}
    found = lines(image, [])
    assert {name: line.decision for name, line in found.items()} == {
        "librccl-net.so": "skip",
        "libfabric.so.1": "skip",
        "libcxi.so.1": "missing",
    }
    assert found["libfabric.so.1"].why[0].startswith("librccl-net.so loads it ")
    assert found["libfabric.so.1"].why[0].endswith(", and it has a provider cxi")
    assert found["libcxi.so.1"].why == (
        "libfabric.so.1 needs it, and its search finds none",
        "traffic between nodes goes over TCP",
    )


def test_a_plugin_that_needs_a_newer_libfabric_than_it_gets_cannot_be_loaded() -> None:
    image = {
        **RCCL,
        f"{OFI}/librccl-net.so": plugin(needs="FABRIC_1.8", rpath="$ORIGIN"),
        f"{OFI}/libfabric.so.1": WITH,
    }
    line = lines(image, [])["libfabric.so.1"]
    assert line.decision == "refuse"
    assert line.why[0].startswith(f"librccl-net.so needs FABRIC_1.8, and {OFI}/libfabric.so.1, which it loads ")
    assert line.why[1] == "traffic between nodes goes over TCP"


def test_what_the_bound_libfabric_needs_is_put_over_the_plugins_copies_too() -> None:
    """An RPATH is for all that is loaded below it: the host's libfabric gets its libcxi from there."""
    image = {**RCCL, f"{OFI}/librccl-net.so": plugin(rpath="$ORIGIN"), f"{OFI}/libfabric.so.1": WITHOUT}
    image[f"{OFI}/libcxi.so.1"] = elf("libcxi.so.1", verdef=["LIBCXI_1.0"])
    found = lines(image)
    assert {name: line.target for name, line in found.items() if line.decision == "bind"} == {
        "libfabric.so.1": f"{OFI}/libfabric.so.1",
        "libcxi.so.1": f"{OFI}/libcxi.so.1",
    }
    assert found["libcxi.so.1"].chain[:3] == ("libcxi.so.1", "libfabric.so.1", "librccl-net.so")


def test_a_plugin_that_nothing_opens_is_followed_by_itself() -> None:
    line = lines({f"{OFI}/x": b"", "/opt/aws-ofi-rccl/librccl-net.so": plugin()}, [])["libfabric.so.1"]
    assert (line.decision, line.chain) == ("missing", ("libfabric.so.1", "librccl-net.so", "root"))


def test_a_library_for_collectives_that_finds_no_plugin_is_named() -> None:
    image = {"/opt/rocm-6.4.4/lib/librccl.so.1": elf("librccl.so.1"), "/opt/aws-ofi-rccl/librccl-net.so": plugin()}
    line = plugin_lines(LUMI, sides(HOST, image), ())[1]
    assert line is not None
    assert (line.decision, line.library) == ("missing", "librccl-net.so")
    assert line.why[1] == "traffic between nodes goes over TCP"
    assert plugin_lines(LUMI, sides(HOST, image), (line,))[1] is None, "the plan says so already"
    path = {"/.singularity.d/env/10-x.sh": b"export LD_LIBRARY_PATH=/opt/aws-ofi-rccl"}
    assert plugin_lines(LUMI, sides(HOST, {**image, **path}), ())[1] is None
    nccl = {f"{DEBIAN}/libnccl.so.2": elf("libnccl.so.2")}
    assert plugin_lines(load_site("university").site, sides(HOST, nccl), ())[1] is None, "NCCL's own network carries it"


def test_what_a_plugin_needs_and_nothing_has_is_a_warning() -> None:
    own = elf("librccl-net.so", ["libcuda.so.1"])
    line = lines({**RCCL, f"{OFI}/librccl-net.so": own}, [])["librccl-net.so"]
    assert line.why[0].endswith("; it does not need libfabric.so.1")
    assert line.warnings == ("nothing has libcuda.so.1, which librccl-net.so needs, unless the runtime injects it",)
