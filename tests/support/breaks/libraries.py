"""Planted changes of libraries: files, SONAMEs, symbol versions, what they need, links."""

from __future__ import annotations

from tests.support.breaks.row import Break
from tests.support.elves import elf, loader_cache
from tests.support.nodes import CXI_VERSIONS, FABRIC_VERSIONS, MPI, lumi_node

FABRIC = "/opt/cray/libfabric/1.22.0/lib64/libfabric.so.1"
CXI, CXI_FILE = "/usr/lib64/libcxi.so.1", "/usr/lib64/libcxi.so.1.6.0"
JSON = "/usr/lib64/libjson-c.so.5"
JANSSON = "/usr/lib64/libjansson.so.4"
PLUGIN = "/opt/cray/aws-ofi-rccl/lib/librccl-net.so"
_PROVIDER = FABRIC.replace("libfabric.so.1", "libfabric/libcxi-fi.so")
WANTS = {"libc.so.6": ["GLIBC_2.38"]}
_CXI_NEEDS, _FABRIC_NEEDS = ["libc.so.6"], ["libcxi.so.1", "libjson-c.so.5", "libc.so.6"]


def fabric(
    needed: list[str] | None = None, wants: str = "GLIBC_2.38", gives: tuple[str, ...] = FABRIC_VERSIONS
) -> bytes:
    return elf("libfabric.so.1", needed or _FABRIC_NEEDS, verneed={"libc.so.6": [wants]}, verdef=gives)


def cxi(soname: str = "libcxi.so.1", gives: tuple[str, ...] = CXI_VERSIONS, wants: str = "GLIBC_2.38") -> bytes:
    return elf(soname, _CXI_NEEDS, verneed={"libc.so.6": [wants]}, verdef=gives)


def mpi(version: str) -> str:
    return f"/opt/cray/pe/mpich/{version}/{MPI}"


#: libfabric as it is built on the next json-c.
NEW_JSON = {
    "/usr/lib64/libjson-c.so.6": elf("libjson-c.so.6"),
    FABRIC: fabric(["libcxi.so.1", "libjson-c.so.6", "libc.so.6"]),
}

