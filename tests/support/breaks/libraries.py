"""Planted changes of libraries: files, SONAMEs, symbol versions, what they need, links."""

from __future__ import annotations

from tests.support.breaks.row import Break
from tests.support.dict_trees import Link
from tests.support.elves import elf
from tests.support.nodes import CXI_VERSIONS, FABRIC_VERSIONS, GTL, MPI, lumi_node

FABRIC = "/opt/cray/libfabric/1.22.0/lib64/libfabric.so.1"
CXI, CXI_FILE = "/usr/lib64/libcxi.so.1", "/usr/lib64/libcxi.so.1.6.0"
JSON = "/usr/lib64/libjson-c.so.5"
JANSSON = "/usr/lib64/libjansson.so.4"
PLUGIN = "/opt/cray/aws-ofi-rccl/lib/librccl-net.so"
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
        "libcxi: SONAME changed, libcxi.so.1 -> libcxi.so.2",
        [
            ("plan", "lumi-pytorch", "borrow libcxi.so.1 from the host, which is now libcxi.so.2"),
            ("site", "binds[1].path", "/usr/lib64/libcxi.so.1 is bound by its name"),
            ("module", "singularity-CPEbits", "binds /usr/lib64/libcxi.so.1"),
        ],
        "Images that take libcxi.so.1 from the host: the host has libcxi.so.2 instead. This concerns easybuild, lumi-pytorch,",
        plan="decides about libcxi.so.1",
    ),
    "SONAME of a need": Break(
        {JSON: None, **NEW_JSON},
        "libjson-c: SONAME changed, libjson-c.so.5 -> libjson-c.so.6",
        [("plan", "lumi-pytorch", "borrow libjson-c.so.5 from the host, which is now libjson-c.so.6")],
        "Images that take libjson-c.so.5 from the host: the host has libjson-c.so.6 instead.",
        plan="decides about libjson-c.so.5",
    ),
    "SONAME change, and another library needs the new one": Break(
        {JSON: None, **NEW_JSON,
         CXI_FILE: elf("libcxi.so.1", ["libjson-c.so.6", "libc.so.6"], verneed=WANTS, verdef=CXI_VERSIONS)},
        "libjson-c: SONAME changed, libjson-c.so.5 -> libjson-c.so.6",
        [("plan", "lumi-pytorch", "borrow libjson-c.so.5 from the host, which is now libjson-c.so.6")],
        "Images that take libjson-c.so.5 from the host: the host has libjson-c.so.6 instead.",
        also=("libcxi.so.1 needs + libjson-c.so.6",),
        plan="decides about libjson-c.so.5",
    ),
    "another SONAME of a need, and the old one stays": Break(
        NEW_JSON,
        "libfabric.so.1 needs + libjson-c.so.6, - libjson-c.so.5",
        [("plan", "lumi-pytorch", "needs libjson-c.so.6 now")],
        "take are other files now: libfabric.so.1.",
        plan="decides about libfabric.so.1",
    ),
    # what is there no more
    "json-c mismatch": Break(
        {JSON: None, "/usr/lib64/libjson-c.so.3": elf("libjson-c.so.3", ["libc.so.6"])},
        f"library gone: libjson-c.so.5 (was {JSON}); libjson-c.so.5 is needed by {FABRIC}, and the node has none",
        [("plan", "lumi-pytorch", "cannot be loaded, since libjson-c.so.5 is nowhere")],
        "Images that take libjson-c.so.5 from the host: the host has it no more.",
        plan="decides about libfabric.so.1, libjson-c.so.5",
    ),
    "vanished library": Break(
        {JANSSON: None},
        f"library gone: libjansson.so.4 (was {JANSSON})",
        [("site", "binds[2].path", "is bound by its name"), ("module", "singularity-CPEbits", "libjansson")],
        "Images that take libjansson.so.4 from the host: the host has it no more.",
    ),
    "vanished plugin": Break(
        {PLUGIN: None},
        f"library gone: librccl-net.so (was {PLUGIN})",
        [("plan", "tykky", "which has none now")],
        "Images that take librccl-net.so from the host: the host has it no more. This concerns tykky.",
    ),
    "emptied library": Break(
        {CXI_FILE: b""},
        f"libcxi.so.1: {CXI} cannot be loaded:",
        [
            ("plan", "lumi-pytorch", f"borrow libcxi.so.1 from the host, where it cannot be loaded ({CXI}"),
            ("site", "binds[1].path", "is bound by its name"),
            ("module", "singularity-CPEbits", f"binds {CXI}"),
        ],
        f"libcxi.so.1: {CXI} cannot be loaded:",
        plan="decides about libcxi.so.1",
    ),
    "library for another machine": Break(
        {JSON: elf("libjson-c.so.5", machine=183)},
        f"libjson-c.so.5: {JSON} is for another machine",
        [("plan", "lumi-pytorch", "borrow libjson-c.so.5 from the host, where it cannot be loaded")],
        f"libjson-c.so.5: {JSON} is for another machine",
        plan="decides about libjson-c.so.5",
    ),
    "library that can be loaded again": Break(
        {CXI_FILE: cxi()},
        "libcxi.so.1 can be loaded again",
        [("plan", "lumi-pytorch", "where it can be loaded again"), ("module", "singularity-CPEbits", f"binds {CXI}")],
        "libcxi.so.1 can be loaded again",
        both={CXI_FILE: cxi()[:40]},
        plan="decides about libcxi.so.1",
    ),
    # rebuilt
    "rebuilt library": Break(
        {JSON: elf("libjson-c.so.5", ["libc.so.6"], rpath="/opt/x")},
        "libjson-c.so.5: another file under the same name",
        [("plan", "lumi-pytorch", "libjson-c.so.5")],
        "take are other files now: libjson-c.so.5",
        plan="decides about libjson-c.so.5",
    ),
    "rebuilt libmpi of the default CPE": Break(
        {mpi("9.0.1"): elf("libmpi_gnu_123.so.12", ["libfabric.so.1"], rpath="/opt/x")},
        f"libmpi_gnu_123.so.12: another file under the same name, {mpi('9.0.1')}",
        [("plan", "lumi-mpi4py", "libmpi_gnu_123.so.12")],
        "take are other files now: libmpi_gnu_123.so.12",
        both={"/opt/cray/pe/cpe/default": Link("25.09")},
    ),
    "rebuilt libmpi of another CPE": Break(
        {mpi("9.0.1"): elf("libmpi_gnu_123.so.12", ["libfabric.so.1"], rpath="/opt/x")},
        f"libmpi_gnu_123.so.12: another file under the same name, {mpi('9.0.1')}",
        [("plan", "lumi-mpi4py", "libmpi_gnu_123.so.12")],
        "take are other files now: libmpi_gnu_123.so.12",
    ),
    "rebuilt transport layer behind a CPE that is left over": Break(
        {f"/opt/cray/pe/mpich/8.1.32/{GTL}": elf("libmpi_gtl_hsa.so.0", ["libhsa-runtime64.so.1"], rpath="/opt/x")},
        f"libmpi_gtl_hsa.so.0: another file under the same name, /opt/cray/pe/mpich/8.1.32/{GTL}",
        [("plan", "lumi-mpi4py", "libmpi_gtl_hsa.so.0")],
        "take are other files now: libmpi_gtl_hsa.so.0",
        both={f"/opt/cray/pe/mpich/8.1.27/{GTL}": elf("libmpi_gtl_hsa.so.0", ["libhsa-runtime64.so.1"])},
    ),
    "library from another directory": Break(
        {CXI: None, CXI_FILE: None, "/usr/lib/libcxi.so.1": cxi()},
        f"libcxi.so.1: {CXI_FILE} -> /usr/lib/libcxi.so.1",
        [("plan", "lumi-pytorch", "another file now (/usr/lib/libcxi.so.1)")],
        "take are other files now: libcxi.so.1",
        plan="decides about libcxi.so.1",
        also=(f"{CXI}: was a file at {CXI_FILE}, is not there",),
    ),
    # needs
    "another need": Break(
        {FABRIC: fabric(["libcxi.so.1", "libc.so.6"])},
        "libfabric.so.1 needs - libjson-c.so.5",
        [("plan", "lumi-pytorch", "needs libjson-c.so.5 no more")],
        "take are other files now: libfabric.so.1.",
        plan="decides about libfabric.so.1",
    ),
    "a need more": Break(
        {FABRIC: fabric([*_FABRIC_NEEDS, "libjansson.so.4"])},
        "libfabric.so.1 needs + libjansson.so.4",
        [("plan", "lumi-pytorch", "libfabric.so.1 needs libjansson.so.4 now: work the binds out again")],
        "take are other files now: libfabric.so.1.",
        plan="decides about libfabric.so.1",
    ),
    "a need that is nowhere": Break(
        {FABRIC: fabric([*_FABRIC_NEEDS, "libyaml-0.so.2"])},
        f"libyaml-0.so.2 is needed by {FABRIC}, and the node has none",
        [("plan", "lumi-pytorch", "cannot be loaded, since libyaml-0.so.2 is nowhere")],
        "libyaml-0.so.2 is missing on the host",
        also=("libfabric.so.1 needs + libyaml-0.so.2",),
        plan="decides about libfabric.so.1",
    ),
    "a need more that has gone": Break(
        {FABRIC: fabric([*_FABRIC_NEEDS, "libjansson.so.4"]), JANSSON: None},
        f"library gone: libjansson.so.4 (was {JANSSON}); libjansson.so.4 is needed by {FABRIC}, and the node has none",
        [("plan", "lumi-pytorch", "cannot be loaded, since libjansson.so.4 is nowhere"), ("site", "binds[2].path", "bound by its name")],
        "Images that take libjansson.so.4 from the host: the host has it no more.",
        also=("libfabric.so.1 needs + libjansson.so.4",),
        plan="decides about libfabric.so.1",
    ),
    "a need that is there again": Break(
        {"/usr/lib64/libyaml-0.so.2": elf("libyaml-0.so.2")},
        f"libyaml-0.so.2 was needed by {FABRIC} and not there; nothing lacks it now",
        [("plan", "lumi-pytorch", "libyaml-0.so.2")],
        "libyaml-0.so.2 was needed",
        both={FABRIC: fabric([*_FABRIC_NEEDS, "libyaml-0.so.2"])},
        plan="decides about libfabric.so.1",
    ),
    # symbol versions
    "glibc too old in images": Break(
        {FABRIC: fabric(wants="GLIBC_2.41")},
        "libfabric.so.1 wants GLIBC_2.41 (before: 2.38)",
        [("plan", "lumi-pytorch", "an image that lacks GLIBC_2.41 cannot load the host's libfabric.so.1")],
        "Images without GLIBC_2.41 that take libraries from the host: these cannot be loaded.",
        plan="decides about libfabric.so.1",
    ),
    "a symbol version that libcxi lost": Break(
        {CXI_FILE: cxi(gives=CXI_VERSIONS[:-1])},
        f"libcxi.so.1 has no {CXI_VERSIONS[-1]} now",
        [("plan", "lumi-pytorch", f"{CXI_VERSIONS[-1]}")],
        f"Images and libraries that need {CXI_VERSIONS[-1]} of the host's libcxi.so.1",
        plan="decides about libcxi.so.1",
    ),
    "a symbol version that libfabric got": Break(
        {FABRIC: fabric(gives=(*FABRIC_VERSIONS, "FABRIC_1.9"))},
        "libfabric.so.1 has FABRIC_1.9 now",
        [("plan", "lumi-pytorch", "libfabric.so.1 has FABRIC_1.9 now: work the binds out again")],
        "libfabric.so.1 has FABRIC_1.9 now.",
        plan="decides about libfabric.so.1",
    ),
    # links
    "dangling link": Break(
        {CXI_FILE: None},
        f"dangling link: {CXI} leads to {CXI_FILE}, which is not there",
        [
            ("site", "binds[1].path", f"names {CXI}"),
            ("module", "singularity-CPEbits", f"binds {CXI}"),
            ("plan", "lumi-pytorch", "leads nowhere"),
        ],
        f"dangling link: {CXI}",
        plan="names /usr/lib64/libcxi.so.1",
    ),
    "mended link": Break(
        {CXI_FILE: cxi()},
        f"link mended: {CXI}",
        [("site", "binds[1].path", f"names {CXI}"), ("module", "singularity-CPEbits", f"binds {CXI}")],
        f"link mended: {CXI}",
        both={CXI_FILE: None},
        plan="names /usr/lib64/libcxi.so.1",
    ),
    "dangling link that nothing needs": Break(
        {JANSSON: Link("libjansson.so.4.14.0")},
        f"dangling link: {JANSSON} leads to /usr/lib64/libjansson.so.4.14.0, which is not there",
        [("site", "binds[2].path", f"names {JANSSON}"), ("module", "singularity-CPEbits", f"binds {JANSSON}")],
        f"dangling link: {JANSSON}",
    ),
    "plugin in a folder of its release": Break(
        {PLUGIN: None, PLUGIN.replace("/lib/", "/1.9/lib/"): lumi_node()[PLUGIN]},
        f"librccl-net.so: {PLUGIN} -> /opt/cray/aws-ofi-rccl/1.9/lib/librccl-net.so",
        [("plan", "tykky", "where it is another file now")],
        "take are other files now: librccl-net.so",
        also=("aws-ofi-rccl: new directory",),
    ),
    "library that comes first now": Break(
        {"/usr/lib64/librccl-net.so": lumi_node()[PLUGIN]},
        f"librccl-net.so: {PLUGIN} -> /usr/lib64/librccl-net.so",
        [("plan", "tykky", "librccl-net.so")],
        "take are other files now: librccl-net.so",
    ),
    "a library that comes for the first time": Break(
        {PLUGIN: lumi_node()[PLUGIN]},
        f"new library: librccl-net.so ({PLUGIN})",
        [("plan", "tykky", "which is there now")],
        f"new library: librccl-net.so ({PLUGIN})",
        both={PLUGIN: None},
    ),
}  # fmt: skip
