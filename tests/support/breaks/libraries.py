"""Planted changes of libraries: files, SONAMEs, symbol versions, what they need, links."""

from __future__ import annotations

from tests.support.breaks.row import TOLD, Break
from tests.support.dict_trees import Link
from tests.support.elves import elf, loader_cache
from tests.support.nodes import CXI_VERSIONS, FABRIC_VERSIONS, GTL, MPI, lumi_node

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
        TOLD,
        plan="decides about",
    ),
    "SONAME of a need": Break(
        {JSON: None, **NEW_JSON},
        ("soname", "libjson-c.so.5"),
        [("plan", "lumi-rocm")],
        TOLD,
        plan="decides about",
    ),
    "SONAME change, and another library needs the new one": Break(
        {JSON: None, **NEW_JSON,
         CXI_FILE: elf("libcxi.so.1", ["libjson-c.so.6", "libc.so.6"], verneed=WANTS, verdef=CXI_VERSIONS)},
        ("soname", "libjson-c.so.5"),
        [("plan", "lumi-rocm")],
        TOLD,
        also=(("needs", "libcxi.so.1"),),
        plan="decides about",
    ),
    "another SONAME of a need, and the old one stays": Break(
        NEW_JSON,
        ("needs", "libfabric.so.1"),
        [("plan", "lumi-rocm")],
        TOLD,
        plan="decides about",
    ),
    # what is there no more
    "json-c mismatch": Break(
        {JSON: None, "/usr/lib64/libjson-c.so.3": elf("libjson-c.so.3", ["libc.so.6"])},
        ("library-gone", "libjson-c.so.5"),
        [("plan", "lumi-rocm")],
        TOLD,
        plan="decides about",
    ),
    "vanished library": Break(
        {JANSSON: None},
        ("library-gone", "libjansson.so.4"),
        [("site", "binds[2].path"), ("module", "singularity-CPEbits")],
        TOLD,
    ),
    "vanished plugin": Break(
        {PLUGIN: None},
        ("library-gone", "librccl-net.so"),
        [("plan", "tykky")],
        TOLD,
    ),
    "emptied library": Break(
        {CXI_FILE: b""},
        ("damaged", "libcxi.so.1"),
        [("plan", "lumi-rocm"), ("site", "binds[1].path"), ("module", "singularity-CPEbits")],
        TOLD,
        plan="decides about",
    ),
    "library for another machine": Break(
        {JSON: elf("libjson-c.so.5", machine=183)},
        ("damaged", "libjson-c.so.5"),
        [("plan", "lumi-rocm")],
        TOLD,
        plan="decides about",
    ),
    "library that can be loaded again": Break(
        {CXI_FILE: cxi()},
        ("damaged", "libcxi.so.1"),
        [("plan", "lumi-rocm"), ("module", "singularity-CPEbits")],
        TOLD,
        both={CXI_FILE: cxi()[:40]},
        plan="decides about",
    ),
    # rebuilt
    "rebuilt library": Break(
        {JSON: elf("libjson-c.so.5", ["libc.so.6"], rpath="/opt/x")},
        ("library", "libjson-c.so.5"),
        [("plan", "lumi-rocm")],
        TOLD,
        plan="decides about",
    ),
    "rebuilt libmpi of the default CPE": Break(
        {mpi("9.0.1"): elf("libmpi_gnu_123.so.12", ["libfabric.so.1"], rpath="/opt/x")},
        ("library", "libmpi_gnu_123.so.12"),
        [("plan", "lumi-mpi4py")],
        TOLD,
        both={"/opt/cray/pe/cpe/default": Link("25.09")},
    ),
    "rebuilt libmpi of another CPE": Break(
        {mpi("9.0.1"): elf("libmpi_gnu_123.so.12", ["libfabric.so.1"], rpath="/opt/x")},
        ("library", "libmpi_gnu_123.so.12"),
        [("plan", "lumi-mpi4py")],
        TOLD,
    ),
    "rebuilt transport layer behind a CPE that is left over": Break(
        {f"/opt/cray/pe/mpich/8.1.32/{GTL}": elf("libmpi_gtl_hsa.so.0", ["libhsa-runtime64.so.1"], rpath="/opt/x")},
        ("library", "libmpi_gtl_hsa.so.0"),
        [("plan", "lumi-mpi4py")],
        TOLD,
        both={f"/opt/cray/pe/mpich/8.1.27/{GTL}": elf("libmpi_gtl_hsa.so.0", ["libhsa-runtime64.so.1"])},
    ),
    "library from another directory": Break(
        {CXI: None, CXI_FILE: None, "/usr/lib/libcxi.so.1": cxi()},
        ("library", "libcxi.so.1"),
        [("plan", "lumi-rocm")],
        TOLD,
        plan="decides about",
        also=(("path", "/usr/lib64/libcxi.so.1"),),
    ),
    # needs
    "another need": Break(
        {FABRIC: fabric(["libcxi.so.1", "libc.so.6"])},
        ("needs", "libfabric.so.1"),
        [("plan", "lumi-rocm")],
        TOLD,
        plan="decides about",
    ),
    "a need more": Break(
        {FABRIC: fabric([*_FABRIC_NEEDS, "libjansson.so.4"])},
        ("needs", "libfabric.so.1"),
        [("plan", "lumi-rocm")],
        TOLD,
        plan="decides about",
    ),
    "a need that is nowhere": Break(
        {FABRIC: fabric([*_FABRIC_NEEDS, "libyaml-0.so.2"])},
        ("needs", "libfabric.so.1"),
        [("plan", "lumi-rocm")],
        TOLD,
        also=(("missing", "libyaml-0.so.2"),),
        plan="decides about",
    ),
    "a need more that has gone": Break(
        {FABRIC: fabric([*_FABRIC_NEEDS, "libjansson.so.4"]), JANSSON: None},
        ("library-gone", "libjansson.so.4"),
        [("plan", "lumi-rocm"), ("site", "binds[2].path")],
        TOLD,
        also=(("needs", "libfabric.so.1"),),
        plan="decides about",
    ),
    "a need that is there again": Break(
        {"/usr/lib64/libyaml-0.so.2": elf("libyaml-0.so.2")},
        ("missing", "libyaml-0.so.2"),
        [("plan", "lumi-rocm")],
        TOLD,
        both={FABRIC: fabric([*_FABRIC_NEEDS, "libyaml-0.so.2"])},
        plan="decides about",
    ),
    # symbol versions
    "glibc too old in images": Break(
        {FABRIC: fabric(wants="GLIBC_2.41")},
        ("wants", "libfabric.so.1"),
        [("plan", "lumi-rocm")],
        TOLD,
        plan="decides about",
    ),
    "a symbol version that libcxi lost": Break(
        {CXI_FILE: cxi(gives=CXI_VERSIONS[:-1])},
        ("gives", "libcxi.so.1"),
        [("plan", "lumi-rocm")],
        TOLD,
        plan="decides about",
    ),
    "a symbol version that libfabric got": Break(
        {FABRIC: fabric(gives=(*FABRIC_VERSIONS, "FABRIC_1.9"))},
        ("gives", "libfabric.so.1"),
        [("plan", "lumi-rocm")],
        TOLD,
        plan="decides about",
    ),
    "a need that fell": Break(
        {FABRIC: fabric(wants="GLIBC_2.9")},
        ("wants", "libfabric.so.1"),
        [("plan", "lumi-rocm")],
        TOLD,
        plan="decides about",
    ),
    # where they are searched
    "RUNPATH into the folder of a user": Break(
        {FABRIC: elf("libfabric.so.1", _FABRIC_NEEDS, runpath="/pfs/eve/lib:/opt/x", verneed=WANTS, verdef=FABRIC_VERSIONS),
         "/pfs/eve/lib/libcxi.so.1": cxi()},
        ("runpath", "libfabric.so.1"),
        [("plan", "lumi-rocm")],
        TOLD,
        plan="decides about",
    ),
    "RPATH of the working directory": Break(
        {CXI_FILE: elf("libcxi.so.1", _CXI_NEEDS, rpath="/usr/lib64:", verneed=WANTS, verdef=CXI_VERSIONS)},
        ("runpath", "libcxi.so.1"),
        [("plan", "lumi-rocm")],
        TOLD,
        plan="decides about",
    ),
    "a cache that is older than two libraries": Break(
        {JSON: None, JANSSON: None, "/etc/ld.so.conf": b"/opt/net/lib\n", "/opt/net/lib/libjson-c.so.5": elf("libjson-c.so.5", ["libc.so.6"]), "/opt/net/lib/libjansson.so.4": elf("libjansson.so.4")},
        ("cache", "/etc/ld.so.cache"),
        [("plan", "lumi-rocm"), ("site", "binds[2].path"), ("module", "singularity-CPEbits")],
        TOLD,
        both={"/etc/ld.so.cache": loader_cache({"libjson-c.so.5": JSON, "libjansson.so.4": JANSSON})},
        plan="decides about",
    ),
    # providers of libfabric
    "libfabric without its provider": Break(
        {FABRIC: fabric() + b"\0smr_ep_open\0cxi\0shm\0"},
        ("provider", "libfabric.so.1"),
        [("plan", "lumi-rocm")],
        TOLD,
        both={FABRIC: fabric() + b"\0cxip_ep_open\0smr_ep_open\0cxi\0shm\0"},
        plan="decides about",
    ),
    "a provider that libfabric opens has gone, and a need with it": Break(
        {_PROVIDER: None, FABRIC: fabric(["libjson-c.so.5", "libc.so.6"])},
        ("provider", "libfabric.so.1"),
        [("plan", "lumi-rocm")],
        TOLD,
        both={_PROVIDER: elf("libcxi-fi.so", ["libcxi.so.1"])},
        plan="decides about",
    ),
    "a provider more": Break(
        {_PROVIDER.replace("cxi", "efa"): elf("libefa-fi.so")},
        ("provider", "libfabric.so.1"),
        [("plan", "lumi-rocm")],
        TOLD,
        plan="decides about",
    ),
    # links
    "dangling link": Break(
        {CXI_FILE: None},
        ("dangling", "/usr/lib64/libcxi.so.1"),
        [("site", "binds[1].path"), ("module", "singularity-CPEbits"), ("plan", "lumi-rocm")],
        TOLD,
        plan="names",
    ),
    "mended link": Break(
        {CXI_FILE: cxi()},
        ("dangling", "/usr/lib64/libcxi.so.1"),
        [("site", "binds[1].path"), ("module", "singularity-CPEbits")],
        TOLD,
        both={CXI_FILE: None},
        plan="names",
    ),
    "dangling link that nothing needs": Break(
        {JANSSON: Link("libjansson.so.4.14.0")},
        ("dangling", "/usr/lib64/libjansson.so.4"),
        [("site", "binds[2].path"), ("module", "singularity-CPEbits")],
        TOLD,
    ),
    "plugin in a folder of its release": Break(
        {PLUGIN: None, PLUGIN.replace("/lib/", "/1.9/lib/"): lumi_node()[PLUGIN]},
        ("library", "librccl-net.so"),
        [("plan", "tykky")],
        TOLD,
        also=(("product", "/opt/cray/aws-ofi-rccl"),),
    ),
    "library that comes first now": Break(
        {"/usr/lib64/librccl-net.so": lumi_node()[PLUGIN]},
        ("library", "librccl-net.so"),
        [("plan", "tykky")],
        TOLD,
    ),
    "a library that comes for the first time": Break(
        {PLUGIN: lumi_node()[PLUGIN]},
        ("library-new", "librccl-net.so"),
        [("plan", "tykky")],
        TOLD,
        both={PLUGIN: None},
    ),
}  # fmt: skip