LIBRARIES = {
    # SONAMEs
    "SONAME change": Break(
        {CXI: None, CXI_FILE: None, "/usr/lib64/libcxi.so.2": cxi("libcxi.so.2"), FABRIC: fabric(["libcxi.so.2", "libjson-c.so.5", "libc.so.6"])},
        ("soname", "libcxi.so.1"),
        [("plan", "lumi-rocm"), ("site", "binds[1].path"), ("module", "singularity-CPEbits")],
        also=(("library", "libfabric.so.1"),),
    ),
    "SONAME of a need": Break(
        {JSON: None, **NEW_JSON},
        ("soname", "libjson-c.so.5"),
        [("plan", "lumi-rocm")],
        also=(("library", "libfabric.so.1"),),
    ),
    "another SONAME of a need, and the old one stays": Break(
        NEW_JSON,
        ("library", "libfabric.so.1"),
        [("plan", "lumi-rocm")],
    ),
    # what is there no more
    "json-c mismatch": Break(
        {JSON: None, "/usr/lib64/libjson-c.so.3": elf("libjson-c.so.3", ["libc.so.6"])},
        ("library-missing", "libjson-c.so.5"),
        [("plan", "lumi-rocm")],
    ),
    "vanished library": Break(
        {JANSSON: None},
        ("library-missing", "libjansson.so.4"),
        [("site", "binds[2].path"), ("module", "singularity-CPEbits")],
    ),
    "emptied library": Break(
        {CXI_FILE: b""},
        ("library-missing", "libcxi.so.1"),
        [("plan", "lumi-rocm"), ("site", "binds[1].path"), ("module", "singularity-CPEbits")],
    ),
    "library that can be loaded again": Break(
        {CXI_FILE: cxi()},
        ("library-new", "libcxi.so.1"),
        [("plan", "lumi-rocm"), ("module", "singularity-CPEbits")],
        both={CXI_FILE: cxi()[:40]},
    ),
    # rebuilt
    "rebuilt library": Break(
        {JSON: elf("libjson-c.so.5", ["libc.so.6"], rpath="/opt/x")},
        ("library", "libjson-c.so.5"),
        [("plan", "lumi-rocm")],
    ),
    "rebuilt libmpi of another CPE": Break(
        {mpi("9.0.1"): elf("libmpi_gnu_123.so.12", ["libfabric.so.1"], rpath="/opt/x")},
        ("library", "libmpi_gnu_123.so.12"),
        [("plan", "lumi-mpi4py")],
    ),
    "library from another directory": Break(
        {CXI: None, CXI_FILE: None, "/usr/lib/libcxi.so.1": cxi()},
        ("library", "libcxi.so.1"),
        [("plan", "lumi-rocm")],
        also=(("path", "/usr/lib64/libcxi.so.1"),),
    ),
    # needs
    "another need": Break(
        {FABRIC: fabric(["libcxi.so.1", "libc.so.6"])},
        ("library", "libfabric.so.1"),
        [("plan", "lumi-rocm")],
    ),
    "a need that is nowhere": Break(
        {FABRIC: fabric([*_FABRIC_NEEDS, "libyaml-0.so.2"])},
        ("library-missing", "libyaml-0.so.2"),
        [("plan", "lumi-rocm")],
        also=(("library", "libfabric.so.1"),),
    ),
    "a need that is there again": Break(
        {"/usr/lib64/libyaml-0.so.2": elf("libyaml-0.so.2")},
        ("library-new", "libyaml-0.so.2"),
        [("plan", "lumi-rocm")],
        both={FABRIC: fabric([*_FABRIC_NEEDS, "libyaml-0.so.2"])},
    ),
    # symbol versions
    "glibc too old in images": Break(
        {FABRIC: fabric(wants="GLIBC_2.41")},
        ("library", "libfabric.so.1"),
        [("plan", "lumi-rocm")],
    ),
    "a symbol version that libcxi lost": Break(
        {CXI_FILE: cxi(gives=CXI_VERSIONS[:-1])},
        ("library", "libcxi.so.1"),
        [("plan", "lumi-rocm")],
    ),
    # where they are searched
    "a cache that is older than two libraries": Break(
        {JSON: None, JANSSON: None, "/etc/ld.so.conf": b"/opt/net/lib\n", "/opt/net/lib/libjson-c.so.5": elf("libjson-c.so.5", ["libc.so.6"]), "/opt/net/lib/libjansson.so.4": elf("libjansson.so.4")},
        ("library-missing", "libjson-c.so.5"),
        [("plan", "lumi-rocm")],
        also=(("library-missing", "libjansson.so.4"),),
        both={"/etc/ld.so.cache": loader_cache({"libjson-c.so.5": JSON, "libjansson.so.4": JANSSON})},
    ),
    # providers of libfabric
    # links
    "dangling link": Break(
        {CXI_FILE: None},
        ("library-missing", "libcxi.so.1"),
        [("site", "binds[1].path"), ("module", "singularity-CPEbits"), ("plan", "lumi-rocm")],
    ),
    "mended link": Break(
        {CXI_FILE: cxi()},
        ("library-new", "libcxi.so.1"),
        [("site", "binds[1].path"), ("module", "singularity-CPEbits")],
        both={CXI_FILE: None},
    ),
    "plugin in a folder of its release": Break(
        {PLUGIN: None, PLUGIN.replace("/lib/", "/1.9/lib/"): lumi_node()[PLUGIN]},
        ("library", "librccl-net.so"),
        [("plan", "tykky")],
        also=(("product", "/opt/cray/aws-ofi-rccl"),),
    ),
    "library that comes first now": Break(
        {"/usr/lib64/librccl-net.so": lumi_node()[PLUGIN]},
        ("library", "librccl-net.so"),
        [("plan", "tykky")],
    ),
    "a library that comes for the first time": Break(
        {PLUGIN: lumi_node()[PLUGIN]},
        ("library-new", "librccl-net.so"),
        [("plan", "tykky")],
        both={PLUGIN: None},
    ),
}  # fmt: skip
