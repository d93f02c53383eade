"""The host tree is made of real libraries that a loader accepts or refuses as LUMI's would be."""

from __future__ import annotations

import re

import pytest

from lumisite.errors import ResolveError
from tests.twin import faults
from tests.twin.cluster import EXCHANGE, Cluster, ClusterPlan, running
from tests.twin.fixtures import require_twin
from tests.twin.host_tree import PLATFORMS, PLUGIN, host_tree, platform_libraries
from tests.twin.process import run_or_refuse

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer]

# Prints the version of a library that the loader finds by its name, or why there is none.
ASK = """
import ctypes, sys
try:
    library = ctypes.CDLL(sys.argv[1])
except OSError as error:
    sys.exit(str(error))
library.twin_version.restype = ctypes.c_char_p
print(library.twin_version().decode())
"""


@pytest.fixture(autouse=True)
def needed() -> None:
    require_twin("readelf")


@pytest.mark.parametrize("platform", PLATFORMS)
def test_readelf_shows_what_was_asked_for(platform: str) -> None:
    tree = host_tree(platform)
    for library in platform_libraries(PLATFORMS[platform]):
        shown = run_or_refuse(["readelf", "--dynamic", "--version-info", str(tree / library.path)])
        needed = re.findall(r"Shared library: \[(.*?)\]", shown)
        assert needed == [*library.needs, *(["libc.so.6"] if library.glibc else [])]
        assert re.findall(r"Library soname: \[(.*?)\]", shown) == [library.soname]
        assert re.findall(r"runpath: \[(.*?)\]", shown) == ([library.runpath] if library.runpath else [])
        assert re.findall(r"Name: GLIBC_(\S+)", shown) == ([library.glibc] if library.glibc else [])


@pytest.mark.parametrize("platform", PLATFORMS)
def test_no_link_of_the_tree_dangles(platform: str) -> None:
    links = [path for path in host_tree(platform).rglob("*") if path.is_symlink()]
    assert len(links) > 10
    assert [path for path in links if not path.exists()] == []


def test_an_unknown_platform_names_the_known_ones() -> None:
    with pytest.raises(ResolveError, match=r"'2025-01' does not exist \(have 2024-08, 2026-01\)"):
        host_tree("2025-01")


def ask(twin: Cluster, library: str, prefix: str = "", **where: str) -> str:
    (twin.exchange / "ask.py").write_text(ASK)
    done = twin.run(f"{prefix} python3 {EXCHANGE}/ask.py {library} 2>&1", **where)  # type: ignore[arg-type]
    return done.stdout.strip().splitlines()[-1]


def test_the_loader_of_a_node_finds_the_new_libraries(twin: Cluster) -> None:
    assert ask(twin, "libcxi.so.1") == "1.6.0"
    assert (
        ask(twin, "/opt/cray/libfabric/default/lib64/libfabric.so.1", "LD_LIBRARY_PATH=/opt/rocm-6.3.4/lib") == "1.22.0"
    )
    assert ask(twin, "libmpi_gtl_hsa.so.0", "LD_LIBRARY_PATH=/opt/rocm-6.3.4/lib") == "8.1.32"
    assert ask(twin, f"/{PLUGIN}", "LD_LIBRARY_PATH=/opt/rocm-6.3.4/lib") == "1.18.0"


def test_a_node_goes_back_to_the_libraries_of_before(twin: Cluster) -> None:
    first, second = twin.nodes
    with faults.library_tree_replaced(twin, first, host_tree("2024-08")):
        assert ask(twin, "libcxi.so.1", node=first) == "1.5.0"
        assert ask(twin, "libcxi.so.1", node=second) == "1.6.0"
        assert twin.run("ls /opt/cray/libfabric", node=first).stdout.split() == ["1.15.2.0", "default"]
    assert ask(twin, "libcxi.so.1", node=first) == "1.6.0"


LIBRARIES = "libcxi.so.1,/usr/lib64/libyaml-0.so.2,/usr/lib64/libnl-3.so.200"


def test_images_differ_in_what_they_bring_and_accept() -> None:
    plan = ClusterPlan(nodes=1, images=("small", "own-network", "older-libc"))
    with running(plan) as cluster:

        def inside(image: str, bind: str = "") -> str:
            options = f"--bind {EXCHANGE} {bind}"
            return ask(cluster, "libcxi.so.1", f"singularity --quiet exec {options} /appl/images/{image}.sif")

        borrowed = f"--bind /usr/lib64/{LIBRARIES} --env LD_LIBRARY_PATH=/usr/lib64"
        assert "cannot open shared object file" in inside("small")
        assert inside("small", borrowed) == "1.6.0"
        assert inside("own-network") == "1.7.0"
        assert "GLIBC_2.38' not found" in inside("older-libc", borrowed)
        assert "libyaml-0.so.2" in inside("small", "--bind /usr/lib64/libcxi.so.1 --env LD_LIBRARY_PATH=/usr/lib64")
