"""The srun helper in real steps: one test for each rule that users are told.

What Slurm has a part in is run on all three generations of it; what one prolog does in any of them, on one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lumisite.cli import main
from tests.support.prologs import STEP
from tests.twin import faults
from tests.twin.cluster import EXCHANGE, SITE_TREE, Cluster, ClusterPlan, running
from tests.twin.fixtures import require_twin
from tests.twin.helper_site import (
    CONTAINER,
    GENERATIONS,
    IMAGE,
    LOAD,
    PROLOG,
    TASK,
    Told,
    deploy_site,
    run_with,
    told_by,
)
from tests.twin.roots import USER_ID

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.lmod]

#: The how-to's own file, for the twin's root.
PAGE = (Path(__file__).parent.parent.parent / "docs/how-to/site-wide-helper.md").read_text()
FILTER = PAGE.partition("```lua\n")[2].partition("```")[0].replace("/appl/local/lumisite", SITE_TREE)
#: The variables that `tell.py` shows.
SHOWN = ("NCCL_", "GLOO_", "MIOPEN_", "PYTHON")
#: Partitions, nodes, and tasks on each.
SHAPES = [("standard-g", 2, 2), ("standard-g", 1, 2), ("small-g", 2, 1), ("small-g", 1, 1)]
BOUND = ["/opt/cray", "/project", "/scratch", "/usr/lib64/libcxi.so.1", "/var/spool/slurmd"]


@pytest.fixture(scope="module", params=GENERATIONS)
def modules(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster where users load the module."""
    require_twin()
    with running(ClusterPlan(request.param, images=("small",))) as cluster:
        deploy_site(cluster)
        yield cluster


@pytest.fixture(scope="module")
def default() -> Iterator[Cluster]:
    """The same of the default generation alone, for what Slurm has no part in."""
    require_twin()
    with running(ClusterPlan(images=("small",))) as cluster:
        deploy_site(cluster)
        yield cluster


@pytest.fixture(scope="module")
def site_wide() -> Iterator[Cluster]:
    """A cluster where slurm.conf names the prolog, for all steps."""
    require_twin()
    plan = ClusterPlan(images=("small",), slurm_lines=(f"TaskProlog={PROLOG}",))
    with running(plan) as cluster:
        deploy_site(cluster)
        yield cluster


