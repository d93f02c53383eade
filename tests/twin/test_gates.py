"""What a rank has on the twin: an untouched cluster passes, and each planted fault is found by the right check."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lumisite.validate.lines import Gate
from lumisite.validate.probes.environment.judge import GATES
from tests.twin import faults
from tests.twin.cluster import Cluster, ClusterPlan, running
from tests.twin.fixtures import require_twin
from tests.twin.gate_steps import Start, environment_of, run_gate
from tests.twin.helper_site import deploy_site
from tests.twin.roots import HOME

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.lmod]

#: What a container imports in no time, where its libraries are not looked at.
FRAMEWORK = "export SINGULARITYENV_PYTHONPATH=/scratch/framework"


@pytest.fixture(scope="module")
def site() -> Iterator[Cluster]:
    """A cluster with the twin's site, and an image with PyTorch."""
    require_twin()
    with running(ClusterPlan(images=("torch",))) as cluster:
        deploy_site(cluster)
        (cluster.shared / "scratch/framework").mkdir()
        (cluster.shared / "scratch/framework/torch.py").write_text("__version__ = '0'\n")
        yield cluster


NODE, CONTAINER = environment_of("twin", "node"), environment_of("twin", "container")


# ---- an untouched cluster


def test_an_untouched_cluster_passes(site: Cluster) -> None:
    done = run_gate(site, environment_of(), Start(tasks=2))
    assert [step.code for step in done.steps] == [0, 0]
    assert done.codes == []
    assert [gate.gate for gate in done.findings] == ["environment", *GATES]
    assert {gate.nodes for gate in done.findings} == {site.nodes}
    passed = {gate.gate: gate.text for gate in done.findings}
    assert passed["affinity"].endswith("4 records passed")
    assert "libfabric.so" in passed["binds"]


# ---- planted faults


def test_a_bind_that_one_node_lacks_is_named(site: Cluster) -> None:
    with faults.path_gone(site, site.nodes[1], "/opt/cray"):
        done = run_gate(site, environment_of(), Start(FRAMEWORK))
    found = [gate for gate in done.findings if gate.gate in ("environment", "binds") and gate.verdict != "pass"]
    assert [(gate.code, gate.values["subject"], gate.nodes) for gate in found] == [
        ("bind-missing", "/opt/cray", ("nid000002",))
    ]


def test_a_bind_whose_module_was_unloaded_is_named(site: Cluster) -> None:
    done = run_gate(site, environment_of(), Start(f"{FRAMEWORK}; module unload singularity-CPEbits"))
    found = next(gate for gate in done.findings if gate.code == "bind-not-in-container")
    assert "/opt/cray: on the node but not in the container, though the module singularity-CPEbits" in found.text
    assert found.nodes == site.nodes


def test_a_bind_of_another_folder_is_named(site: Cluster) -> None:
    """The user's own entry comes first, and so the task prolog leaves the place alone."""
    done = run_gate(site, environment_of(), Start(f"{FRAMEWORK} SINGULARITY_BIND=/tmp:/var/spool/slurmd"))
    found = [gate for gate in done.findings if gate.gate == "binds"]
    assert [gate.code for gate in found] == ["bind-not-in-container"] * 2
    assert all("/var/spool/slurmd: another file in the container" in gate.text for gate in found)
    assert [gate.nodes for gate in found] == [(node,) for node in site.nodes]


def test_a_wrong_mask_is_named(site: Cluster) -> None:
    start = Start(FRAMEWORK, options="--cpu-bind=mask_cpu:0x1,0x1", tasks=2, nodes=1)
    done = run_gate(site, CONTAINER, start)
    found = next(gate for gate in done.findings if gate.gate == "affinity")
    assert (found.code, found.rank, found.nodes) == ("mask-wrong", 1, ("nid000001",))
    assert "mask 0x1 shares the CPUs 0 with local rank 0" in found.text
    assert "SLURM_CPU_BIND=quiet,mask_cpu:" in found.advice


def caches(site: Cluster, start: Start) -> list[Gate]:
    return [gate for gate in run_gate(site, CONTAINER, start).findings if gate.gate == "miopen"]


def test_databases_on_a_shared_file_system_are_named(site: Cluster) -> None:
    typed = f"{FRAMEWORK}; mkdir -p /scratch/db; export MIOPEN_USER_DB_PATH=/scratch/db"
    (found,) = caches(site, Start(typed))
    assert (found.code, found.values["ranks"], found.nodes) == ("directory-unfit", "0-1", site.nodes)
    assert "MIOPEN_USER_DB_PATH: /scratch/db is on /scratch, which all nodes share" in found.text


def test_databases_behind_a_link_or_open_to_others_are_named(site: Cluster) -> None:
    make = "mkdir -p /scratch/db; ln -sfn /scratch/db /tmp/link; mkdir -p /tmp/open; chmod 755 /tmp/open"
    before = f"srun -N1 -w {site.nodes[0]} -p standard-g sh -c '{make}'"
    exports = "export MIOPEN_USER_DB_PATH=/tmp/link MIOPEN_CUSTOM_CACHE_DIR=/tmp/open"
    link, shut = caches(site, Start(f"{FRAMEWORK}; {before}; {exports}", nodes=1))
    assert "/tmp/link (leads to /scratch/db) is on /scratch, which all nodes share" in link.text
    assert "/tmp/open has mode 755" in shut.text


def test_without_the_task_prolog_its_directories_are_missed(site: Cluster) -> None:
    found = caches(site, Start(f"{FRAMEWORK}; export LUMISITE=off", nodes=1))
    assert [(gate.code, gate.values["subject"]) for gate in found] == [
        ("directory-unfit", "MIOPEN_USER_DB_PATH"),
        ("directory-unfit", "MIOPEN_CUSTOM_CACHE_DIR"),
    ]
    assert all("not set" in gate.text for gate in found)


PLANT = "mkdir -p ~/.local/lib/python3.13/site-packages/numpy ~/.local/lib/python3.13/site-packages/mine"


def test_a_package_in_the_users_site_is_named(site: Cluster) -> None:
    site.run(PLANT).check()
    try:
        kept_out = run_gate(site, environment_of())
        hiding = run_gate(site, environment_of(), Start("export PYTHONNOUSERSITE="))
    finally:
        site.run("rm -r ~/.local").check()
    assert kept_out.codes == []
    (found,) = [gate for gate in hiding.findings if gate.gate == "usersite"]
    assert (found.code, found.values["ranks"], found.nodes) == ("packages-hidden", "0-1", site.nodes)
    assert found.values["subject"] == f"{HOME}/.local/lib/python3.13/site-packages"
    assert found.text.endswith("on Python's path, where it hides the image's own numpy")
