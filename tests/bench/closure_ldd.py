"""The closure against what an admin would type: start the container, and ask ldd about each root in it."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

from tests.bench.measure import Row, in_turn, seconds
from tests.twin.cluster import IMAGES, ClusterPlan, running
from tests.twin.host_tree import PLUGIN
from tests.twin.image import image
from tests.twin.node import first_process

LUMISITE = str(Path(sys.executable).parent / "lumisite")
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


def against_ldd() -> list[Row]:
    """Measure both on the node of a cluster with the SIF of 416 MB."""
    with running(ClusterPlan(nodes=1, images=("torch",))) as cluster:
        node = cluster.nodes[0]
        root = f"/proc/{first_process(cluster.node_folder(node)).pid}/root"
        script = ASK.replace("IMAGE", f"{IMAGES}/torch.sif")

        def asked(paths: list[str]) -> float:
            done = cluster.run(["bash", "-c", script, "bash", *paths], node=node).check()
            return int(done.stdout.split()[-1]) / 1_000_000

        def planned(names: list[str]) -> float:
            return seconds(["sh", "-c", '"$@" || [ $? = 1 ]', "sh", *_command(root, names)])

        all_paths, all_names = list(ROOTS.values()), list(ROOTS)
        found = subprocess.run(_command(root, all_names), capture_output=True, text=True, check=False)
        chains = {line["chain"].partition(" ")[0] for line in json.loads(found.stdout)}
        assert chains.issuperset(ROOTS), found.stderr
        ratio, theirs, ours = in_turn(lambda: asked(all_paths), lambda: planned(all_names), 7)
        two = statistics.median(asked(all_paths[:2]) for _ in range(3)) / statistics.median(
            planned(all_names[:2]) for _ in range(3)
        )
        detail = f"{len(ROOTS)} roots: {theirs * 1000:.0f} ms and {ours * 1000:.0f} ms; with 2 roots {two:.1f} x"
        return [Row("ldd in the container / closure", ratio, 3.0, detail, at_least=True)]


def _command(root: str, names: list[str]) -> list[str]:
    where = ["--site", "twin", "--host-root", root, "--path", f"{IMAGES}/torch.sif"]
    libraries = [word for name in names for word in ("--library", name)]
    return [LUMISITE, "binds", str(image("torch")), *where, *libraries, "--json"]