@pytest.fixture(scope="module", params=GENERATIONS)
def filtered(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster whose cli_filter attaches the prolog to container steps."""
    require_twin()
    lines, etc = ("CliFilterPlugins=cli_filter/lua",), (("slurm/cli_filter.lua", "-- replaced below\n"),)
    with running(ClusterPlan(request.param, images=("small",), slurm_lines=lines, etc=etc)) as cluster:
        deploy_site(cluster)
        yield cluster


def complete(told: Told, cluster: Cluster) -> None:
    """What every container of a step on both nodes must have."""
    assert sorted(set(told.places) - {"/.singularity.d"}) == BOUND
    assert "/.singularity.d" in told.places
    environment = told.environment
    assert environment["NCCL_SOCKET_IFNAME"] == "hsn0,hsn1,hsn2,hsn3"
    assert environment["GLOO_SOCKET_IFNAME"] == "hsn0"
    assert environment["NCCL_NET_GDR_LEVEL"] == "PHB"
    assert environment["PYTHONNOUSERSITE"] == "1"
    assert environment["MASTER_ADDR"] == f"{cluster.nodes[0]}-hsn0"
    assert 20_000 <= int(environment["MASTER_PORT"]) < 28_000
    assert told.private == ["0o700", USER_ID]
    assert environment["MIOPEN_USER_DB_PATH"] == f"/tmp/lumisite-{USER_ID}/miopen/db"


# ---- a user loads the module


def test_with_the_module_every_container_has_all(default: Cluster) -> None:
    done = default.run(f"{LOAD}; srun -N2 -n4 {CONTAINER}")
    told = told_by(done)
    assert [each.node for each in told] == [default.nodes[0]] * 2 + [default.nodes[1]] * 2
    for each in told:
        complete(each, default)
    assert done.stderr == ""


@pytest.mark.parametrize(("partition", "nodes", "tasks"), [*SHAPES], ids=str)
def test_env_says_what_a_rank_finds(
    default: Cluster, partition: str, nodes: int, tasks: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Real Lmod, Slurm, prolog and wrapper against the same question to `lumisite env`, for each shape of a step."""
    shape = ["--nodes", str(nodes), "--tasks-per-node", str(tasks), "--partition", partition]
    assert main(["env", IMAGE, "--site", "twin", *shape, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    mine, theirs = f"lumisite-{os.getuid()}", f"lumisite-{USER_ID}"
    srun = f"{LOAD}; srun -p {partition} -N{nodes} --ntasks-per-node={tasks}"
    first = told_by(default.run(f"{srun} {CONTAINER}"))[0]
    expected = {name: one["value"] for name, one in told["variables"].items() if name.startswith(SHOWN)}
    assert len(expected) > 4
    for name, value in expected.items():
        assert first.environment.get(name) == (value and value.replace(mine, theirs)), name
    assert [bind["target"] for bind in told["binds"]] == told_by(default.run(f"{srun} {TASK}"))[0].binds


def test_export_none_leaves_it_working(modules: Cluster) -> None:
    for told in told_by(modules.run(f"{LOAD}; srun -N2 --export=NONE {CONTAINER}")):
        complete(told, modules)


def test_off_switches_it_off(default: Cluster) -> None:
    for told in told_by(default.run(f"{LOAD}; LUMISITE=off srun -N2 {TASK}")):
        assert "GLOO_SOCKET_IFNAME" not in told.environment
        assert "/var/spool/slurmd" not in told.binds
        assert told.private is None


def test_the_users_values_win(default: Cluster) -> None:
    mine = "GLOO_SOCKET_IFNAME=eth0 NCCL_NET_GDR_LEVEL= MIOPEN_USER_DB_PATH=/scratch MASTER_PORT=29501"
    for told in told_by(default.run(f"{LOAD}; {mine} SINGULARITY_BIND=/usr/share:/mine srun -N2 {CONTAINER}")):
        environment = told.environment
        assert [environment[name.partition("=")[0]] for name in mine.split()] == ["eth0", "", "/scratch", "29501"]
        assert "/mine" not in told.binds
        assert environment["MIOPEN_CUSTOM_CACHE_DIR"].startswith("/tmp/lumisite-")


def test_a_nested_srun_is_set_up_for_its_own_shape(modules: Cluster) -> None:
    inner = f"srun --overlap -N1 -n1 {TASK}"
    (told,) = told_by(modules.run(f"{LOAD}; srun -N2 --ntasks-per-node=1 sh -c '[ $SLURM_PROCID = 1 ] || {inner}'"))
    assert "NCCL_NET_GDR_LEVEL" not in told.environment  # the outer step had two nodes, and it
    assert told.environment["GLOO_SOCKET_IFNAME"] == "hsn0"
    assert told.environment["LUMISITE_DONE"].split(".")[1] == "1"
    assert len(told.binds) == len(set(told.binds))


def test_salloc_and_its_steps(modules: Cluster) -> None:
    allocation = f"salloc --quiet -N2 sh -c 'env | grep -c ^LUMISITE_DONE; srun {CONTAINER}; srun -N1 -n1 {TASK}'"
    done = modules.run(f"{LOAD}; {allocation}")
    assert done.stdout.splitlines()[0] == "0"
    by_shape = sorted(told_by(done), key=lambda told: told.environment["SLURM_STEP_NUM_NODES"])
    assert "NCCL_NET_GDR_LEVEL" not in by_shape[0].environment
    for told in by_shape[1:]:
        complete(told, modules)


def batch(cluster: Cluster, script: str) -> list[Told]:
    """Run a batch script, which writes to /scratch, and read what it and its steps said."""
    place = "/scratch/batch.out"
    lines = f"#!/bin/bash -l\n#SBATCH -N2 --ntasks-per-node=1 -o {place}\n{script}\n"
    (cluster.shared / "scratch/job.sh").write_text(lines)
    (cluster.shared / "scratch/batch.out").unlink(missing_ok=True)
    return told_by(cluster.run(f"sbatch --quiet --wait /scratch/job.sh && cat {place}"))


def is_batch(told: Told) -> bool:
    """Slurm 22.05 and 24.11 give the batch step no id, 26.05 gives it -5."""
    return told.environment.get("SLURM_STEP_ID", "-5") == "-5"


def test_the_batch_step_has_nothing_and_its_steps_have_all(modules: Cluster) -> None:
    told = batch(modules, f"{LOAD}; {TASK}; srun {CONTAINER}")
    (script,) = [each for each in told if is_batch(each)]
    assert not {"GLOO_SOCKET_IFNAME", "LUMISITE_EXPORTS"} & set(script.environment)
    steps = [each for each in told if each is not script]
    assert len(steps) == 2
    for each in steps:
        complete(each, modules)


def test_a_venv_in_a_squashfs_file_is_mounted_and_first(default: Cluster) -> None:
    make = "mkdir -p ~/venv/bin && printf '#!/bin/sh\\necho hello from the venv\\n' >~/venv/bin/hello && chmod 755 ~/venv/bin/*"
    default.run(
        f"{make} && rm -f /scratch/venv.sqsh && mksquashfs ~/venv /scratch/venv.sqsh -quiet -no-progress"
    ).check()
    done = default.run(f"{LOAD}; LUMISITE_VENV=/scratch/venv.sqsh:/mine srun singularity --quiet exec {IMAGE} hello")
    assert done.check().stdout == "hello from the venv\n"


def test_what_starts_no_container_runs_without_our_binds(default: Cluster) -> None:
    done = default.run(f"{LOAD}; LUMISITE_VERBOSE=1 singularity inspect {IMAGE}")
    assert done.check().stderr.count("lumisite: without the bind ") == 7
    assert default.run(f"{LOAD}; singularity inspect {IMAGE}").check().stderr == ""


#: A second family: its images need nothing of the Cray environment, and another setting.
OWN_LIBRARIES = {
    "families:\n": """families:
  plain:
    title: images that bring their own libfabric
    paths: ['*/plain-*.sif']
    modules: [singularity-userfilesystems]
    plugin: in-image
    mpi: pmi2
    prepend_path: [/usr/games]
    why: to see the wrapper correct what the prolog could not know
    source: here
""",
    "  - name: PYTHONNOUSERSITE\n": """  - {name: TWIN_FAMILY, value: plain, when: {family: [plain]}, why: for the test, source: here}
  - name: PYTHONNOUSERSITE
""",
}


def test_the_wrapper_corrects_for_the_image_in_hand(default: Cluster) -> None:
    deploy_site(default, OWN_LIBRARIES)
    default.run(f"ln -f {IMAGE} /scratch/plain-1.sif || cp {IMAGE} /scratch/plain-1.sif").check()
    shown = "sh -c 'echo $(ls -d /opt/cray /project) ${TWIN_FAMILY-none} $PATH'"
    for image, places, family in (
        ("/scratch/plain-1.sif", ["/project"], "plain"),
        (IMAGE, ["/opt/cray", "/project"], "none"),
    ):
        done = default.run(f"{LOAD}; srun -N2 --ntasks-per-node=1 singularity --quiet exec {image} {shown} 2>/dev/null")
        for line in done.check().stdout.splitlines():
            assert line.split()[:-1] == [*places, family]
            assert line.split()[-1].startswith("/usr/games:") == (family == "plain")
        assert len(done.stdout.splitlines()) == 2
    deploy_site(default)


# ---- the site names it in slurm.conf


def test_site_wide_every_container_has_all_without_a_module(site_wide: Cluster) -> None:
    done = site_wide.run(f"srun -N2 -n4 {CONTAINER}")
    for told in told_by(done):
        complete(told, site_wide)
    assert len(told_by(done)) == 4
    assert done.stderr == ""


def test_site_wide_the_batch_step_has_nothing(site_wide: Cluster) -> None:
    told = batch(site_wide, f"{TASK}; srun {CONTAINER}")
    (script,) = [each for each in told if is_batch(each)]
    assert not script.ours
    assert "GLOO_SOCKET_IFNAME" not in script.environment
    for each in told:
        if each is not script:
            complete(each, site_wide)


def test_site_wide_and_by_module_at_once_it_does_everything_once(site_wide: Cluster) -> None:
    for told in told_by(site_wide.run(f"{LOAD}; srun -N2 {CONTAINER}")):
        complete(told, site_wide)
        assert len(told.binds) == len(set(told.binds))
        assert told.environment["PATH"].count("spank/bin") <= 1


# ---- the site's cli_filter attaches it


def test_the_filter_attaches_it_to_container_steps_alone(filtered: Cluster) -> None:
    install_filter(filtered)
    for told in told_by(filtered.run(f"srun -N2 {CONTAINER}")):
        complete(told, filtered)
    for told in told_by(filtered.run(f"srun -N2 {TASK}")):
        assert not told.ours
    for told in told_by(filtered.run(f"/usr/bin/salloc --quiet -N1 srun {CONTAINER}")):
        assert told.environment["GLOO_SOCKET_IFNAME"] == "hsn0"


def test_the_filter_marks_a_binding_that_the_user_typed(filtered: Cluster) -> None:
    install_filter(filtered)
    shown = f"singularity --quiet exec {IMAGE} grep Cpus_allowed_list /proc/self/status"
    typed = filtered.run(f"LUMISITE_VERBOSE=1 srun -n2 -p standard-g --cpu-bind=cores {shown}").check().stdout
    assert typed.count("no CPU binding: the binding is yours") == 2  # by each task
    free = filtered.run(f"LUMISITE_VERBOSE=1 srun -n1 -p standard-g {shown}").check().stdout
    assert "the binding is yours" not in free


def test_the_filter_asks_for_the_mpi_of_an_image_for_its_step_alone(filtered: Cluster) -> None:
    install_filter(filtered)
    deploy_site(filtered, OWN_LIBRARIES)
    filtered.run(f"ln -f {IMAGE} /scratch/plain-1.sif || cp {IMAGE} /scratch/plain-1.sif").check()
    shown = "sh -c 'test -n \"$PMI_FD\" && echo pmi2 || echo other'"
    for words, mpi in (
        (f"singularity --quiet exec /scratch/plain-1.sif {shown}", "pmi2"),
        (f"singularity --quiet exec --cleanenv -B /usr /scratch/plain-1.sif {shown}", "other"),
        (f"singularity --quiet exec {IMAGE} {shown}", "other"),
        (shown, "other"),
    ):
        assert filtered.run(f"srun -n2 {words} 2>/dev/null").check().stdout.split() == [mpi] * 2, words
    theirs = f"singularity --quiet exec /scratch/plain-1.sif {shown}"
    assert filtered.run(f"srun --mpi=none -n2 {theirs} 2>/dev/null").check().stdout.split() == ["other"] * 2
    deploy_site(filtered)


def test_the_filter_warns_and_lets_the_job_run(filtered: Cluster) -> None:
    install_filter(filtered)
    done = filtered.run("srun -n2 --gpus-per-task=1 true")
    assert done.code == 0
    assert "--gpus-per-task" in done.stderr
    assert "allow-task-sharing" in done.stderr
    assert filtered.run("sbatch --wait -o /dev/null --wrap true").code == 0


def test_a_filter_whose_module_is_gone_stops_no_job(filtered: Cluster) -> None:
    """The how-to's file: a dofile without pcall would stop every srun, sbatch and salloc here."""
    install_filter(filtered, FILTER.replace("current/spank", "gone/spank"))
    assert filtered.run("srun -n1 true").code == 0


def install_filter(cluster: Cluster, text: str = FILTER) -> None:
    """srun reads it anew each time; it could not be there before the site was deployed."""
    cluster.run(["tee", "/etc/slurm/cli_filter.lua"], user="root", stdin=text).check()


# ---- faults


EVIL = "x\nexport LD_PRELOAD=/evil.so\nunset HOME\nprint evil\n"
#: One of each class of which Slurm's generations might make something else: those of a user's environment, and those that
#: srun itself would stumble over. test_prolog_hostile.py has all.
HOSTILE: dict[str, dict[str, str]] = {
    "a line break": {"SINGULARITY_BINDPATH": EVIL, "MASTER_ADDR": EVIL, "LUMISITE": EVIL},
    "exported functions": {
        f"BASH_FUNC_{name}%%": "() { echo export LD_PRELOAD=/evil.so; }" for name in ("sed", "printf")
    },
    "a large environment": {f"LARGE_{number}": "x" * 100_000 for number in range(10)},
}
ODD = {name: EVIL for name in STEP if name.startswith("SLURM_") and "STEP_ID" not in name}


def test_a_job_starts_in_a_hostile_environment(modules: Cluster) -> None:
    tell = f"/usr/bin/python3 -SEs {EXCHANGE}/tell.py"
    for fault, changes in HOSTILE.items():
        changes = {**changes, "SLURM_TASK_PROLOG": PROLOG}
        done = run_with(modules, changes, f"/usr/bin/srun -Q -N2 --ntasks-per-node=2 {tell}")
        every = told_by(done)
        assert len(every) == 4, fault
        assert "prolog" not in done.stderr.lower(), fault
        assert all(line.startswith(("lumisite: ", "TOLD ")) for line in done.stdout.splitlines()), fault
        for told in every:
            assert "LD_PRELOAD" not in told.environment, fault
            assert told.environment["LUMISITE_DONE"], fault


def test_a_job_starts_where_slurm_itself_says_odd_things(modules: Cluster) -> None:
    """The prolog gets them from a script around it, and Slurm obeys what it prints."""
    around = modules.exchange / "around"
    around.write_text(f"#!/bin/sh\nexec python3 -SEs {EXCHANGE}/launch.py {EXCHANGE}/odd.json {PROLOG}\n")
    around.chmod(0o755)
    (modules.exchange / "odd.json").write_text(json.dumps(ODD))
    done = modules.run(f"SLURM_TASK_PROLOG={EXCHANGE}/around srun -Q -N2 --ntasks-per-node=2 {TASK}")
    assert done.stderr == ""
    told = told_by(done)
    assert len(told) == 4
    for each in told:
        assert "LD_PRELOAD" not in each.environment
        assert "HOME" in each.environment  # what the values would have Slurm unset
        assert each.environment["GLOO_SOCKET_IFNAME"] == "hsn0"


def test_a_job_starts_where_tmp_is_full_or_read_only(default: Cluster) -> None:
    node = default.nodes[0]
    for fault in (faults.tmp_full, faults.tmp_read_only):
        with fault(default, node):
            done = default.run(f"{LOAD}; srun -Q -N2 -n4 {TASK}")
            assert done.stderr == ""
            assert len(told_by(done)) == 4


def test_a_missing_bind_is_said_by_the_nodes_name(default: Cluster) -> None:
    node = default.nodes[1]
    for fault in (faults.path_gone, faults.dangling_link):
        with fault(default, node, "/usr/lib64/libcxi.so.1"):
            done = default.run(f"{LOAD}; srun -N2 -n4 true").check()
            assert done.stdout.count(f"lumisite: /usr/lib64/libcxi.so.1 not found on {node}") == 1
            assert default.nodes[0] not in done.stdout
            # It is out of the list there, and a container starts on both.
            every = told_by(default.run(f"{LOAD}; srun -N2 -n2 {CONTAINER}"))
            assert ["/usr/lib64/libcxi.so.1" in told.places for told in every] == [True, False]


def test_a_hostile_neighbour_in_tmp(default: Cluster) -> None:
    node, usual = default.nodes[0], f"/tmp/lumisite-{USER_ID}"
    for plant in (f"ln -s /users {usual}", f"mkdir -m 777 {usual}", f"touch {usual}"):
        default.run(f"rm -rf {usual}*; {plant}", node=node, user="root").check()
        (told,) = told_by(default.run(f"{LOAD}; srun -w {node} -n1 {TASK}"))
        assert told.private == ["0o700", USER_ID]
        assert not told.environment["MIOPEN_USER_DB_PATH"].startswith(f"{usual}/")
    default.run(f"rm -rf {usual}*", node=node, user="root").check()
