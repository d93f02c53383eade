"""All nodes of a cluster, a few in each job, each on its own nodes, and one record a node."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from lumisite.validate.lines import Gate
from lumisite.validate.probes.failed_ranks import NO_BEAT_S
from tests.support.sites import site_text
from tests.twin import faults
from tests.twin.cluster import Cluster, ClusterPlan
from tests.twin.fixtures import require_twin
from tests.twin.login_node import LUMISITE, ready_cluster
from tests.twin.test_faults_of_a_run import FRAMEWORK, SMALL, TWO_RANKS, set_by_site, write_framework
from tests.twin.test_validate import at_work, end_step, ended, gates, lines, twice

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.lmod]

SITE = "/scratch/machine.yaml"


@pytest.fixture(scope="module")
def site() -> Iterator[Cluster]:
    """Four nodes, each with two ranks."""
    require_twin()
    with ready_cluster(ClusterPlan(nodes=4)) as cluster:
        (cluster.shared / SITE[1:]).write_text(site_text(TWO_RANKS))
        write_framework(cluster)
        yield cluster


def test_each_node_is_validated_once(site: Cluster) -> None:
    words = f"--nodes 4 --step-nodes 2 --probe node --probe environment {SMALL}"
    with set_by_site(site, f"export SINGULARITY_BIND={FRAMEWORK}"):
        done = site.run(f"{LUMISITE} validate --site {SITE} --out /scratch/machine {words}")
    assert done.code == 0, done.stdout + done.stderr
    one, two, three, four = site.nodes
    for gate in ("node", "environment"):
        nodes = sorted(each.nodes for each in gates(site, "machine", gate))
        assert nodes == [(one, two), (one, three), (three, four)], gate
    assert {gate.verdict for gate in lines(site, "machine") if isinstance(gate, Gate)} == {"pass"}
    assert not twice(lines(site, "machine"))
    jobs = site.shared / "scratch/machine/jobs"
    assert len(list(jobs.glob("*/slurm-*.out"))) == 3
    for records in jobs.glob("*/environment-2n/records"):
        assert len({path.stem for path in records.glob("*.jsonl")}) == 2


def test_of_two_ranks_of_a_node_the_one_that_hangs_is_named(site: Cluster) -> None:
    words = f"--site {SITE} --nodes 2 --node-sets 1 --probe collectives --limit 600"
    with at_work(site, "hung", words, "collectives-2n …") as process:
        at = site.shared / "scratch/hung/jobs"
        faults.wait_until(lambda: bool(list(at.glob("*/collectives-2n/records/nid000002.at"))), "node 2 has begun")
        stop = (
            "for pid in $(pgrep -u $(id -u) -f [p]robes/collectives.py); do "
            "! grep -qzx SLURM_PROCID=3 /proc/$pid/environ || kill -STOP $pid; done"
        )
        faults.wait_until(
            lambda: site.run(f"{stop}; ps -o stat= -u $(id -u) | grep -q T", node="nid000002").code == 0, "stopped"
        )
        stopped_at = time.time()

        def others_wait() -> bool:
            """Whether all other ranks have PyTorch, and have reported long after."""
            text = "".join(path.read_text() for path in at.glob("*/collectives-2n/records/*.at"))
            found = re.findall(r'"rank": ([012]), "phase": "([^"]*)", "time": ([\d.]+)', text)
            late = [
                rank for rank, phase, told in found if float(told) > stopped_at + 2 * NO_BEAT_S and "load" not in phase
            ]
            return sorted(late) == ["0", "1", "2"]

        faults.wait_until(others_wait, "the others have reported since")
        end_step(site, "hung/jobs/*/collectives-2n")
        code, _, _ = ended(process)
    assert code == 5
    gate = gates(site, "hung", "collectives")[-1]
    assert (gate.code, gate.rank, gate.nodes) == ("step-hung", 3, ("nid000002",))
