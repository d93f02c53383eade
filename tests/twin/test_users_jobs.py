"""The jobs that users write, with the module loaded: each runs to its end, and has what it should have.

The scripts lie in `tests/data/jobs`. Nothing of them is changed but accounts, paths and counts, by the table below.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lumisite.cli import main
from tests.twin.cluster import Cluster, ClusterPlan, running
from tests.twin.fixtures import require_twin
from tests.twin.helper_site import LOAD, deploy_site
from tests.twin.process import Result
from tests.twin.tykky import write_environment

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.lmod]

JOBS = Path(__file__).parent.parent / "data/jobs"
WORK = "/scratch/jobs"
TORCH, ENVIRONMENT = "/appl/images/torch.sif", "/scratch/tykkyTest/bin"

#: In the texts, and on the twin. No two in one word.
CHANGES = {
    "/scratch/<your-project-number>/tykkyTest/tykkyTest/bin": ENVIRONMENT,
    "/project/<your-project-number>/tykky/pytorch_transformers.sif": TORCH,
    "/appl/local/containers/sif-images/lumi-pytorch.sif": TORCH,
    "/appl/local/containers/sif-images/lumi-jax.sif": "/appl/images/jax.sif",
    "/appl/local/laifs/containers/ray.sif": "/appl/images/ray.sif",
    "/appl/local/training/modules/AI-20241126/": "/appl/lumisite/current/modules",
    "/path/to/venv": f"{WORK}/venv",
    "<your-project-number>": "project_462000000",
    "project_your_project_number": "project_462000000",
    "--cpus-per-task=14": "--cpus-per-task=2",
    "--cpus-per-task=7": "--cpus-per-task=1",
    "=120G": "=100M",
    "=60G": "=100M",
    "train.py 10 2": "train.py 2 2",
    "train.py 50 10": "train.py 2 2",
}


@pytest.fixture(scope="module")
def site() -> Iterator[Cluster]:
    """A cluster with the site deployed, and the users' files on /scratch."""
    require_twin()
    with running(ClusterPlan(images=("small", "torch", "jax", "ray"), cpus=8)) as cluster:
        deploy_site(cluster)
        work = cluster.shared / WORK.removeprefix("/")
        work.mkdir()
        work.chmod(0o1777)
        for path in JOBS.glob("*.py"):
            shutil.copy(path, work)
        write_environment(cluster.shared / "scratch/tykkyTest", TORCH)
        with zipfile.ZipFile(work / "hello_from_the_venv-1-py3-none-any.whl", "w") as wheel:
            folder = "hello_from_the_venv-1.dist-info"
            wheel.writestr("hello_from_the_venv.py", "")
            wheel.writestr(f"{folder}/METADATA", "Metadata-Version: 2.1\nName: hello_from_the_venv\nVersion: 1\n")
            wheel.writestr(f"{folder}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{folder}/RECORD", "")
        yield cluster


WAIT = "while squeue -h -j $id | grep -q .; do sleep 0.5; done; scontrol show job $id"


@dataclass(frozen=True)
class Ran:
    """What a job's ranks told, in their order, and all that it wrote."""

    ranks: list[dict[str, Any]]
    text: str

    @property
    def nodes(self) -> list[str]:
        return [rank["node"] for rank in self.ranks]


def changed(name: str, more: Mapping[str, str] = {}) -> str:
    """Give a user's script for the twin."""
    text = (JOBS / name).read_text()
    for old, new in {**CHANGES, **more}.items():
        text = text.replace(old, new)
    return text


def told(done: Result | str) -> Ran:
    text = done if isinstance(done, str) else done.check().stdout
    # Two tasks may write on one line.
    found = [json.JSONDecoder().raw_decode(one)[0] for one in text.split("RAN ")[1:]]
    return Ran(sorted(found, key=lambda one: int(one.get("rank", 0))), text)


def submit(cluster: Cluster, name: str, before: str = "", more: Mapping[str, str] = {}) -> Ran:
    """Submit a script from a shell with the module loaded, and wait for its end."""
    (cluster.shared / f"scratch/jobs/{name}").write_text(changed(name, more))
    # sbatch --wait looks again after half a minute.
    words = f"cd {WORK}; {LOAD}; id=$({before} sbatch --parsable -o {name}.out {name}) && {WAIT}"
    done = cluster.run(words)
    text = (cluster.shared / f"scratch/jobs/{name}.out").read_text()
    assert "ExitCode=0:0" in done.stdout, f"{text[-3000:]}{done.stderr}"
    return told(text)


BINDS = ["/scratch", "/project", "/opt/cray", "/usr/lib64/libcxi.so.1"]
IN_STEP = [*BINDS, "/var/spool/slurmd"]


def has_all(ran: Ran, nodes: int = 2, each: int = 2) -> None:
    """What ranks of a job on several nodes have: they met, and each has its binds and settings."""
    assert [rank["ranks"] for rank in ran.ranks] == [nodes * each] * (nodes * each)
    assert len(set(ran.nodes)) == nodes
    for rank in ran.ranks:
        assert set(IN_STEP) < set(rank["places"])
        assert rank["environment"]["GLOO_SOCKET_IFNAME"] == "hsn0"
        assert rank["environment"]["PYTHONNOUSERSITE"] == "1"


# ---- how ranks find each other, with nothing set by the user


