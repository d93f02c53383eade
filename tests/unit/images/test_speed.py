"""What an image that no family knows has and lacks for full speed on a site's network."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.images.contents import Contents
from lumisite.images.speed import find_speed_parts
from lumisite.site.load import load_site
from lumisite.site.model import Site
from lumisite.site.scalars import Name
from tests.support.dict_trees import DictTree, Files, write_tree
from tests.support.elves import elf

LIB = "/usr/lib/x86_64-linux-gnu"
WHEELS = "/usr/local/lib/python3.12/site-packages"
LUMI, IB = (load_site(name).site for name in ("lumi", "university"))

FAST: Files = {
    "/opt/rocm-6.4.4/lib/librccl.so.1": elf("librccl.so.1"),
    f"{WHEELS}/torch/lib/librccl.so": elf("librccl.so.1"),
    f"{LIB}/librccl-net.so": elf("librccl-net.so", ["libfabric.so.1"]),
    f"{LIB}/libfabric.so.1": elf("libfabric.so.1", ["libcxi.so.1"]),
    f"{LIB}/libcxi.so.1": elf("libcxi.so.1"),
}


def lacks(files: Files, planned: Collection[str] = (), site: Site = LUMI) -> list[str]:
    parts = find_speed_parts(site, Contents(DictTree(files)), planned)
    return [part.subject for part in parts if part.code == "speed-part-missing"]


def without(*names: str) -> Files:
    return {path: content for path, content in FAST.items() if not any(name in path for name in names)}


def test_an_image_that_brings_all_lacks_nothing() -> None:
    assert lacks(FAST) == []
    parts = list(find_speed_parts(LUMI, Contents(DictTree(FAST)), ()))
    assert {part.code for part in parts} == {"speed-part-found"}
    assert f"{LIB}/librccl-net.so" in {part.values["path"] for part in parts}


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (["librccl.so"], ["RCCL"]),
        (["librccl-net"], ["network plugin"]),
        (["libfabric"], ["libfabric.so.1"]),
        (["libcxi"], ["libcxi.so.1"]),
        (["lib"], ["RCCL", "network plugin", "libfabric.so.1", "libcxi.so.1"]),
    ],
)
def test_what_is_missing_is_named(names: list[str], missing: list[str]) -> None:
    assert lacks(without(*names)) == missing


def test_the_collectives_of_a_wheel_count() -> None:
    assert lacks(without("/opt/rocm")) == []


def test_a_libfabric_of_a_distribution_has_no_provider_for_the_network() -> None:
    files = {**FAST, f"{LIB}/libfabric.so.1": elf("libfabric.so.1", ["libibverbs.so.1"])}
    assert lacks(files) == ["provider cxi"]
    files[f"{LIB}/libfabric/libcxi-fi.so"] = elf("libcxi-fi.so", ["libcxi.so.1"])
    assert lacks(files) == [], "a provider may stand beside it"
    files[f"{LIB}/libfabric/libcxi-fi.so"] = b"\x7fELF damaged"
    assert lacks(files) == ["provider cxi"]


def test_what_the_plan_brings_is_not_missing() -> None:
    assert lacks(without("libfabric", "libcxi"), {"libfabric.so.1", "libcxi.so.1"}) == []


def test_nccls_own_network_needs_no_plugin() -> None:
    files = {f"{WHEELS}/nvidia/nccl/lib/libnccl.so.2": elf("libnccl.so.2"), f"{LIB}/libibverbs.so.1": elf("x")}
    assert lacks(files, site=IB) == []
    del files[f"{LIB}/libibverbs.so.1"]
    assert lacks(files, site=IB) == ["libibverbs.so.1"]


def test_libraries_that_open_no_plugin_lack_none() -> None:
    gpus = {"oneapi": replace(LUMI.stacks["rocm"], gpu="intel")}
    files = {**without("rccl"), f"{LIB}/libccl.so.1": elf("libccl.so.1")}
    for stacks in (gpus, {"cpe": LUMI.stacks["cpe"]}):  # and where there is no GPU
        parts = list(find_speed_parts(replace(LUMI, stacks=stacks), Contents(DictTree(files)), ()))
        assert {part.code for part in parts} == {"speed-part-found"}
        assert "network plugin" not in {part.subject for part in parts}


def test_a_libfabric_for_other_adapters_has_no_provider_for_efa() -> None:
    efa = replace(IB, fabric=replace(IB.fabric, carrier=Name("EFA")))
    files = {f"{LIB}/libnccl{end}": elf("x") for end in (".so.2", "-net.so")} | {f"{LIB}/libefa.so.1": elf("x")}
    for linked, missing in (("libefa.so.1", []), ("libibverbs.so.1", ["provider EFA"])):
        assert lacks({**files, f"{LIB}/libfabric.so.1": elf("libfabric.so.1", [linked])}, site=efa) == missing


@pytest.mark.parametrize("left_out", ["", "librccl-net"])
def test_binds_says_so_with_an_exit_code_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], left_out: str
) -> None:
    write_tree(tmp_path / "image", without(left_out) if left_out else FAST)
    write_tree(tmp_path / "host", {"/lib64/ld-linux-x86-64.so.2": elf("ld-linux-x86-64.so.2")})
    arguments = ["binds", "image", "--site", "lumi", "--host-root", "host"]
    assert main(arguments) == (4 if left_out else 0)
    error = capsys.readouterr().err
    assert f"libfabric.so.1: in the image: {LIB}/libfabric.so.1" in error
    assert ("network plugin: missing for full speed: no librccl-net.so" in error) == bool(left_out)
    assert ("[speed-unknown]" in error) == bool(left_out)
    vouched = main([*arguments, "--family", "laif-multitorch"])
    output = capsys.readouterr()
    assert vouched == (1 if left_out else 0), "who says the family vouches for it, but not for what was read"
    assert "full speed" not in output.err
    assert ("missing   librccl-net.so" in output.out) == bool(left_out)


def test_the_libfabric_that_the_plugin_loads_is_the_one_that_is_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = {
        f"{LIB}/librccl-net.so": elf("librccl-net.so", ["libfabric.so.1"], rpath="/opt/ofi"),
        "/opt/ofi/libfabric.so.1": elf("libfabric.so.1"),
    }
    write_tree(tmp_path / "image", {**FAST, **own})
    write_tree(tmp_path / "host", {"/lib64/ld-linux-x86-64.so.2": elf("ld-linux-x86-64.so.2")})
    assert main(["binds", "image", "--site", "lumi", "--host-root", "host"]) == 1
    output = capsys.readouterr()
    assert "refuse    libfabric.so.1" in output.out
    assert "libfabric.so.1: in the image: /opt/ofi/libfabric.so.1" in output.err
    assert "provider cxi: missing for full speed" in output.err


def test_a_plugin_that_only_start_up_scripts_may_name_leaves_the_speed_open(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = {"/opt/aws-ofi-rccl/librccl-net.so": elf("librccl-net.so", ["libfabric.so.1"])}
    write_tree(tmp_path / "image", {**without("librccl-net"), **plugin})
    write_tree(tmp_path / "host", {"/lib64/ld-linux-x86-64.so.2": elf("ld-linux-x86-64.so.2")})
    arguments = ["binds", "image", "--site", "lumi", "--host-root", "host"]
    assert main([*arguments, "--family", "laif-multitorch"]) == 4, "its runscript is not read"
    error = capsys.readouterr().err
    assert "unless start-up scripts name its folder" in error
    assert "lumisite transport" in error
    assert main([*arguments, "--family", "easybuild"]) == 1
    assert "missing  librccl-net.so" in capsys.readouterr().out.replace("   ", "  ")
