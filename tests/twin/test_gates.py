"""The gate probes on the twin: an untouched cluster passes all, and each planted fault is named by the right one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from lumisite.validate.lines import Gate, Sample
from lumisite.validate.probes.suite import choose_probes
from tests.support.records import target_of
from tests.support.sites import load_text, site_text
from tests.twin import faults
from tests.twin.cluster import SITE_TREE, Cluster, ClusterPlan, running
from tests.twin.fixtures import require_twin
from tests.twin.gate_steps import TORCH, Start, judged, run_gate, twin_probe
from tests.twin.helper_site import deploy_site
from tests.twin.roots import HOME
from tests.twin.tykky import write_environment

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.lmod]

CPEBITS = "modules/singularity-CPEbits/25.03.lua"
#: For `binds`: what a container imports in no time, where its libraries are not looked at.
FRAMEWORK = "export SINGULARITYENV_PYTHONPATH=/scratch/framework"


@pytest.fixture(scope="module")
def site() -> Iterator[Cluster]:
    """A cluster with the twin's site, and images with PyTorch and with JAX."""
    require_twin()
    with running(ClusterPlan(images=("torch", "jax"))) as cluster:
        deploy_site(cluster)
        (cluster.shared / "scratch/framework").mkdir()
        (cluster.shared / "scratch/framework/torch.py").write_text("__version__ = '0'\n")
        yield cluster


# ---- an untouched cluster


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("modules", "3 modules load and unload cleanly on 2 nodes"),
        ("binds", "8 binds are the host's own on 2 nodes; in use: libfabric.so"),
        ("affinity", "2 ranks on 2 nodes share no CPU"),
        ("miopen", "MIOPEN_USER_DB_PATH and MIOPEN_CUSTOM_CACHE_DIR are private and node-local for 2 ranks"),
        ("usersite", "no package of a user site or of PYTHONPATH stands before the image's for 2 ranks"),
        ("conda", "python3 is /usr/bin/python3 3.13."),
    ],
)
def test_an_untouched_cluster_passes(site: Cluster, name: str, cause: str) -> None:
    done = run_gate(site, twin_probe(name))
    assert [step.code for step in done.steps] == [0] * len(done.steps)
    assert done.only.verdict == "pass", done.causes
    assert done.only.cause.startswith(cause)
    assert done.only.nodes == site.nodes


def test_two_ranks_on_each_node_share_no_cpu(site: Cluster) -> None:
    assert run_gate(site, twin_probe("affinity"), Start(tasks=2)).causes == [
        "pass 4 ranks on 2 nodes share no CPU; twin has no GPU to be near to"
    ]


# ---- planted faults


def test_a_module_that_does_not_unload_cleanly_is_named(site: Cluster) -> None:
    file = site.shared / SITE_TREE[1:] / "current" / CPEBITS
    usual = file.read_text()
    file.write_text(usual + 'if mode() == "load" then setenv("LEFT_BEHIND", "1") end\n')
    try:
        done = run_gate(site, twin_probe("modules"))
    finally:
        file.write_text(usual)
    # AI-bindings loads it, and is no better for that.
    assert done.causes == [
        f"fail nid000001, nid000002: {name} does not unload cleanly: LEFT_BEHIND was not set before and is left as '1'"
        for name in ("singularity-CPEbits/25.03", "singularity-AI-bindings/25.03-rocm6.2")
    ]


def test_a_module_that_takes_the_users_binds_is_named(site: Cluster) -> None:
    file = site.shared / SITE_TREE[1:] / "current" / CPEBITS
    usual = file.read_text()
    file.write_text('setenv("SINGULARITY_BINDPATH", "/opt/cray")\n')
    try:
        done = run_gate(site, twin_probe("modules"))
    finally:
        file.write_text(usual)
    assert (
        "fail nid000001, nid000002: singularity-CPEbits/25.03 loads but SINGULARITY_BINDPATH lacks "
        "/usr/lib64/libcxi.so.1 (it is /opt/cray)" in done.causes
    )
    assert (
        "fail nid000001, nid000002: singularity-CPEbits/25.03 does not unload cleanly: "
        "SINGULARITY_BINDPATH was '/etc/hostname:/lumisite-probe' and is gone" in done.causes
    )


def test_a_module_that_is_not_deployed_is_named(site: Cluster) -> None:
    file = site.shared / SITE_TREE[1:] / "current" / CPEBITS
    file.rename(file.with_suffix(".away"))
    try:
        done = run_gate(site, twin_probe("modules"))
    finally:
        file.with_suffix(".away").rename(file)
    assert done.causes[0].startswith("fail nid000001, nid000002: singularity-CPEbits/25.03 does not load: ")


