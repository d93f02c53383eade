"""A cluster is real: an ordinary user's containers run on all of its nodes, under each Slurm generation."""

from __future__ import annotations

import pytest

from lumisite.errors import ResolveError, ToolError
from tests.twin.cluster import LOGIN, Cluster, ClusterPlan, running, up
from tests.twin.fixtures import require_twin
from tests.twin.roots import HOME, USER

pytestmark = [pytest.mark.measures, pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.lmod]

VERSIONS = {"bookworm": ("22.05.", "8.6."), "trixie": ("24.11.", "8.7."), "sid": ("26.", "8.7.")}


@pytest.mark.parametrize("generation", VERSIONS)
def test_srun_runs_a_container_on_two_nodes(generation: str) -> None:
    require_twin()
    slurm, lmod = VERSIONS[generation]
    with running(ClusterPlan(generation, images=("small",))) as cluster:
        container = "singularity exec /appl/images/small.sif"
        done = cluster.run(f"srun -N2 {container} sh -c 'hostname; id -un; pwd'").check()
        assert sorted(done.stdout.split()) == sorted([*cluster.nodes, *2 * (USER, HOME)])
        # The container is not the node: its root file system is the image's.
        inside = f"srun {container} sh -c 'command -v srun || echo none'"
        assert cluster.run(inside).stdout.strip() == "none"
        # The kernel mounts it, and no program that would take half of a rank's time.
        assert "squash" not in cluster.run(f"srun {container} sh -c 'cat /proc/[0-9]*/comm'").stdout
        assert f"slurm-wlm {slurm}" in cluster.run("srun --version").stdout.replace("slurm ", "slurm-wlm ")
        assert f"Version {lmod}" in cluster.run("module --version 2>&1").stdout


def test_all_nodes_share_the_file_systems_and_keep_tmp_to_themselves(twin: Cluster) -> None:
    first, second = twin.nodes
    twin.run(f"echo {first} >/scratch/seen; echo {first} >/tmp/seen", node=first).check()
    assert twin.run("cat /scratch/seen", node=second).stdout.strip() == first
    assert (twin.shared / "scratch/seen").read_text().strip() == first
    assert twin.run("cat /tmp/seen", node=second).code != 0


def test_a_user_may_write_where_users_may(twin: Cluster) -> None:
    for place in ("/scratch", "/flash", "/project/project_462000000", "~", "/tmp"):
        twin.run(f"touch {place}/mine && rm {place}/mine").check()
    assert twin.run("touch /appl/mine").code != 0


def test_every_node_has_all_interfaces_and_names(twin: Cluster) -> None:
    for node in (LOGIN, *twin.nodes):
        shown = twin.run("ls /sys/class/net", node=node).stdout.split()
        assert {"eth0", "hsn0", "hsn1", "hsn2", "hsn3"} <= set(shown)
        assert twin.run(["getent", "hosts", f"{node}-hsn3"]).stdout.startswith("10.77.4.")


def test_slurm_hands_out_gpus_as_on_an_amd_node(twin: Cluster) -> None:
    done = twin.run("srun -N1 --gpus-per-node=3 printenv ROCR_VISIBLE_DEVICES").check()
    assert done.stdout.strip() == "0,1,2"


def test_a_command_is_passed_word_by_word(twin: Cluster) -> None:
    words = ["printf", "%s|", "a b", "$HOME", "'", ""]
    assert twin.run(words).check().stdout == "a b|$HOME|'||"


def test_a_command_has_a_clean_environment_of_its_own(twin: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_OUTSIDE", "1")
    done = twin.run("echo ${FROM_OUTSIDE-unset} $GIVEN $HOME", environment={"GIVEN": "x y"}).check()
    assert done.stdout.strip() == f"unset x y {HOME}"


def test_exit_codes_come_back(twin: Cluster) -> None:
    assert twin.run("exit 7").code == 7
    assert twin.run("srun -N1 sh -c 'exit 9'").code == 9


def test_a_command_that_hangs_is_an_error(twin: Cluster) -> None:
    with pytest.raises(ToolError, match=r"not done after 0\.5 s"):
        twin.run("exec -a lingering sleep 60 & wait", timeout_s=0.5)
    assert twin.run(["pgrep", "--full", "^lingering"]).code == 1


def test_unknown_nodes_and_sizes_are_refused(twin: Cluster) -> None:
    with pytest.raises(ResolveError, match="'nid9' does not exist"):
        twin.run("true", node="nid9")
    with pytest.raises(ResolveError, match="should be 1 to 8"):
        up(ClusterPlan(nodes=9))


def test_two_clusters_do_not_see_each_other(twin: Cluster) -> None:
    with running(ClusterPlan(nodes=1, images=("small",))) as other:
        other.run("touch /scratch/of-the-other").check()
        assert not (twin.shared / "scratch/of-the-other").exists()
        assert other.run("srun -N1 hostname").check().stdout.split() == list(other.nodes)
        assert sorted(twin.run("srun -N2 hostname").check().stdout.split()) == list(twin.nodes)


def test_eight_nodes(twin: Cluster) -> None:
    with running(ClusterPlan(nodes=8, images=("small",))) as cluster:
        done = cluster.run("srun -N8 hostname").check()
        assert sorted(done.stdout.split()) == list(cluster.nodes)
