"""The host libraries that AI containers borrow, as tiny real ELF objects, before and after the maintenance.

Names, SONAMEs and what needs what follow LUMI: /opt/cray of CPE 24.03 and 25.03, libfabric 1.15.2.0 and
1.22.0, the GPU transport layer, the OFI plugin, and SLES's json libraries, whose SONAME changed with Service
Pack 6. That update also brought glibc 2.38, which the newer stand-ins therefore want. Each object has one
function, `twin_version`, that returns its version as text, so that a program can ask which file it was given.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lumisite.errors import ResolveError
from tests.twin.cache import cached
from tests.twin.process import run_or_refuse

RECIPE_VERSION = 3

GLIBC_SYMBOL = "__isoc23_strtol"
"""What the compilers of glibc 2.38 and later make of a plain strtol; older ones do not have it."""


@dataclass(frozen=True)
class Library:
    """One shared object at `path` below the tree; `needs`: SONAMEs; `links`: other names beside it."""

    path: str
    soname: str
    version: str
    needs: tuple[str, ...] = ()
    runpath: str | None = None
    glibc: str | None = None
    """The version of a glibc symbol that it wants."""
    links: tuple[str, ...] = ()


@dataclass(frozen=True)
class Platform:
    """The versions that a maintenance changed."""

    libfabric: str
    libcxi: str
    mpich: str
    pmi: str
    json: str
    rocm: str
    gnu: str
    glibc: str | None


PLATFORMS: Mapping[str, Platform] = {
    "2024-08": Platform("1.15.2.0", "1.5.0", "8.1.29", "6.1.14", "3", "6.0.3", "12.3", None),
    "2026-01": Platform("1.22.0", "1.6.0", "8.1.32", "6.1.15", "5", "6.3.4", "12.3", "2.38"),
}
"""Named as in the twin's site description."""

PLUGIN = "opt/cray/aws-ofi-rccl/lib/librccl-net.so"


def host_tree(platform: str) -> Path:
    """Give the tree of a platform: opt/cray, opt/rocm-X, usr/lib64 and the loader's configuration.

    Raises `ResolveError` for an unknown platform and `ToolError` if gcc fails.
    """
    versions = PLATFORMS.get(platform)
    if versions is None:
        raise ResolveError(f"platform {platform!r} does not exist (have {', '.join(PLATFORMS)})")
    libraries = platform_libraries(versions)
    inputs = {"version": RECIPE_VERSION, "libraries": [asdict(library) for library in libraries]}

    def build(work: Path) -> None:
        build_libraries(libraries, work / "tree")
        _add_links(versions, work / "tree")

    return cached(f"host-{platform}", inputs, build) / "tree"


def platform_libraries(platform: Platform) -> tuple[Library, ...]:
    """List the shared objects of a platform; what is needed comes before what needs it."""
    return (*_fabric_libraries(platform), *_mpi_libraries(platform))


def _fabric_libraries(platform: Platform) -> tuple[Library, ...]:
    """List what libfabric needs, and libfabric."""
    fabric = f"opt/cray/libfabric/{platform.libfabric}/lib64"
    json = f"libjson-c.so.{platform.json}"
    return (
        Library("usr/lib64/libjansson.so.4.14.0", "libjansson.so.4", "4.14.0", links=("libjansson.so.4",)),
        Library(f"usr/lib64/{json}.1.0", json, f"{platform.json}.1.0", glibc=platform.glibc, links=(json,)),
        Library("usr/lib64/libyaml-0.so.2.0.9", "libyaml-0.so.2", "0.2.5", links=("libyaml-0.so.2",)),
        Library("usr/lib64/libnl-3.so.200.26.0", "libnl-3.so.200", "3.7.0", links=("libnl-3.so.200",)),
        Library(
            f"usr/lib64/libcxi.so.{platform.libcxi}",
            "libcxi.so.1",
            platform.libcxi,
            ("libyaml-0.so.2", "libnl-3.so.200"),
            glibc=platform.glibc,
            links=("libcxi.so.1",),
        ),
        Library(
            f"opt/rocm-{platform.rocm}/lib/libhsa-runtime64.so.1.14.0",
            "libhsa-runtime64.so.1",
            platform.rocm,
            links=("libhsa-runtime64.so.1",),
        ),
        Library(
            f"{fabric}/libfabric.so.1.{platform.libfabric}",
            "libfabric.so.1",
            platform.libfabric,
            ("libcxi.so.1", json, "libhsa-runtime64.so.1"),
            glibc=platform.glibc,
            links=("libfabric.so.1", "libfabric.so"),
        ),
    )


