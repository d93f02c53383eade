"""Whether the plugin of an image finds a libfabric: where its loader looks, and what the host has there."""

from __future__ import annotations

import pytest

from lumisite.findings.finding import Severity
from lumisite.images.lock import LockedImage, holds_by_lock
from lumisite.images.network import without_network
from lumisite.images.versions import ReadImage
from lumisite.site.images import Holds
from lumisite.site.load import load_site
from lumisite.site.versions import parse_version
from tests.support.dict_trees import DictTree, Files
from tests.support.elves import elf

LUMI = load_site("lumi").site
PLUGIN = "/opt/aws-ofi-rccl/librccl-net.so"
FABRIC = "libfabric.so.1"
HOST, GONE = "/opt/cray/libfabric/1.22.0/lib64", "/opt/cray/libfabric/1.15.2.0/lib64"
DEF, DOCKER = "/.singularity.d/env/90-environment.sh", "/.singularity.d/env/10-docker2singularity.sh"


def image(script: str = "", *, of: str = DEF, plugin: bytes | None = None, own: str = "") -> ReadImage:
    """Return an image with a plugin, a script of its environment, and maybe its own libfabric in a folder."""
    files: Files = {PLUGIN: plugin or elf("librccl-net.so"), of: script.encode()}
    return ReadImage(LUMI, DictTree({**files, **({f"{own}/{FABRIC}": elf(FABRIC)} if own else {})}))


def by_lock(known: ReadImage, platform: str | None = None) -> Holds:
    """Return what a lock of an image knows of it."""
    search = known.network
    locked = LockedImage(
        versions={name: version.value for name, version in known.versions.items()},
        libfabric=search.libfabric,
        libfabric_folders=search.folders,
        libfabric_versions=search.versions,
    )
    return holds_by_lock(LUMI, "/lumi-rocm-rocm-x.sif", locked, platform)


@pytest.mark.parametrize(
    ("known", "plugin", "release", "lacking"),
    [
        (image("TOP=/opt/cray/libfabric\nexport LD_LIBRARY_PATH=$TOP/1.22.0/lib64:/opt/x"), True, "1.22.0", ""),
        (image(f'export LD_LIBRARY_PATH="${{LD_LIBRARY_PATH:-"{GONE}:/opt/x"}}"', of=DOCKER), False, None, GONE),
        (image(plugin=elf("librccl-net.so", runpath=f"/opt/lib:{GONE}")), False, None, GONE),
        (image(plugin=elf("librccl-net.so", rpath=HOST)), True, "1.22.0", ""),
        (image(plugin=elf("librccl-net.so", runpath="$ORIGIN/../net"), own="/opt/net"), True, None, ""),
        (image(f"export LD_LIBRARY_PATH={GONE}", own="/usr/lib64"), True, None, ""),
        (image("export LD_LIBRARY_PATH=/opt/libfabric-2.4.0/lib", own="/opt/libfabric-2.4.0/lib"), True, "2.4.0", ""),
        # A release is what is behind the name.
        (image("export LD_LIBRARY_PATH=/opt/2.1/lib", own="/opt/2.1/lib"), True, None, ""),
        # No folder is named, and none has it.
        (image(), False, None, "/usr/lib64"),
        # What a program's start-up scripts add is not known.
        (image(f"export LD_LIBRARY_PATH=$(find_it):{GONE}"), None, None, ""),
        (image(f"export LD_LIBRARY_PATH={GONE}", own="/opt/libfabric/lib"), None, None, ""),
    ],
)
def test_a_plugin_finds_its_libfabric_where_its_loader_looks(
    known: ReadImage, plugin: bool | None, release: str | None, lacking: str
) -> None:
    found = known.holds("lumi-rocm")
    assert (found.plugin, found.lacking) == (plugin, lacking)
    assert found.libfabric == (None if release is None else parse_version(release))
    assert by_lock(known).plugin == plugin, "a lock knows the same"


def built_for(*versions: str, paths: str) -> bytes:
    """Return a plugin that was linked to a libfabric with some symbol versions, and looks for it in `paths`."""
    return elf("librccl-net.so", [FABRIC], runpath=paths, verneed={FABRIC: versions})


@pytest.mark.parametrize(
    ("needed", "too_old"),
    [
        (["FABRIC_1.0", "FABRIC_1.6"], ""),
        (["FABRIC_1.7", "FABRIC_1.1"], f"FABRIC_1.7 of libfabric, and {GONE}/{FABRIC} has up to FABRIC_1.6"),
        # The second number is no decimal fraction.
        (["FABRIC_1.10"], f"FABRIC_1.10 of libfabric, and {GONE}/{FABRIC} has up to FABRIC_1.6"),
    ],
)
def test_a_plugin_cannot_load_an_older_libfabric_of_the_host(needed: list[str], too_old: str) -> None:
    known = image(plugin=built_for(*needed, paths=GONE))
    for found in (known.holds("lumi-rocm", "2024-08"), by_lock(known, "2024-08")):
        assert found.plugin is not bool(too_old)
        assert found.too_old == (too_old and f"its plugin needs {too_old}")
        assert found.libfabric == (None if too_old else parse_version("1.15.2.0"))


@pytest.mark.parametrize(
    ("defined", "plugin"), [(["FABRIC_1.6", "FABRIC_1.7"], True), (["FABRIC_1.5", "FABRIC_1.6"], False), ([], True)]
)
def test_a_plugin_cannot_load_an_older_libfabric_of_the_image(defined: list[str], plugin: bool) -> None:
    own = f"/opt/net/{FABRIC}"
    files: Files = {PLUGIN: built_for("FABRIC_1.7", paths="/opt/net"), own: elf(FABRIC, verdef=defined)}
    known = ReadImage(LUMI, DictTree(files))
    too_old = f"its plugin needs FABRIC_1.7 of libfabric, and {own} has up to FABRIC_1.6"
    for found in (known.holds("lumi-rocm"), by_lock(known)):
        assert found.plugin is plugin
        messages = [finding.message for finding in without_network("x.sif", found, Severity.INFO)]
        assert messages == ([] if plugin else [f"jobs of several nodes go over TCP: {too_old}"])


def test_the_platform_and_the_binds_of_the_family_decide_what_the_host_has() -> None:
    old, new = (image(f"export LD_LIBRARY_PATH={folder}") for folder in (GONE, HOST))
    assert [old.holds("lumi-rocm", platform).plugin for platform in ("2024-08", "2026-01")] == [True, False]
    assert new.holds("laif-multitorch").plugin is False, "no module of the family binds the host's"
    assert new.holds(None).plugin is True
    university = load_site("university").site
    assert ReadImage(university, new.tree).holds(None).plugin is None, "its description names no libfabric"


def test_what_the_image_sets_of_the_ledger_is_known() -> None:
    script = "export FI_CXI_DEFAULT_CQ_SIZE=262144 OTHER=1\nNCCL_NET_GDR_LEVEL=$(level)\nexport NCCL_PROTO=\n"
    assert image(script).sets == {"FI_CXI_DEFAULT_CQ_SIZE": "262144", "NCCL_NET_GDR_LEVEL": "$(level)"}
