from __future__ import annotations

import json
from pathlib import Path

import pytest

from lumisite.cli import main
from tests.support.closures import stock
from tests.support.consoles import find_blocks, find_commands, matches
from tests.support.dict_trees import Files, Link, write_tree
from tests.support.elves import elf
from tests.support.sites import printed_codes

pytestmark = pytest.mark.usefixtures("at_lumi")

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "closure.md"
Output = pytest.CaptureFixture[str]


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    """The node before and after January 2026: libfabric renamed, json-c and the GPU layer newer."""
    for when, fabric, mpich in (("before", "1.15.2.0", "8.1.29"), ("after", "1.22.0", "8.1.32")):
        files = stock(when, "/usr/lib64")
        cray = "/opt/cray"
        files[f"{cray}/libfabric/{fabric}/lib64/libfabric.so.1.{fabric}"] = files.pop("/usr/lib64/libfabric.so.1")
        files[f"{cray}/libfabric/{fabric}/lib64/libfabric.so.1"] = Link(f"libfabric.so.1.{fabric}")
        for name, folder in (("libmpi_gnu_123.so.12", "ofi/gnu/12.3/lib"), ("libmpi_gtl_hsa.so.0", "gtl/lib")):
            if f"/usr/lib64/{name}" in files:
                files[f"{cray}/pe/mpich/{mpich}/{folder}/{name}"] = files.pop(f"/usr/lib64/{name}")
        files["/lib64"] = Link("usr/lib64")
        write_tree(tmp_path / when, files)
    write_tree(tmp_path / "images/suse155", stock("suse155", "/lib64"))
    return tmp_path


def answer(capsys: Output, *arguments: str, code: int = 0) -> list[dict[str, str | None]]:
    assert main(["binds", *arguments, "--json"]) == code
    entries: list[dict[str, str | None]] = json.loads(capsys.readouterr().out)
    return entries


def decisions(entries: list[dict[str, str | None]]) -> dict[str, str | None]:
    return {str(entry["chain"]).partition(" ")[0]: entry["decision"] for entry in entries}


LEGACY = ("--family", "lumi-rocm")


def test_the_answer_for_people_is_the_table_of_the_docs(hosts: Path, capsys: Output) -> None:
    image, after = str(hosts / "images/suse155"), str(hosts / "after")
    assert main(["binds", image, "--host-root", after, "--family", "lumi-mpi4py"]) == 1
    output = capsys.readouterr()
    (block,) = [one for one in find_blocks(PAGE.read_text()) if one.language == "console"]
    (command,) = find_commands(block)
    assert matches(command.expected, output.out.splitlines())
    assert output.err.splitlines()[0] == "lumisite: image family lumi-mpi4py (as requested) [image-family]"


def test_the_update_of_january_2026_changes_what_an_image_needs(hosts: Path, capsys: Output) -> None:
    image = str(hosts / "images/suse155")
    found = answer(capsys, image, "--host-root", str(hosts / "before"), "--platform", "2024-08", *LEGACY)
    same = {"libcxi.so.1": "bind", "libfabric.so.1": "bind", "libc.so.6": "skip"}
    assert decisions(found) == {**same, "libjson-c.so.3": "skip"}
    found = answer(capsys, image, "--host-root", str(hosts / "after"), *LEGACY)
    assert decisions(found) == {**same, "libjson-c.so.5": "bind"}


def test_a_renamed_folder_is_named_with_the_release_that_is_there_now(hosts: Path, capsys: Output) -> None:
    arguments = (str(hosts / "images/suse155"), "--host-root", str(hosts / "after"), "--platform", "2024-08", *LEGACY)
    assert main(["binds", *arguments]) == 1
    lacks = "/opt/cray/libfabric/1.15.2.0: libfabric by the site description, which the host lacks (it has 1.22.0 "
    assert lacks in capsys.readouterr().err


def test_an_image_that_no_family_recognises_gets_the_sites_default(hosts: Path, capsys: Output) -> None:
    image = str(hosts / "images/suse155")
    assert main(["binds", image, "--host-root", str(hosts / "after")]) == 0
    output = capsys.readouterr()
    assert output.out == ""
    assert "image family laif-multitorch (the default of the site for ROCm 6.3.4;" in output.err


def test_rocm_and_single_libraries_are_found_where_the_hosts_loader_does_not_look(
    tmp_path: Path, capsys: Output
) -> None:
    """The platform's own ROCm first, then the newest; and the folder that the site binds a library from."""
    files: dict[str, bytes | Link] = {
        "/lib/x86_64-linux-gnu/libz.so.1": elf("libz.so.1"),
        "/usr/lib64/libcxi.so.1": elf("libcxi.so.1", ["libhsa-runtime64.so.1"]),
        "/opt/rocm-6.10.0/lib/libhsa-runtime64.so.1": elf("libhsa-runtime64.so.1"),
        "/opt/rocm-6.9.1/lib/libhsa-runtime64.so.1": elf("libhsa-runtime64.so.1"),
    }
    write_tree(tmp_path / "host", files)
    write_tree(tmp_path / "image", {"/lib64/x": b""})
    arguments = ("image", "--host-root", "host", "--family", "cotainr", "--platform", "2026-01")
    sources = [entry["source"] for entry in answer(capsys, *arguments, code=1)]
    assert "/opt/rocm-6.10.0/lib/libhsa-runtime64.so.1" in sources
    write_tree(tmp_path / "host", {"/opt/rocm-6.3.4/lib/libhsa-runtime64.so.1": elf("libhsa-runtime64.so.1")})
    sources = [entry["source"] for entry in answer(capsys, *arguments, code=1)]
    assert sources == ["/usr/lib64/libcxi.so.1", "libfabric.so.1", "/opt/rocm-6.3.4/lib/libhsa-runtime64.so.1"]


