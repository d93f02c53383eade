"""ROCm as its packages lay it out since the Core SDK (7.14, 10.0), on a node or in an image: `build_tools/packaging/linux` of ROCm/TheRock."""

from __future__ import annotations

from tests.support.dict_trees import Link
from tests.support.elves import elf
from tests.support.nodes import NodeFiles

#: What amdrocm-core makes by update-alternatives, beside `core` and `core-X`.
_LINKS = ("bin", "lib", "include", "llvm", "amdgcn", "libexec", "share")
HSA = "libhsa-runtime64.so.1"


def rocm_files(release: str = "10.0.0", *, links: bool = True, info: bool = True) -> NodeFiles:
    """Give a release with RCCL and HSA, with the links of amdrocm-core and the file that states it, if it has these."""
    series = ".".join(release.split(".")[:2])
    top = f"/opt/rocm/core-{series}"
    files: NodeFiles = {
        f"{top}/lib/librccl.so": Link("librccl.so.1"),
        f"{top}/lib/librccl.so.1": Link("librccl.so.1.0"),
        f"{top}/lib/librccl.so.1.0": elf("librccl.so.1", [HSA]),
        f"{top}/lib/{HSA}": elf(HSA) + f"\0{release}".encode(),
        f"{top}/lib/cmake/rccl/rccl-config-version.cmake": b'set(PACKAGE_VERSION "2.30.4")\n',
    }
    if info:
        files[f"{top}/.info/version"] = f"{release}\n".encode()
    if links:
        leads = {"core": top, f"core-{series.partition('.')[0]}": top}
        leads |= {name: f"{top}/{name}" for name in _LINKS}
        for name, target in leads.items():
            alternative = name if name.startswith("core") else f"rocm-{name}"
            files |= {f"/opt/rocm/{name}": Link(f"/etc/alternatives/{alternative}")}
            files |= {f"/etc/alternatives/{alternative}": Link(target)}
    return files


def dpkg_files(release: str = "10.0.0", build: str = "4") -> NodeFiles:
    """Give dpkg's list of packages of a release, and its lists of their files."""
    series = ".".join(release.split(".")[:2])
    names = [f"amdrocm-{name}{series}" for name in ("base", "rccl", "runtime")] + [f"amdrocm-core{series}-gfx90a"]
    entry = "Package: {name}\nStatus: install ok installed\nArchitecture: amd64\nVersion: {release}-{build}\n\n"
    status = "".join(entry.format(name=name, release=release, build=build) for name in names)
    files: NodeFiles = {f"/var/lib/dpkg/info/{name}.list": b"/.\n" for name in names}
    return files | {"/var/lib/dpkg/status": status.encode()}
