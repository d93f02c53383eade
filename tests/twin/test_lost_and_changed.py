"""What Slurm lost is never a failed gate, and what a user sets reaches no job."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lumisite.validate.lines import Gate
from tests.twin import faults
from tests.twin.cluster import LOGIN, Cluster, ClusterPlan, running, wait_idle
from tests.twin.fixtures import require_twin
from tests.twin.helper_site import deploy_site
from tests.twin.login_node import LUMISITE, install_lumisite
from tests.twin.test_faults_of_a_run import set_by_user
from tests.twin.test_validate import at_work, ended, lines, validate

pytestmark = [pytest.mark.measures, pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.lmod]

#: The site's Prolog, which takes longer than Slurm allows while a file says so.
PROLOG = """#!/bin/sh
if [ -e "/scratch/prolog-hangs-on-$(uname -n)" ]; then sleep 60; fi
"""
#: Two steps in which ranks work together, none of which costs more than to import PyTorch.
PROBES = "--probe communicators --probe collectives"


@pytest.fixture(scope="module")
def site() -> Iterator[Cluster]:
    """A cluster with the modules deployed, and a Prolog that may hang."""
    require_twin()
    lines, etc = ("Prolog=/etc/slurm/prolog", "PrologEpilogTimeout=3"), (("slurm/prolog", PROLOG),)
    plan = ClusterPlan(images=("torch",), slurm_lines=lines, etc=etc)
    with running(plan) as cluster:
        deploy_site(cluster)
        install_lumisite(cluster)
        yield cluster


def not_passed(cluster: Cluster, run: str) -> list[Gate]:
    return [line for line in lines(cluster, run) if isinstance(line, Gate) and line.verdict != "pass"]


# ---- what Slurm lost


def test_a_controller_that_is_away_for_a_while_costs_nothing_but_time(site: Cluster) -> None:
    with at_work(site, "away", "--probe environment --probe collectives", "environment-2n-node …") as process:
        with faults.daemon_away(site, LOGIN, "slurmctld"):
            assert process.stderr is not None
            told = next((line for line in process.stderr if "Slurm does not answer" in line), "")
        code, out, err = ended(process)
    assert code == 0, out + err
    assert not not_passed(site, "away")
    assert told


@pytest.mark.parametrize("ranks", ["live", "die"])
def test_a_node_whose_slurmd_is_killed_fails_no_gate_and_its_job_is_run_again(site: Cluster, ranks: str) -> None:
    name = f"killed-slurmd-{ranks}"
    with at_work(site, name, PROBES, "communicators-2n …") as process:
        with faults.daemon_away(site, "nid000002", "slurmd", "KILL"):
            if ranks == "die":  # of which srun hears at once, and of slurmd only when it wants something of it
                site.run("until pkill -KILL -f [p]robes/communicators.py; do sleep 0.1; done", node="nid000002").check()
            code, out, err = ended(process)
        wait_idle(site)
    assert code == 4, out + err
    (gate,) = not_passed(site, name)
    assert (gate.gate, gate.verdict) == ("job", "inconclusive")
    assert gate.nodes == ("nid000002",)
    assert f"`lumisite validate --resume /scratch/{name}`" in gate.advice
    done = site.run(f"{LUMISITE} validate --resume /scratch/{name}")
    assert done.code == 0, done.stdout + done.stderr
    assert not not_passed(site, name)


@pytest.mark.parametrize("node", ["nid000001", "nid000002"])
def test_a_prolog_that_takes_too_long_is_said_in_slurms_words(site: Cluster, node: str) -> None:
    """On the node of the batch script, and on another."""
    mark = site.shared / f"scratch/prolog-hangs-on-{node}"
    mark.touch()
    try:
        done = validate(site, f"prolog-{node}", "--probe environment")
    finally:
        mark.unlink()
        site.run(f"scontrol update nodename={node} state=resume", user="root")
        wait_idle(site)
    assert done.code == 4, done.stdout + done.stderr
    (gate,) = not_passed(site, f"prolog-{node}")
    assert (gate.code, gate.nodes) == ("job-node-lost", (node,)), done.stderr
    assert f"{node} drained (Prolog error)" in gate.text
    assert f"`lumisite validate --resume /scratch/prolog-{node}`" in gate.advice


# ---- what the user sets


def test_what_the_user_sets_changes_nothing_and_is_said(site: Cluster) -> None:
    """In the shell that submits, and in the login files that a job's shell would read."""
    options = "export SLURM_EXPORT_ENV=NONE SBATCH_TIMELIMIT=1 SBATCH_PARTITION=none SBATCH_EXPORT=NIL"
    inside = "export APPTAINER_CLEANENV=1 GLOO_SOCKET_IFNAME=eth0 SLURM_MPI_TYPE=none"
    with set_by_user(site, options, inside):
        done = validate(site, "of-a-user", "--probe transport")
    assert done.code == 0, done.stdout + done.stderr
    assert "SBATCH_PARTITION=none" in done.stderr
    for setting in ("APPTAINER_CLEANENV=1", "GLOO_SOCKET_IFNAME=eth0", "SLURM_EXPORT_ENV=NONE", "SLURM_MPI_TYPE=none"):
        assert f"{setting} of your login files is not set in the jobs" in done.stderr