@pytest.mark.parametrize(
    ("launcher", "each"), [("ranks", 2), ("static", 1), pytest.param("c10d", 1, marks=pytest.mark.measures)]
)
def test_every_way_to_start_ranks_finds_the_first_node(site: Cluster, launcher: str, each: int) -> None:
    """Ranks that torchrun starts are one on each node, since each of its own takes as long to start as a rank."""
    ran = submit(site, f"launch-{launcher}.sh", more={"nproc_per_node=2": f"nproc_per_node={each}"})
    has_all(ran, each=each)
    for rank in ran.ranks:
        assert rank["environment"]["CONDA_PREFIX"] == "/opt/miniconda3/envs/pytorch"
        assert rank["environment"]["MASTER_ADDR"] == f"{site.nodes[0]}-hsn0"


@pytest.mark.measures
def test_ray_spreads_over_both_nodes(site: Cluster) -> None:
    (ran,) = submit(site, "launch-ray.sh").ranks
    assert ran == {"ran": list(site.nodes), "alive": 2}


# ---- the container wrapper's texts


def test_tykky_on_one_gpu_without_any_module(site: Cluster) -> None:
    ran = submit(site, "tykky-one-gpu.sh")
    assert f"Python path: {ENVIRONMENT}/python" in ran.text
    (rank,) = ran.ranks
    assert "GLOO_SOCKET_IFNAME" not in rank["environment"]  # `module purge` took the helper away


def test_a_container_on_one_gpu_with_the_modules_of_binds(site: Cluster) -> None:
    # cotainr puts the environment of its images on PATH; this image has one as LUMI's own have.
    before = "SINGULARITYENV_PREPEND_PATH=/opt/miniconda3/envs/pytorch/bin"
    (rank,) = submit(site, "container-one-gpu.sh", before).ranks
    assert rank["places"] == [*BINDS, "/.singularity.d"]


@pytest.mark.measures
def test_tykky_on_one_node(site: Cluster) -> None:
    ran = submit(site, "tykky-one-node.sh")
    assert [rank["ranks"] for rank in ran.ranks] == [2, 2]
    assert ran.ranks[0]["environment"]["GLOO_SOCKET_IFNAME"] == "hsn0"


def test_tykky_on_two_nodes_keeps_its_own_setting_which_lint_names(
    site: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = submit(site, "tykky-two-nodes.sh", more={"gpus-per-node=2": "gpus-per-node=1"})
    assert [rank["ranks"] for rank in ran.ranks] == [2] * 2
    assert len(set(ran.nodes)) == 2
    for rank in ran.ranks:
        assert rank["environment"]["NCCL_NET_GDR_LEVEL"] == "PHB"
    assert "lumisite" not in ran.text
    script = tmp_path / "start.sh"
    script.write_text((JOBS / "tykky-two-nodes.sh").read_text())
    assert main(["lint", "--site", "lumi", str(script)]) == 0  # the script does not say which ROCm its environment has
    assert "hint: value-may-harm NCCL_NET_GDR_LEVEL=PHB" in capsys.readouterr().out


# ---- JAX's texts


@pytest.fixture(scope="module")
def venv(site: Cluster) -> None:
    """A venv on top of the image's Python, made as the text says."""
    inside = f"""$WITH_CONDA
python3 -m venv {WORK}/venv --system-site-packages
source {WORK}/venv/bin/activate
pip install --no-index {WORK}/hello_from_the_venv-1-py3-none-any.whl
"""
    load = LOAD.replace("singularity-AI-bindings", "singularity-userfilesystems")
    site.run(f"{load}; singularity --quiet shell {TORCH}", stdin=inside).check()


#: Without an epoch to train, PyTorch is not imported.
IN_VENV = f'bash -c "\\$WITH_CONDA; source {WORK}/venv/bin/activate; python3 {WORK}/train.py 0 0"'


def in_venv(ran: Ran) -> None:
    (rank,) = ran.ranks
    assert rank["environment"]["CONDA_PREFIX"] == "/opt/miniconda3/envs/pytorch"
    assert rank["python"] == f"{WORK}/venv/bin/python3"
    assert rank["venv"].startswith(f"{WORK}/venv/lib/")
    assert set(IN_STEP) < set(rank["places"])


@pytest.mark.usefixtures("venv")
def test_a_venv_on_top_of_the_images_python(site: Cluster) -> None:
    in_venv(submit(site, "torch-conda.sh"))


@pytest.mark.usefixtures("venv")
def test_the_same_by_srun_alone_and_in_an_allocation(site: Cluster) -> None:
    asked = "--account=project_462000000 --partition=small-g --nodes=1"
    in_venv(told(site.run(f"{LOAD}; srun {asked} --gpus=1 --time=05:00 singularity exec {TORCH} {IN_VENV}")))
    (site.shared / "scratch/jobs/step.sh").write_text(f"srun singularity exec {TORCH} {IN_VENV}\n")
    in_venv(told(site.run(f"{LOAD}; salloc --quiet {asked} --gpus=8 --time=10:00 sh {WORK}/step.sh")))


def test_jax_tasks_of_a_node(site: Cluster) -> None:
    ran = submit(site, "jax-eight-tasks.sh", more={"nodes=2": "nodes=1", "tasks-per-node=8": "tasks-per-node=4"})
    assert [rank["rank"] for rank in ran.ranks] == list(range(4))
    assert {rank["ranks"] for rank in ran.ranks} == {4}
