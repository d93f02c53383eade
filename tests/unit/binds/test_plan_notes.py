"""What a plan notes on the whole of an image."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from lumisite.binds.plan import BindPlan, PlanRequest, make_plan
from lumisite.findings.writers import sentence
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
    said = [sentence(note) for note in found.notes]
    assert "the image has no dynamic loader for this machine; the usual directories are taken for it" in said
    assert "LD_LIBRARY_PATH of the image is known only in part; left out: $CONDA_PREFIX/lib" in said
    assert [line for line in said if "may not be read" in line] == ["/data: in the image, may not be read (chmod)"]


def test_a_directory_of_the_site_that_the_host_lacks_is_noted_with_what_is_beside_it() -> None:
    files: Files = {"/usr/lib64/x": b"", "/opt/cray/libfabric/9.9/lib64/libfabric.so.1": elf("libfabric.so.1")}
    found = plan({"/lib64/x": b""}, "lumi-rocm", host_files=files)
    (lacking,) = (note for note in found.notes if note.message.startswith("libfabric by the site description"))
    assert lacking.subject == FABRIC.removesuffix("/lib64")
    assert lacking.message.endswith(", which the host lacks (it has 9.9 there)")


def test_a_family_that_takes_nothing_from_the_host_is_noted() -> None:
    found = plan({"/lib64/x": b""}, "laif-multitorch")
    assert (subjects(found)["plan-note"], found.lines, found.exit_code) == ("laif-multitorch", (), 0)


def test_a_plugin_that_only_start_up_scripts_may_find_leaves_the_speed_open() -> None:
    tree = DictTree(PLUGIN, "image")
    request = PlanRequest(LUMI, "2026-01", RELEASES, ("/appl/lumi-multitorch-x.sif",))
    found = make_plan(request, OpenedImage(tree), DictTree(host("after"), "host"))
    assert ("speed-unknown" in subjects(found), found.exit_code) == (True, 1)
    unknown = make_plan(replace(request, image_paths=("/x.sif",)), OpenedImage(tree), DictTree(host("after"), "host"))
    decisions = [line.decision for line in unknown.lines if line.library == "librccl-net.so"]
    assert decisions == ["skip"], "what no family recognises may not be for the network, so no plugin is missing"
