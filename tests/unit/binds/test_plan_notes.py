"""What a plan notes on the whole of an image."""

from __future__ import annotations

from dataclasses import dataclass, field

from lumisite.binds.plan import BindPlan, PlanRequest, make_plan
from lumisite.findings.writers import sentence
from lumisite.images.sif import OpenedImage
from lumisite.site.load import load_site
from lumisite.site.versions import parse_version
from tests.support.closures import host
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


def plan(image: Files, family: str | None = None) -> BindPlan:
    request = PlanRequest(LUMI, "2026-01", RELEASES, ("/x.sif",), family)
    return make_plan(request, OpenedImage(ClosedTree(image, "image")), DictTree(host("after"), "host"))


def test_what_of_an_image_could_not_be_read_or_is_not_known_is_noted() -> None:
    script = b"export LD_LIBRARY_PATH=$CONDA_PREFIX/lib:/b"
    found = plan({"/lib64/x": b"", "/.singularity.d/env/10-x.sh": script}, "lumi-rocm")
    notes = [sentence(note) for note in found.notes]
    assert "the image has no dynamic loader for this machine; the usual directories are taken for it" in notes
    assert "LD_LIBRARY_PATH of the image is known only in part; left out: $CONDA_PREFIX/lib" in notes
    assert [line for line in notes if "may not be read" in line] == ["/data: in the image, may not be read (chmod)"]


def test_of_an_image_that_no_family_recognises_no_plugin_is_missing() -> None:
    """It may not be for the network."""
    found = plan(PLUGIN)
    assert [line.decision for line in found.lines if line.library == "librccl-net.so"] == ["skip"]
