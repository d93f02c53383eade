"""What a plan notes on the whole of an image."""

from __future__ import annotations

from dataclasses import dataclass, field

from lumisite.binds.plan import BindPlan, PlanRequest, make_plan
from lumisite.images.sif import OpenedImage
from lumisite.site.load import load_site
from lumisite.site.versions import parse_version
from tests.support.closures import FABRIC, host
from tests.support.dict_trees import DictTree, Files
from tests.support.elves import elf

LUMI = load_site("lumi").site
RELEASES = {"cpe": parse_version("25.03"), "rocm": parse_version("6.2")}
PLUGIN: Files = {
    "/opt/rocm-6.4.4/lib/librccl.so.1": elf("librccl.so.1"),
    "/opt/aws-ofi-rccl/librccl-net.so": elf("librccl-net.so", ["libfabric.so.1"]),
}


@dataclass(frozen=True)
class ClosedTree(DictTree):
    """A tree of which a folder cannot be read."""

    unreadable: dict[str, str] = field(default_factory=lambda: {"/data": "chmod", "/data/below": "chmod"})


def plan(image: Files, family: str, *, host_files: Files | None = None, closed: bool = False) -> BindPlan:
    tree = ClosedTree(image, "image") if closed else DictTree(image, "image")
    request = PlanRequest(LUMI, "2026-01", RELEASES, ("/x.sif",), family)
    return make_plan(request, OpenedImage(tree), DictTree(host("after") if host_files is None else host_files, "host"))


def subjects(found: BindPlan) -> dict[str, str]:
    return {note.code: note.subject for note in found.notes}


def test_what_of_an_image_could_not_be_read_or_is_not_known_is_noted() -> None:
    script = b"export LD_LIBRARY_PATH=$CONDA_PREFIX/lib:/b"
    found = plan({"/lib64/x": b"", "/.singularity.d/env/10-x.sh": script}, "lumi-rocm", closed=True)
    assert subjects(found).keys() >= {"image-family", "library-path-unknown", "image-without-loader"}
    assert [note.subject for note in found.notes if note.code == "image-path-closed"] == ["/data"]
    (unknown,) = (note for note in found.notes if note.code == "library-path-unknown")
    assert unknown.values["unknown"] == ("$CONDA_PREFIX/lib",)


def test_a_directory_of_the_site_that_the_host_lacks_is_noted_with_what_is_beside_it() -> None:
    files: Files = {"/usr/lib64/x": b"", "/opt/cray/libfabric/9.9/lib64/libfabric.so.1": elf("libfabric.so.1")}
    found = plan({"/lib64/x": b""}, "lumi-rocm", host_files=files)
    lacking = {note.values["library"]: note for note in found.notes if note.code == "site-library-missing"}
    assert lacking["libfabric"].subject == FABRIC.removesuffix("/lib64")
    assert lacking["libfabric"].values["beside"] == ("9.9",)


def test_a_family_that_takes_nothing_from_the_host_is_noted() -> None:
    found = plan({"/lib64/x": b""}, "laif-multitorch")
    assert (subjects(found)["family-needs-nothing"], found.lines, found.exit_code) == ("laif-multitorch", (), 0)


def test_a_plugin_that_only_start_up_scripts_may_find_leaves_the_speed_open() -> None:
    found = plan(PLUGIN, "laif-multitorch")
    assert subjects(found)["plugin-uncertain"] == "librccl-net.so"
    assert ("speed-unknown" in subjects(found), found.exit_code) == (True, 1)
