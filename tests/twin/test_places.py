"""Caches in the folder that a site makes for each job, and libraries that are bound under another path."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.twin.cluster import Cluster, ClusterPlan, running
from tests.twin.fixtures import require_twin
from tests.twin.helper_site import CONTAINER, GENERATIONS, IMAGE, LOAD, TASK, deploy_site, told_by
from tests.twin.roots import USER_ID

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.lmod]

#: As sites do: root makes a folder for the job on each node, the site's TaskProlog names it, and it goes with the job.
#: Where a node has /no-local, its disk is missing.
SITE_SCRIPTS = {
    "slurm/node_prolog": "[ -e /no-local ] || { mkdir -p $top && install -d -m 700 -o $SLURM_JOB_UID $top/$SLURM_JOB_ID; }",
    "slurm/node_epilog": "rm -rf $top/$SLURM_JOB_ID",
    "slurm/task_prolog": "echo export TMPDIR=$top/$SLURM_JOB_ID",
}
TMP = "  - {path: /tmp, kind: node-local, writable: yes, in_memory: yes,"
JOB_FOLDER = {TMP: f"  - {{path: /local, kind: node-local, job_folder: $TMPDIR, why: the disk, source: here}}\n{TMP}"}


@pytest.fixture(scope="module", params=GENERATIONS)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    require_twin()
    etc = tuple((name, f"#!/bin/sh\ntop=/local\n{text}\nexit 0\n") for name, text in SITE_SCRIPTS.items())
    named = {"Prolog": "node_prolog", "Epilog": "node_epilog", "TaskProlog": "task_prolog"}
    lines = [f"{key}=/etc/slurm/{script}" for key, script in named.items()]
    with running(
        ClusterPlan(request.param, images=("small",), slurm_lines=("PrologFlags=Alloc", *lines), etc=etc)
    ) as one:
        yield one


def test_caches_of_a_job_are_in_its_own_folder_and_containers_see_them(cluster: Cluster) -> None:
    deploy_site(cluster, JOB_FOLDER)
    done = cluster.run(f"{LOAD}; srun -Q -N2 --ntasks-per-node=2 {CONTAINER}")
    told = told_by(done)
    assert [each.node for each in told] == [cluster.nodes[0]] * 2 + [cluster.nodes[1]] * 2
    for each in told:
        job = each.environment["LUMISITE_DONE"].partition(".")[0]
        assert each.environment["MIOPEN_USER_DB_PATH"] == f"/local/{job}/lumisite-{USER_ID}/miopen/db"
        assert each.private == ["0o700", USER_ID]
    assert done.stderr == ""
    left = cluster.run("ls /local", node=cluster.nodes[0], user="root")
    assert left.stdout == "", "the site's epilog removes it with the job"


def test_a_node_without_its_disk_has_the_next_place_and_the_other_node_the_folder(cluster: Cluster) -> None:
    deploy_site(cluster, JOB_FOLDER)
    node = cluster.nodes[1]
    cluster.run("touch /no-local", node=node, user="root").check()
    try:
        every = told_by(cluster.run(f"{LOAD}; srun -N2 --ntasks-per-node=1 {CONTAINER}"))
        verbose = cluster.run(f"{LOAD}; LUMISITE_VERBOSE=1 srun -w {node} true").check().stdout
    finally:
        cluster.run("rm /no-local", node=node, user="root").check()
    folders = [each.environment["MIOPEN_USER_DB_PATH"].split("/")[1] for each in every]
    assert folders == ["local", "tmp"]
    assert [each.private for each in every] == [["0o700", USER_ID]] * 2
    assert ": no directory for caches in $TMPDIR: it names no folder of yours in /local" in verbose


def test_a_job_that_another_job_submits_has_its_own_folder(cluster: Cluster) -> None:
    """It inherits binds and variables of the first one's folder, which is gone by then."""
    deploy_site(cluster, JOB_FOLDER)
    inner = f"srun --export=ALL sh -c '{TASK}; {CONTAINER}'"
    script = f"#!/bin/sh\n#SBATCH -o /scratch/inner.out\n{inner}\n"
    (cluster.shared / "scratch/inner.sh").write_text(script)
    cluster.run(f"{LOAD}; srun -n1 sbatch --quiet --wait -N1 -w {cluster.nodes[1]} /scratch/inner.sh").check()
    task, container = told_by(cluster.run("cat /scratch/inner.out"))
    job = task.environment["LUMISITE_DONE"].partition(".")[0]
    assert [bind for bind in task.binds if bind.startswith("/local/")] == [f"/local/{job}"]
    for each in (task, container):
        assert each.environment["MIOPEN_USER_DB_PATH"].startswith(f"/local/{job}/")
        assert each.private == ["0o700", USER_ID]


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
