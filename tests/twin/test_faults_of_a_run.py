"""Each fault that is planted on the twin is named by `lumisite validate`, by the right probe and by no other."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

import pytest

from lumisite.validate.lines import Gate
from lumisite.validate.run.folder import SAMPLES, lines_of
from tests.support.logs import Run
from tests.support.sites import site_text
from tests.twin import faults
from tests.twin.cluster import EXCHANGE, SITE_TREE, Cluster, ClusterPlan
from tests.twin.fence import SCRIPTS
from tests.twin.fixtures import require_twin
from tests.twin.login_node import LUMISITE, ready_cluster
from tests.twin.roots import USER_ID

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.lmod]

#: A site's filter that knows better than the user how many tasks a node should have, while a file says so.
FILTER = """
function slurm_cli_setup_defaults(options, early) return slurm.SUCCESS end
function slurm_cli_post_submit(offset, job, step) return slurm.SUCCESS end
function slurm_cli_pre_submit(options, offset)
  local mark = io.open("/scratch/one-rank")
  if mark and options["type"] == "srun" then
    mark:close()
    options["ntasks"] = "2"
    options["ntasks-per-node"] = "1"
  end
  return slurm.SUCCESS
end
"""
TWO_RANKS = ("  tasks_per_node: 1\n", "  tasks_per_node: 2\n")
#: For the log of NCCL; what carries the bytes is played, below.
NCCL = ("  backend: gloo\n", "  backend: nccl\n")
LOGS = {
    "with-plugin": Run(gpus=1, provider="NET/OFI Selected Provider is tcp (found 4 nics)"),
    "without-plugin": Run(
        gpus=1,
        network="Socket",
        provider="",
        suffix="",
        plugin=(
            "NET/Plugin : Plugin load (librccl-net.so) returned 2 : librccl-net.so: cannot open shared object file",
        ),
    ),
}


@pytest.fixture(scope="module")
def site() -> Iterator[Cluster]:
    """A cluster with the modules deployed, lumisite on its login node, and site files for two ranks and for NCCL."""
    require_twin()
    lines = ("CliFilterPlugins=cli_filter/lua",)
    plan = ClusterPlan(slurm_lines=lines, etc=(("slurm/cli_filter.lua", FILTER),))
    with ready_cluster(plan) as cluster:
        write_framework(cluster)
        for name, change in (("two-ranks", TWO_RANKS), ("nccl", NCCL)):
            (cluster.shared / f"scratch/{name}.yaml").write_text(site_text(change))
        yield cluster


#: The image that costs least, and a stand-in for PyTorch in it, for ranks that only look whether they can import it.
SMALL = "--image /appl/images/small.sif"
FRAMEWORK = "/scratch/framework:/usr/lib/python3/dist-packages/torch"


def write_framework(cluster: Cluster) -> None:
    (cluster.shared / "scratch/framework").mkdir()
    (cluster.shared / "scratch/framework/__init__.py").write_text("__version__ = '0'\n")


# ---- faults that are no part of the twin's own


@contextmanager
def set_by_user(cluster: Cluster, *lines: str) -> Iterator[None]:
    """Have lines in the user's .bash_profile, which jobs of a run leave out."""
    profile = cluster.shared / "users/lumiuser/.bash_profile"
    profile.write_text("".join(f"{line}\n" for line in lines))
    try:
        yield
    finally:
        profile.unlink()


@contextmanager
def set_by_site(cluster: Cluster, *lines: str) -> Iterator[None]:
    """Have lines in the login files of the site, which jobs read; a user's own do not reach them."""
    file = "/etc/profile.d/zz-site.sh"
    for node in cluster.nodes:
        cluster.run(f"cat >{file}", node=node, user="root", stdin="".join(f"{line}\n" for line in lines)).check()
    try:
        yield
    finally:
        for node in cluster.nodes:
            cluster.run(f"rm {file}", node=node, user="root").check()


@contextmanager
def package_in_home(cluster: Cluster) -> Iterator[None]:
    cluster.run("mkdir -p ~/.local/lib/python3.13/site-packages/numpy").check()
    try:
        yield
    finally:
        cluster.run("rm -r ~/.local").check()


@contextmanager
def environment_of_a_user(cluster: Cluster) -> Iterator[None]:
    cluster.run("mkdir -p /scratch/db").check()
    mask, database = "SLURM_CPU_BIND=quiet,mask_cpu:0x1,0x1", "MIOPEN_USER_DB_PATH=/scratch/db"
    framework = f"SINGULARITY_BIND={FRAMEWORK}"
    with package_in_home(cluster), set_by_site(cluster, f"export {mask} {database} {framework} PYTHONNOUSERSITE="):
        yield


@contextmanager
def one_rank_per_node(cluster: Cluster) -> Iterator[None]:
    mark = cluster.shared / "scratch/one-rank"
    mark.touch()
    try:
        yield
    finally:
        mark.unlink()


