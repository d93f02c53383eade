"""Libraries of the host that are bound under another path."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.twin.cluster import Cluster, ClusterPlan, running
from tests.twin.fixtures import require_twin
from tests.twin.helper_site import IMAGE, LOAD, deploy_site

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.lmod]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    require_twin()
    with running(ClusterPlan(images=("small",))) as one:
        yield one


#: As Isambard-AI has it: the host's libraries are below /host in containers.
UNDER_HOST = {
    "    libraries: {libfabric: /opt/cray/libfabric/1.15.2.0}": (
        "    libraries: {libfabric: /opt/cray/libfabric/1.15.2.0, system: /usr}"
    ),
    "    libraries: {libfabric: /opt/cray/libfabric/1.22.0}": (
        "    libraries: {libfabric: /opt/cray/libfabric/1.22.0, system: /usr}"
    ),
    "    plugin: from-host\n": "    plugin: from-host\n    library_path: [libfabric, system]\n",
    "  - path: /opt/cray\n": "  - path: /opt/cray\n    target: /host/opt/cray\n",
    "  - path: /usr/lib64/libcxi.so.1\n    where: singularity-CPEbits\n    why: libfabric's cxi provider loads it\n": (
        "  - {path: /usr/lib64, target: /host/usr/lib64, options: ro, where: singularity-CPEbits, why: w, source: here}\n"
        "  - path: /opt/rocm-6.3.4/lib/libhsa-runtime64.so.1\n    target: /usr/lib/libhsa-runtime64.so.1\n"
        "    where: singularity-CPEbits\n    why: libfabric loads it\n"
    ),
}
LOADS = "import ctypes; ctypes.CDLL('libfabric.so.1'); print(*{line.split()[-1] for line in open('/proc/self/maps')})"


def test_a_program_loads_the_hosts_library_that_is_bound_under_another_path(cluster: Cluster) -> None:
    deploy_site(cluster, UNDER_HOST)
    (cluster.exchange / "loads.py").write_text(LOADS)
    run = f"singularity --quiet exec --bind /var/lib/twin {IMAGE} python3 /var/lib/twin/loads.py"
    done = cluster.run(f"{LOAD}; srun -n1 {run}").check()
    host = [path for path in done.stdout.split() if path.startswith("/host/")]
    assert "/host/opt/cray/libfabric/1.22.0/lib64/libfabric.so.1.1.22.0" in host
    assert any(path.startswith("/host/usr/lib64/libcxi.so.1") for path in host)
    without = cluster.run(f"{LOAD}; LUMISITE=off srun -n1 {run}")
    assert "libfabric.so.1: cannot open shared object file" in without.stderr