def explained(capsys: Output, *arguments: str, code: int = 0) -> str:
    assert main(["why", *arguments]) == code
    output = capsys.readouterr()
    return output.out if code == 0 else output.err


def test_why_explains_one_library_of_an_image(hosts: Path, capsys: Output) -> None:
    image, after = str(hosts / "images/lumi-mpi4py-rocm-6.2"), str(hosts / "after")
    (hosts / "images/suse155").rename(image)
    options = ("--image", image, "--host-root", after)
    assert explained(capsys, "libfabric.so.1", *options) == (
        f"libfabric.so.1 (library; {image}, family lumi-mpi4py, platform 2026-01, cpe 25.03, rocm 6.3.4)\n"
        "  bind: the image has none; put into /lib64, where the loader looks; singularity-CPEbits binds /opt/cray, but this "
        "image's loader does not look there\n"
        "    chain   libfabric.so.1 <- root\n"
        "    bind    /opt/cray/libfabric/1.22.0/lib64/libfabric.so.1:/lib64/libfabric.so.1\n"
    )
    said = explained(capsys, "libmpi_gtl_hsa.so.0", *options)
    assert "refuse: needs GLIBCXX_3.4.32 of libstdc++.so.6, where the image has up to GLIBCXX_3.4.30" in said
    assert "    bind " not in said


def test_why_says_what_it_cannot_explain(hosts: Path, capsys: Output) -> None:
    image = (hosts / "images/suse155").rename(hosts / "images/lumi-mpi4py-rocm-6.2")
    options = ("--image", str(image), "--host-root", str(hosts / "after"))
    said = explained(capsys, "libcxy.so.1", *options, code=2)
    assert printed_codes(said) == "libcxy.so.1: name-unknown"
    assert "(planned: libcxi.so.1, libfabric.so.1, " in said
    assert "is a library, which is explained for one image (--image IMAGE)" in explained(capsys, "libcxi.so.1", code=2)
    assert "settings[" in explained(capsys, "NCCL_NET", *options)
    gone = explained(capsys, "libcxi.so.1", "--image", "gone.sif", code=3)
    assert "lumisite: gone.sif: cannot read: No such file or directory" in gone


BROKEN: dict[str, tuple[list[str], int, str]] = {
    "no image": (["gone.sif"], 3, "lumisite: gone.sif: cannot read: No such file or directory"),
    "no SIF": (["plain"], 2, "[no-image]"),
    "no family": (["tree", "--family", "lumi-pytorh"], 2, "did you mean lumi-pytorch?"),
    "no SONAME": (
        ["tree", "--library", "/lib/x.so"],
        2,
        "lumisite: --library: /lib/x.so is no SONAME (such as libmpi.so.12)",
    ),
    "another machine": (
        ["arm", *LEGACY, "--host-root", "host"],
        2,
        "lumisite: arm: is an image for AArch64, the host is x86-64 (use an image for this machine) [image-unfit]",
    ),
    "a broken cache": (["cache", *LEGACY], 2, "ld.so.cache: header at byte 0 is damaged"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_bad_input_is_one_line_and_an_exit_code(tmp_path: Path, capsys: Output, case: str) -> None:
    arguments, code, message = BROKEN[case]
    (tmp_path / "plain").write_text("text")
    trees: dict[str, Files] = {
        "tree": {"/lib64/x": b""},
        "arm": {"/lib/ld-linux-aarch64.so.1": elf("ld-linux-aarch64.so.1", machine=183)},
        "host": {"/lib64/ld-linux-x86-64.so.2": elf("ld-linux-x86-64.so.2")},
        "cache": {"/etc/ld.so.cache": b"x" * 100},
    }
    for name, files in trees.items():
        write_tree(tmp_path / name, files)
    assert main(["binds", *arguments, "--site", "lumi"]) == code
    output = capsys.readouterr()
    assert message in output.err
    assert output.out == ""
    assert output.err.count("\n") == 1


def test_a_plugin_that_only_start_up_scripts_may_name_leaves_the_speed_open(tmp_path: Path, capsys: Output) -> None:
    lib = "/usr/lib/x86_64-linux-gnu"
    files: Files = {
        "/opt/rocm-6.4.4/lib/librccl.so.1": elf("librccl.so.1"),
        f"{lib}/libfabric.so.1": elf("libfabric.so.1", ["libcxi.so.1"]),
        f"{lib}/libcxi.so.1": elf("libcxi.so.1"),
        "/opt/aws-ofi-rccl/librccl-net.so": elf("librccl-net.so", ["libfabric.so.1"]),
    }
    write_tree(tmp_path / "image", files)
    write_tree(tmp_path / "host", {"/lib64/ld-linux-x86-64.so.2": elf("ld-linux-x86-64.so.2")})
    arguments = ["binds", "image", "--site", "lumi", "--host-root", "host"]
    assert main([*arguments, "--family", "laif-multitorch"]) == 4, "its runscript is not read"
    error = capsys.readouterr().err
    assert "unless start-up scripts name the folder of /opt/aws-ofi-rccl/" in error
    assert "lumisite transport" in error
    assert main([*arguments, "--family", "easybuild"]) == 1
    assert "missing  librccl-net.so" in capsys.readouterr().out.replace("   ", "  ")