def test_a_bind_that_one_node_lacks_is_named(site: Cluster) -> None:
    with faults.path_gone(site, site.nodes[1], "/opt/cray"):
        done = run_gate(site, twin_probe("binds"), Start(FRAMEWORK))
    assert done.causes == [
        (
            "fail nid000002: the node lacks /opt/cray, which containers need "
            "(stand-ins for libfabric, Cray MPICH and the plugin)"
        )
    ]
    assert done.only.nodes == ("nid000002",)
    assert "drain the node" in done.only.advice


def test_a_bind_whose_module_was_unloaded_is_named(site: Cluster) -> None:
    done = run_gate(site, twin_probe("binds"), Start(f"{FRAMEWORK}; module unload singularity-CPEbits"))
    assert done.findings[0].cause == (
        "nid000001, nid000002: /opt/cray is on the node but not in the container, though the module "
        "singularity-CPEbits binds it (stand-ins for libfabric, Cray MPICH and the plugin)"
    )
    assert done.findings[0].advice == "load singularity-CPEbits"


def test_a_bind_of_another_folder_is_named(site: Cluster) -> None:
    """The user's own entry comes first, and so the helper leaves the place alone."""
    done = run_gate(site, twin_probe("binds"), Start(f"{FRAMEWORK} SINGULARITY_BIND=/tmp:/var/spool/slurmd"))
    assert [finding.cause.partition(" (")[0] for finding in done.findings] == [
        f"{node}: /var/spool/slurmd in the container is another file" for node in site.nodes
    ]


def test_a_wrong_mask_is_named(site: Cluster) -> None:
    done = run_gate(site, twin_probe("affinity"), Start(options="--cpu-bind=mask_cpu:0x1,0x1", tasks=2, nodes=1))
    assert done.causes == [
        (
            "fail rank 1 on nid000001: it has the mask 0x1 and shares the CPUs 0 with rank 0, which has 0x1; "
            "expected a mask of its own"
        )
    ]
    assert done.only.rank == 1
    assert "SLURM_CPU_BIND=quiet,mask_cpu:" in done.only.advice


def test_databases_on_a_shared_file_system_are_named(site: Cluster) -> None:
    typed = "mkdir -p /scratch/db; export MIOPEN_USER_DB_PATH=/scratch/db"
    done = run_gate(site, twin_probe("miopen"), Start(typed))
    assert done.causes == [
        "fail ranks 0-1 on nid000001, nid000002: MIOPEN_USER_DB_PATH=/scratch/db is on /scratch, which all nodes share",
    ]


def test_databases_behind_a_link_or_open_to_others_are_named(site: Cluster) -> None:
    make = "mkdir -p /scratch/db; ln -sfn /scratch/db /tmp/link; mkdir -p /tmp/open; chmod 755 /tmp/open"
    before = f"srun -N1 -w {site.nodes[0]} -p standard-g sh -c '{make}'"
    exports = "export MIOPEN_USER_DB_PATH=/tmp/link MIOPEN_CUSTOM_CACHE_DIR=/tmp/open"
    start = Start(f"{before}; {exports}", nodes=1)
    done = run_gate(site, twin_probe("miopen"), start)
    assert done.causes == [
        (
            "fail rank 0 on nid000001: MIOPEN_USER_DB_PATH=/tmp/link, which leads to /scratch/db, is on /scratch, "
            "which all nodes share"
        ),
        (
            "fail rank 0 on nid000001: MIOPEN_CUSTOM_CACHE_DIR=/tmp/open has mode 755, so that others reach it "
            "(700 would be right)"
        ),
    ]


def test_without_the_helper_its_directories_are_missed(site: Cluster) -> None:
    done = run_gate(site, twin_probe("miopen"), Start("export LUMISITE=off", nodes=1))
    assert [finding.cause for finding in done.findings] == [
        f"rank 0 on nid000001: {name} is not set, so that it falls back to the home directory"
        for name in ("MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR")
    ]


PLANT = "mkdir -p ~/.local/lib/python3.13/site-packages/numpy ~/.local/lib/python3.13/site-packages/mine"


def test_a_package_in_the_users_site_is_named(site: Cluster) -> None:
    site.run(PLANT).check()
    try:
        kept_out = run_gate(site, twin_probe("usersite"))
        hiding = run_gate(site, twin_probe("usersite"), Start("export PYTHONNOUSERSITE="))
    finally:
        site.run("rm -r ~/.local").check()
    assert kept_out.only.verdict == "pass"
    assert kept_out.only.cause.endswith("kept out of ~/.local: mine, numpy")
    assert hiding.causes == [
        (
            f"fail ranks 0-1 on nid000001, nid000002: {HOME}/.local/lib/python3.13/site-packages is on sys.path: "
            "numpy there hides the image's own (PYTHONNOUSERSITE is '')"
        )
    ]