@contextmanager
def module_of_another_network(cluster: Cluster) -> Iterator[None]:
    """As a module would that was rendered for another network."""
    script = cluster.shared / SITE_TREE[1:] / "current/spank/task_prolog"
    was = script.read_text()
    setting = "setting GLOO_SOCKET_IFNAME"
    assert f"{setting} hsn0" in was
    script.chmod(0o755)
    script.write_text(was.replace(f"{setting} hsn0", f"{setting} eth0"))
    try:
        yield
    finally:
        script.write_text(was)


@contextmanager
def wrapper_that_limits(cluster: Cluster) -> Iterator[None]:
    """As a site's change of the wrapper would, that was meant for something else."""
    wrapper = cluster.shared / SITE_TREE[1:] / "current/spank/bin/singularity"
    was, mode = wrapper.read_text(), wrapper.stat().st_mode
    wrapper.chmod(0o755)
    wrapper.write_text(was.replace("\n", "\nulimit -n 512\n", 1))
    try:
        yield
    finally:
        wrapper.write_text(was)
        wrapper.chmod(mode)


#: Holds every port that the module gives to MASTER_PORT; some are held for a while already by what ran before.
HOLD_PORTS = """
import resource, socket, time
resource.setrlimit(resource.RLIMIT_NOFILE, (9000, 9000))
held = []
for port in range(20000, 27993):
    held.append(socket.socket(socket.AF_INET6))
    held[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        held[-1].bind(("::", port))
        held[-1].listen()
    except OSError:
        pass
open("/run/ports-held", "w").close()
time.sleep(3600)
"""


@contextmanager
def ports_held(cluster: Cluster) -> Iterator[None]:
    (cluster.exchange / "hold_ports.py").write_text(HOLD_PORTS)
    begin = f"setsid python3 {EXCHANGE}/hold_ports.py </dev/null >/dev/null 2>&1 & until [ -e /run/ports-held ]; do sleep 0.1; done"
    undo = "kill -KILL $(pgrep -f '[h]old_ports.py'); rm /run/ports-held"
    with faults.as_root(cluster, "nid000001", begin, undo):
        yield


PRIVATE = f"/tmp/lumisite-{USER_ID}"


@contextmanager
def environment_of_a_site(cluster: Cluster) -> Iterator[None]:
    make = f"rm -rf {PRIVATE}; mkdir -m 1700 {PRIVATE}; chown {USER_ID} {PRIVATE}; mkdir {PRIVATE}/miopen"
    with (
        wrapper_that_limits(cluster),
        set_by_site(cluster, f"export SINGULARITY_BIND=/tmp:/var/spool/slurmd,{FRAMEWORK}"),
        faults.as_root(cluster, "nid000002", make, f"rm -r {PRIVATE}"),
    ):
        yield


@contextmanager
def rccl_with_plugin(cluster: Cluster) -> Iterator[None]:
    """No fault at all: a good log, and jobs whose end no database knows."""
    with rccl("with-plugin")(cluster), faults.sacct_refuses(cluster):
        yield


@contextmanager
def on_one_node(cluster: Cluster, begin: str, undo: str) -> Iterator[None]:
    with (
        faults.as_root(cluster, "nid000002", begin, undo),
        set_by_site(cluster, f"export SINGULARITY_BIND={FRAMEWORK}"),
    ):
        yield


def user_unknown(cluster: Cluster) -> AbstractContextManager[None]:
    hide = "cp -p /etc/passwd /run/passwd; sed -i /lumiuser/d /etc/passwd"
    return on_one_node(cluster, hide, "cp -p /run/passwd /etc/passwd")


def starter_without_setuid(cluster: Cluster) -> AbstractContextManager[None]:
    """As an installation that was copied without its modes."""
    folder = "/usr/lib/x86_64-linux-gnu/apptainer/bin"
    copy = f"cp {folder}/starter {folder}/starter-suid; chmod 755 {folder}/starter-suid"
    return on_one_node(cluster, copy, f"rm {folder}/starter-suid")


def rccl(log: str) -> Callable[[Cluster], AbstractContextManager[None]]:
    """Let the image's PyTorch have a RCCL that writes the log of `log`, and that of sockets where NCCL_NET says so.

    There is no GPU here: a few lines of Python stand for PyTorch, and everything around them is real.
    """

    @contextmanager
    def played(cluster: Cluster) -> Iterator[None]:
        place = cluster.shared / "scratch/rccl"
        shutil.copytree(SCRIPTS / "rccl", place)
        for name, source in (("log", log), ("log-of-sockets", "without-plugin")):
            for rank in (0, 1):
                (place / f"{name}.{rank}").write_text("".join(f"{line}\n" for line in LOGS[source].rank_lines(rank)))
        try:
            with set_by_site(cluster, "export SINGULARITYENV_PYTHONPATH=/scratch/rccl"):
                yield
        finally:
            shutil.rmtree(place)

    return played


