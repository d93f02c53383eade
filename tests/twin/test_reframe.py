"""The example of a ReFrame test, run by a real ReFrame on a real cluster."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.twin import faults
from tests.twin.cluster import Cluster, ClusterPlan
from tests.twin.fixtures import require_twin
from tests.twin.login_node import ready_cluster
from tests.twin.reframe import REFRAME, install_reframe

pytestmark = [pytest.mark.measures, pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.lmod]

EXAMPLE = Path(__file__).parents[2] / "docs/examples/lumisite_reframe.py"


def case(cluster: Cluster, name: str, options: str, code: int) -> dict[str, object]:
    """Return what ReFrame reports of the test, from a run that ends with this code."""
    words = f"-r --report-file={name}.json -S site=twin -S 'options={options}'"
    done = cluster.run(f"cd /scratch/checks && {REFRAME} -c {EXAMPLE.name} {words}")
    assert done.code == code, done.stdout + done.stderr
    report = json.loads((cluster.shared / f"scratch/checks/{name}.json").read_text())
    (found,) = report["runs"][0]["testcases"]
    assert found["name"] == "LumisiteValidate"
    return dict(found)


def test_reframe_takes_the_metrics_of_a_run_or_fails_with_its_cause() -> None:
    require_twin()
    with ready_cluster(ClusterPlan(images=("torch",))) as cluster:
        install_reframe(cluster)
        (cluster.shared / "scratch/checks").mkdir(mode=0o777)
        (cluster.shared / "scratch/checks").chmod(0o777)
        shutil.copy(EXAMPLE, cluster.shared / "scratch/checks")
        good = case(cluster, "good", "--probe collectives", 0)
        assert good["result"] == "pass"
        assert "twin:standard-g:collectives/all_reduce_busbw/4MiB/2n" in str(good["perfvalues"])
        with faults.interface_down(cluster, "nid000002", "hsn1"):
            down = case(cluster, "down", "--probe transport", 1)
        assert down["result"] == "fail"
        assert "node: nid000002: hsn1: " in str(down["fail_reason"])  # as in test_faults_of_one_node