def test_a_package_on_pythonpath_is_named(site: Cluster) -> None:
    start = Start("mkdir -p /scratch/mine/torch; export PYTHONPATH=/scratch/mine:/gone", nodes=1)
    assert run_gate(site, twin_probe("usersite"), start).causes == [
        "fail rank 0 on nid000001: PYTHONPATH has /scratch/mine: torch there hides the image's own",
    ]


def test_a_python_from_the_host_is_named(site: Cluster) -> None:
    make = "mkdir -p /scratch/venv/bin; ln -sfn /usr/bin/python3 /scratch/venv/bin/python3"
    make += "; echo home = /usr/bin >/scratch/venv/pyvenv.cfg"
    start = Start(f"{make}; export SINGULARITYENV_PREPEND_PATH=/scratch/venv/bin", nodes=1)
    (cause,) = run_gate(site, twin_probe("conda"), start).causes
    assert cause.startswith("fail rank 0 on nid000001: python3 is /scratch/venv/bin/python3 (Python 3.13.")
    assert cause.endswith("prefix /scratch/venv) from /scratch, which is bound from the host, not the image's own")


def test_a_python_that_was_not_activated_is_named(site: Cluster) -> None:
    """The image stands for one whose family needs an environment that it does not have."""
    activation = "    activation: with-conda\n    prepend_path: [/opt/env/bin]\n"
    conda = load_text(site_text(("    plugin: from-host\n", f"{activation}    plugin: from-host\n"))).site
    (probe,) = choose_probes(target_of(conda), ["conda"])
    done = run_gate(site, probe, Start(nodes=1))
    assert done.causes[0].endswith("prefix /usr); family twin-torch needs it from /opt/env/bin")
    assert "$WITH_CONDA" in done.only.advice


# ---- JAX, and training in two environments


@pytest.mark.parametrize(("nodes", "tasks"), [(1, 1), (1, 2), (2, 1)])
def test_jax_finds_its_devices_and_they_add_up(site: Cluster, nodes: int, tasks: int) -> None:
    done = run_gate(site, twin_probe("jax"), Start(nodes=nodes, tasks=tasks))
    devices = nodes * tasks
    assert done.only.verdict == "pass", done.causes
    assert f"finds {devices} cpu device{'s' * (devices > 1)}, and the sum over them is right" in done.only.cause


def test_ranks_that_do_not_meet_are_named(site: Cluster) -> None:
    """Without the helper, nobody tells the ranks where to meet."""
    done = run_gate(site, twin_probe("jax"), Start("export LUMISITE=off", nodes=1, tasks=2))
    assert done.causes == ["fail ranks 0-1 on nid000001: JAX failed: KeyError: 'MASTER_ADDR'"]


def test_training_in_the_wrapper_is_set_beside_the_container(site: Cluster) -> None:
    write_environment(site.shared / "scratch/tykky", TORCH)
    probe = twin_probe("wrapper", wrapper="/scratch/tykky")
    # What else this machine does only makes epochs longer, in one environment or in the other.
    tries = (run_gate(site, probe) for _ in range(4))
    done = next((one for one in tries if one.only.verdict == "pass"), None)
    assert done is not None, "four times much slower in the wrapper"
    measures = {line.metric: line.value for line in done.lines if isinstance(line, Sample)}
    assert set(measures) == {"wrapper/epoch_s/container/2n", "wrapper/epoch_s/wrapper/2n", "wrapper/epoch_ratio/2n"}
    assert measures["wrapper/epoch_ratio/2n"] < 2

    slow = site.shared / "scratch/slow"
    write_environment(slow, TORCH, extra="unset GLOO_SOCKET_IFNAME\n")
    probe = twin_probe("wrapper", wrapper="/scratch/slow")
    # The container's own times are known already.
    with faults.interface_throttled(site, site.nodes[0], "eth0", "75mbit"):
        slowed = run_gate(site, dataclasses.replace(probe, parts=probe.parts[1:]))
    usual = [record for record in done.records if record["part"] == "container"]
    line, *_ = judged(probe, [*usual, *slowed.records], site.nodes)
    assert isinstance(line, Gate)
    assert line.verdict == "fail", line.cause
    assert "in the environment GLOO_SOCKET_IFNAME is not set, not hsn0" in line.cause