def _mpi_libraries(platform: Platform) -> tuple[Library, ...]:
    """List PALS, PMI, Cray MPICH with its GPU layer, and the OFI plugin."""
    fabric = f"opt/cray/libfabric/{platform.libfabric}/lib64"
    mpich = f"opt/cray/pe/mpich/{platform.mpich}"
    pmi = f"opt/cray/pe/pmi/{platform.pmi}/lib"
    mpi_needs = ("libfabric.so.1", "libpmi.so.0", "libpmi2.so.0", "libpals.so.0")
    mpi_name = f"libmpi_gnu_{platform.gnu.replace('.', '')}.so.12"
    return (
        Library(
            "opt/cray/pals/1.3.2/lib/libpals.so.0.0.0",
            "libpals.so.0",
            "1.3.2",
            ("libjansson.so.4",),
            links=("libpals.so.0",),
        ),
        Library(f"{pmi}/libpmi.so.0.6.0", "libpmi.so.0", platform.pmi, ("libpals.so.0",), links=("libpmi.so.0",)),
        Library(
            f"{pmi}/libpmi2.so.0.6.0",
            "libpmi2.so.0",
            platform.pmi,
            ("libpals.so.0",),
            links=("libpmi2.so.0",),
        ),
        Library(
            f"{mpich}/gtl/lib/libmpi_gtl_hsa.so.0.0.0",
            "libmpi_gtl_hsa.so.0",
            platform.mpich,
            ("libhsa-runtime64.so.1",),
            links=("libmpi_gtl_hsa.so.0", "libmpi_gtl_hsa.so"),
        ),
        Library(
            f"{mpich}/ofi/gnu/{platform.gnu}/lib/{mpi_name}.0.0",
            mpi_name,
            platform.mpich,
            mpi_needs,
            runpath=f"/{fabric}:/{pmi}",
            links=(mpi_name,),
        ),
        Library(
            f"{mpich}/ofi/gnu/{platform.gnu}/lib-abi-mpich/libmpi.so.12.0.0",
            "libmpi.so.12",
            platform.mpich,
            mpi_needs,
            runpath=f"/{fabric}:/{pmi}",
            links=("libmpi.so.12",),
        ),
        Library(PLUGIN, "librccl-net.so", "1.18.0", ("libfabric.so.1",), runpath=f"/{fabric}"),
    )


def network_libraries(libfabric: str) -> tuple[Library, ...]:
    """List libcxi and libfabric as an image brings them, flat in its library folder."""
    return (
        Library("libcxi.so.1.7.0", "libcxi.so.1", "1.7.0", links=("libcxi.so.1",)),
        Library(
            f"libfabric.so.1.{libfabric}",
            "libfabric.so.1",
            libfabric,
            ("libcxi.so.1",),
            links=("libfabric.so.1",),
        ),
    )


def build_libraries(libraries: Sequence[Library], tree: Path) -> None:
    """Compile shared objects into a tree. Raises `ToolError` if gcc fails."""
    with tempfile.TemporaryDirectory(prefix="twin-elf-") as work:
        for library in libraries:
            _compile(library, {known.soname: tree / known.path for known in libraries}, tree, Path(work))
            for link in library.links:
                (tree / library.path).with_name(link).symlink_to(Path(library.path).name)


def _compile(library: Library, built: Mapping[str, Path], tree: Path, work: Path) -> None:
    output = tree / library.path
    output.parent.mkdir(parents=True, exist_ok=True)
    source = f'const char *twin_version(void) {{ return "{library.version}"; }}\n'
    wants: list[str] = []
    if library.glibc is not None:
        source += f"long {GLIBC_SYMBOL}(const char *, char **, int);\n"
        source += f'long twin_call(void) {{ return {GLIBC_SYMBOL}("0", 0, 10); }}\n'
        wants = [str(_libc_stub(library.glibc, work))]
    (work / "source.c").write_text(source)
    flags = [f"-Wl,-soname,{library.soname}", "-Wl,--no-as-needed", "-Wl,--unresolved-symbols=ignore-all"]
    if library.runpath is not None:
        flags += [f"-Wl,-rpath,{library.runpath}", "-Wl,--enable-new-dtags"]
    needs = [str(built[soname]) for soname in library.needs]
    compiler = ["gcc", "-shared", "-fPIC", "-O1", "-nostdlib", "-Wl,--build-id=none"]
    run_or_refuse([*compiler, *flags, str(work / "source.c"), *needs, *wants, "-o", str(output)])


def _libc_stub(glibc: str, work: Path) -> Path:
    """Make what the linker takes for a glibc of that version; the one here may be older."""
    stub = work / "libc.so.6"
    (work / "stub.c").write_text(f"long {GLIBC_SYMBOL}(void) {{ return 0; }}\n")
    (work / "stub.map").write_text(f"GLIBC_{glibc} {{ global: {GLIBC_SYMBOL}; }};\n")
    flags = [
        "-shared",
        "-fPIC",
        "-nostdlib",
        "-Wl,-soname,libc.so.6",
        f"-Wl,--version-script={work / 'stub.map'}",
    ]
    run_or_refuse(["gcc", *flags, str(work / "stub.c"), "-o", str(stub)])
    return stub


def _add_links(platform: Platform, tree: Path) -> None:
    """Add what only points: the folder of defaults, and the loader's configuration."""
    mpich = f"../mpich/{platform.mpich}"
    defaults = tree / "opt/cray/pe/lib64"
    defaults.mkdir(parents=True)
    (defaults / "libmpi_gtl_hsa.so.0").symlink_to(f"{mpich}/gtl/lib/libmpi_gtl_hsa.so.0")
    name = f"libmpi_gnu_{platform.gnu.replace('.', '')}.so.12"
    (defaults / name).symlink_to(f"{mpich}/ofi/gnu/{platform.gnu}/lib/{name}")
    (defaults / "libpals.so.0").symlink_to("../../pals/1.3.2/lib/libpals.so.0")
    (tree / "opt/cray/libfabric/default").symlink_to(platform.libfabric)
    configuration = tree / "etc/ld.so.conf.d/host.conf"
    configuration.parent.mkdir(parents=True)
    configuration.write_text("/opt/cray/pe/lib64\n/usr/lib64\n")