# ---- the table


@dataclass(frozen=True)
class Planted:
    """A fault, what is run, and the gates that must fail, each with its code and values; no others may."""

    name: str
    fault: Callable[[Cluster], AbstractContextManager[None]]
    words: str
    named: dict[str, tuple[str, dict[str, object]]] = field(default_factory=dict)
    site: str = "twin"
    code: int = 1


PLANTED = [
    Planted(
        "management-network",
        module_of_another_network,
        "--probe transport",
        {
            "node": ("node-check", {"cause": "release-edited"}),
            "transport": ("transport-wrong-network", {"subject": "nid000001"}),
        },
    ),
    Planted("rccl-with-plugin", rccl_with_plugin, f"--probe transport {SMALL}", {}, "/scratch/nccl.yaml"),
    Planted(
        "rccl-without-plugin",
        rccl("without-plugin"),
        f"--probe transport {SMALL}",
        {"transport": ("transport-wrong-network", {})},
        "/scratch/nccl.yaml",
    ),
    # Three faults at once, twice: each is named by its own gate.
    Planted(
        "environment-of-a-user",
        environment_of_a_user,
        f"--probe environment {SMALL}",
        {
            "affinity": ("mask-wrong", {}),
            "miopen": ("directory-unfit", {"subject": "MIOPEN_USER_DB_PATH", "ranks": "0-3"}),
            "usersite": ("packages-hidden", {"ranks": "0-3"}),
        },
        "/scratch/two-ranks.yaml",
    ),
    Planted(
        "environment-of-a-site",
        environment_of_a_site,
        f"--probe environment {SMALL}",
        {
            "limits": ("limit-lower", {"subject": "open files"}),
            "binds": ("bind-not-in-container", {"subject": "/var/spool/slurmd"}),
            "miopen": ("directory-unfit", {"subject": f"{PRIVATE}/miopen"}),
        },
    ),
    Planted(
        "one-rank-per-node",
        one_rank_per_node,
        "--probe communicators",
        {"communicators": ("ranks-count", {})},
        "/scratch/two-ranks.yaml",
    ),
    Planted(
        "image-missing",
        lambda _: nullcontext(),
        "--probe environment --image /appl/images/none.sif",
        {"environment": ("record-missing", {"subject": "container", "ranks": "0-1"})},
    ),
    Planted(
        "ports-held",
        ports_held,
        "--probe communicators --probe ddp",
        {
            "node": ("port-in-use", {}),
            "communicators": ("step-skipped", {"cause": "port-in-use", "of": ("nid000001",)}),
            "ddp": ("step-skipped", {"cause": "port-in-use", "of": ("nid000001",)}),
        },
        code=5,
    ),
    Planted(
        "user-unknown", user_unknown, f"--probe environment {SMALL}", {"environment": ("start-failed", {})}, code=5
    ),
    Planted(
        "starter-without-setuid",
        starter_without_setuid,
        f"--probe environment {SMALL}",
        {"environment": ("start-failed", {})},
        code=5,
    ),
    Planted(
        "clean-environment",
        lambda cluster: set_by_site(cluster, f"export APPTAINER_CLEANENV=1 SINGULARITY_BIND={FRAMEWORK}"),
        f"--probe environment {SMALL}",
        {"environment": ("environment-cleaned", {})},
    ),
]


@pytest.mark.parametrize("planted", PLANTED, ids=[one.name for one in PLANTED])
def test_a_planted_fault_is_named_by_the_right_probe(site: Cluster, planted: Planted) -> None:
    run = f"/scratch/{planted.name}"
    with planted.fault(site):
        done = site.run(f"{LUMISITE} validate --site {planted.site} --jobs 1 --out {run} {planted.words}")
    lines = lines_of(site.shared / run[1:] / SAMPLES)
    failed = {line.gate: line for line in lines if isinstance(line, Gate) and line.verdict != "pass"}
    assert failed.keys() == planted.named.keys(), done.stdout + done.stderr
    for gate, (code, values) in planted.named.items():
        assert failed[gate].code == code
        assert values.items() <= failed[gate].values.items()
        state = r"inconclusive \(follows\)" if code == "step-skipped" else "(fail|bad-nodes)"
        assert re.search(rf"^  (\S+, )*{gate}(, \S+)* +{state}  ", done.stdout, re.MULTILINE), done.stdout
    assert done.code == (planted.code if planted.named else 0)


def test_the_logs_of_that_job_say_the_same_by_themselves(site: Cluster) -> None:
    (folder,) = (site.shared / "scratch/rccl-without-plugin/jobs").glob("*/transport-2n/records")
    logs = " ".join(f"/{path.relative_to(site.shared)}" for path in sorted(folder.glob("*.log.*")))
    done = site.run(f"{LUMISITE} transport {logs} --expect tcp --nics 4 --json")
    assert done.code == 1
    assert '"plugin_in_use": "no"' in done.stdout
