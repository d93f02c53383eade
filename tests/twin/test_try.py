"""`lumisite try` on a real cluster: what a setting is worth, from the question to the ledger."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.sites import site_text
from tests.twin.cluster import Cluster, ClusterPlan
from tests.twin.fence import SCRIPTS
from tests.twin.fixtures import require_twin
from tests.twin.login_node import LUMISITE, ready_cluster
from tests.twin.process import Result
from tests.twin.roots import USER_ID
from tests.twin.test_planted_faults import set_by_user

pytestmark = [pytest.mark.measures, pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.lmod]

#: What the twin's limited links carry the same of, however busy the machine is; training needs its CPUs too.
RULES = (
    "    - {metric: 'ddp/samples_per_s/*', source: tests/twin}\n",
    "    - {metric: 'ddp/samples_per_s/comm/*', threshold: 0.3, source: tests/twin}\n",
)
SIZES = (
    "    - {metric: 'collectives/all_reduce_busbw/4MiB/*', source: tests/twin}\n",
    "    - {metric: 'collectives/all_reduce_busbw/[14]MiB/*', source: tests/twin}\n",
)


@contextmanager
def trial_cluster() -> Iterator[Cluster]:
    """A cluster whose links bound what is measured, with a description that may be written to."""
    require_twin()
    with ready_cluster(ClusterPlan(images=("torch",), management_rate="100mbit", high_speed_rate="250mbit")) as cluster:
        description = cluster.shared / "scratch/site.yaml"
        description.write_text(site_text(RULES, SIZES))
        os.chown(description, USER_ID, USER_ID)
        shutil.copytree(SCRIPTS / "planted", cluster.shared / "scratch/planted")
        yield cluster


@pytest.fixture(scope="module")
def site() -> Iterator[Cluster]:
    with trial_cluster() as cluster:
        yield cluster


def tried(cluster: Cluster, name: str, words: str, *, planted: bool = False) -> tuple[Result, dict[str, Any]]:
    """Try, and give what it says as JSON."""
    path = "export SINGULARITYENV_PYTHONPATH=/scratch/planted"
    with set_by_user(cluster, *([path] if planted else [])):
        command = f"try --site /scratch/site.yaml --seed 3 --json --out /scratch/{name} {words}"
        done = cluster.run(f"cd /scratch && {LUMISITE} {command}", timeout_s=900)
    return done, json.loads(done.stdout) if done.stdout.startswith("{") else {}


def answers(told: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["setting"]: one for one in told["answers"]}


def test_the_network_that_ranks_are_given_is_needed(site: Cluster) -> None:
    # The rest of this machine may disturb every slot by a tenth: of three allocations p would be too large.
    done, told = tried(site, "network", "GLOO_SOCKET_IFNAME=hsn0 --probe ddp --allocations 4")
    assert done.code == 0, done.stdout + done.stderr
    answer = answers(told)["GLOO_SOCKET_IFNAME unset"]
    assert answer["worth"] == "needed", done.stdout
    (carrier,) = (one for one in answer["findings"] if one["code"] == "carrier-changed")
    assert carrier["values"] == {"carrier": "eth0", "reference": "hsn0"}


def test_one_size_that_is_slow_is_harmful_and_what_nobody_reads_is_unverified(site: Cluster) -> None:
    words = "PLANTED_SLOW=1048576 NOBODY_READS_THIS=1 OMP_PROC_BIND=false "
    words += "LUMISITE_CPU_BIND=off --probe collectives --allocations 3"
    done, told = tried(site, "sizes", words, planted=True)
    assert done.code == 1, done.stdout + done.stderr
    found = answers(told)
    assert found["PLANTED_SLOW=1048576"]["worth"] == "harmful", done.stdout
    assert found["NOBODY_READS_THIS=1"]["worth"] == "unverified", done.stdout
    # Three allocations on a busy machine may not exclude 3 %.
    assert found["OMP_PROC_BIND=false"]["worth"] in ("inert", "underpowered"), done.stdout
    assert found["NOBODY_READS_THIS=1"]["effects"] == []
    # Tasks have no mask here, so that to do without one changes nothing, and nothing is said of it.
    assert found["LUMISITE_CPU_BIND=off"]["worth"] == "unverified", done.stdout
    sizes = {one["first"]: one["effect"] for one in found["PLANTED_SLOW=1048576"]["sizes"]}
    assert sizes[1 << 20] < -0.3
    assert abs(sizes[4 << 20]) < 0.1
    assert told["run"] == "/scratch/sizes"
