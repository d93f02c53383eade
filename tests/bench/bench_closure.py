"""`lumisite binds`: the whole process on an image of 400 MB, what an image's size costs, and how ldd compares.

ldd is what an admin would type: start the container, and ask about each root in it.
"""

from __future__ import annotations

import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.measure import Row, cost, in_turn, seconds
from tests.support.dict_trees import Link, write_tree
from tests.support.images import HEADER_BYTES, PARTITION, PRIMARY, SQUASHFS, descriptor, sif, squash
from tests.twin.cluster import IMAGES, ClusterPlan, running
from tests.twin.host_tree import PLUGIN
from tests.twin.image import image
from tests.twin.node import first_process

LUMISITE = str(Path(sys.executable).parent / "lumisite")
DATA = Path(__file__).parents[1] / "data" / "elf"
#: As many files as a conda environment with PyTorch has, and as much as a SIF with it weighs.
FILES, LARGE_MB = 40_000, 400
CRAY = "/opt/cray"
#: All that AI and MPI images take from a host: network, plugin, Cray MPICH with its GPU layer, PALS and PMI.
ROOTS = {
    "libcxi.so.1": "/usr/lib64/libcxi.so.1",
    "libfabric.so.1": f"{CRAY}/libfabric/1.22.0/lib64/libfabric.so.1",
    "librccl-net.so": f"/{PLUGIN}",
    "libmpi_gnu_123.so.12": f"{CRAY}/pe/mpich/8.1.32/ofi/gnu/12.3/lib/libmpi_gnu_123.so.12",
    "libmpi_gtl_hsa.so.0": f"{CRAY}/pe/mpich/8.1.32/gtl/lib/libmpi_gtl_hsa.so.0",
    "libpals.so.0": f"{CRAY}/pals/1.3.2/lib/libpals.so.0",
    "libpmi.so.0": f"{CRAY}/pe/pmi/6.1.15/lib/libpmi.so.0",
    "libpmi2.so.0": f"{CRAY}/pe/pmi/6.1.15/lib/libpmi2.so.0",
}
#: Stands in one shell of the node, so that only the container's start and ldd are measured.
ASK = """
start=$EPOCHREALTIME
for root; do
    singularity --quiet exec --bind /opt/cray,/usr/lib64/libcxi.so.1 IMAGE ldd "$root" >/dev/null 2>&1
done
end=$EPOCHREALTIME
echo $((${end/./} - ${start/./}))
"""


def run() -> list[Row]:
    """Measure everything of this module."""
    with tempfile.TemporaryDirectory() as scratch:
        top = Path(scratch)
        host = _host(top / "host")
        large, small = _image(top / "large", FILES, LARGE_MB), _image(top / "small", 100, 1)
        where = ["--site", "lumi", "--host-root", str(host), "--family", "lumi-rocm", "--json"]
        commands = {path.stem: [LUMISITE, "binds", str(path), *where] for path in (large, small)}
        entries = json.loads(subprocess.run(commands["large"], check=True, capture_output=True).stdout)
        bound = sum(entry["decision"] == "bind" for entry in entries)
        assert bound == 3, entries
        ratio, big, little = in_turn(lambda: seconds(commands["large"]), lambda: seconds(commands["small"]), 9)
        size = large.stat().st_size // 1_000_000
        alone = statistics.median(seconds([LUMISITE, "binds", "--help"]) for _ in range(5))
        detail = f"{FILES} files, {size} MB, zstd; {bound} binds; `--help` {alone * 1000:.0f} ms"
        return [
            Row("closure of a large image", big, 1.0, detail, unit="s"),
            Row("closure: large / small image", ratio, 1.5, f"small takes {little * 1000:.0f} ms"),
            Row(
                "closure: memory with a large image",
                cost(commands["large"]).peak_mib,
                200,
                "peak of the process",
                unit="MiB",
            ),
            *against_ldd(),
        ]


def _host(top: Path) -> Path:
    files: dict[str, bytes | Link] = {
        f"/usr/lib64/{path.name}": path.read_bytes() for path in (DATA / "after").iterdir()
    }
    files["/opt/cray/libfabric/1.22.0/lib64/libfabric.so.1"] = files.pop("/usr/lib64/libfabric.so.1")
    return write_tree(top, files)


def _image(top: Path, count: int, megabytes: int) -> Path:
    """A SIF with many small files and a few that do not pack, beside the libraries of openSUSE."""
    choose = random.Random(1)
    write_tree(top, {f"/lib64/{path.name}": path.read_bytes() for path in (DATA / "suse155").iterdir()})
    for number in range(count):
        name = f"/opt/conda/lib/python3/package{number % 400}/module{number}.py"
        write_tree(top, {name: b"x = %d\n" % number})
    for number in range(megabytes):
        write_tree(top, {f"/opt/rocm/lib/libkernels{number}.so": choose.randbytes(1_000_000)})
    squashed = squash(top, top.with_suffix(".sqfs"), "-comp", "zstd", "-Xcompression-level", "1")
    head = sif((PARTITION, b"", SQUASHFS, PRIMARY))
    whole = descriptor(PARTITION, len(head), squashed.stat().st_size, file_system=SQUASHFS, part=PRIMARY)
    image = top.with_suffix(".sif")
    with image.open("wb") as stream, squashed.open("rb") as content:
        stream.write(head[:HEADER_BYTES] + whole + head[HEADER_BYTES + len(whole) :])
        shutil.copyfileobj(content, stream)
    squashed.unlink()
    return image


def against_ldd() -> list[Row]:
    """Measure both on the node of a cluster with the SIF of 416 MB."""
    with running(ClusterPlan(nodes=1, images=("torch",))) as cluster:
        node = cluster.nodes[0]
        root = f"/proc/{first_process(cluster.node_folder(node)).pid}/root"
        script = ASK.replace("IMAGE", f"{IMAGES}/torch.sif")

        def ask(paths: list[str]) -> float:
            done = cluster.run(["bash", "-c", script, "bash", *paths], node=node).check()
            return int(done.stdout.split()[-1]) / 1_000_000

        def plan(names: list[str]) -> float:
            return seconds(["sh", "-c", '"$@" || [ $? = 1 ]', "sh", *_command(root, names)])

        all_paths, all_names = list(ROOTS.values()), list(ROOTS)
        found = subprocess.run(_command(root, all_names), capture_output=True, text=True, check=False)
        chains = {line["chain"].partition(" ")[0] for line in json.loads(found.stdout)}
        assert chains.issuperset(ROOTS), found.stderr
        ratio, theirs, ours = in_turn(lambda: ask(all_paths), lambda: plan(all_names), 7)
        two = statistics.median(ask(all_paths[:2]) for _ in range(3)) / statistics.median(
            plan(all_names[:2]) for _ in range(3)
        )
        detail = f"{len(ROOTS)} roots: {theirs * 1000:.0f} ms and {ours * 1000:.0f} ms; with 2 roots {two:.1f} x"
        return [Row("ldd in the container / closure", ratio, 3.0, detail, at_least=True)]


def _command(root: str, names: list[str]) -> list[str]:
    where = ["--site", "twin", "--host-root", root, "--path", f"{IMAGES}/torch.sif"]
    libraries = [word for name in names for word in ("--library", name)]
    return [LUMISITE, "binds", str(image("torch")), *where, *libraries, "--json"]
