"""What a job asks for: nodes, tasks, cores, memory and ports, and the CPUs that srun binds."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from lumisite.site.versions import parse_version
from tests.support.linted import LUMI, found


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        # more than goes with the GPUs, where others are on the node
        ("-p small-g -N 1 --gpus-per-node=1 --mem=64G", "memory-of-others"),
        ("-p dev-g -N 2 --gpus-per-node=mi250:2 --mem=480G", "memory-of-others"),
        ("-p small-g -N 1 -n 1 -c 14 --gpus=1 --mem-per-cpu=8G", "memory-of-others"),
        ("-p small-g -N 1 --gpus-per-node=1 --mem=60G", None),
        ("-p small-g -N 1 --gpus-per-node=1 --mem=0", None),
        ("-p small-g -N 1 --gpus-per-node=1 --mem=480G --exclusive", None),
        ("-p small-g -N 1 -n 1 -c 7 --gpus=1 --mem-per-cpu=8G", None),
        ("-p standard-g -N 1 --gpus-per-node=1 --mem=480G", None),
        # more than a node has
        ("-p standard-g -N 1 --mem=512G", "memory-of-node"),
        ("-p standard-g -N 1 --ntasks-per-node=8 -c 7 --mem-per-cpu=9G", "memory-of-node"),
    ],
)
def test_memory(options: str, rule: str | None) -> None:
    assert found(f"#!/bin/bash\n#SBATCH {options}\nsrun ./x\n") == ([f"2 {rule}"] if rule else [])


def test_steps_share_what_their_job_has() -> None:
    job = "#SBATCH -p small-g -N 1 --gpus-per-node=8 --mem=480G\n"
    assert found(f"{job}srun -n 1 --gpus=1 --mem=120G ./x\n") == []
    assert found(f"{job}srun -n 1 --gpus=1 --mem=500G ./x\n") == ["2 memory-of-node"]
    assert found("srun -p small-g -N 1 --gpus=1 --mem=120G ./x\n") == ["1 memory-of-others"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#SBATCH -p small-g -N 1 -n 8 -c 7\n#SBATCH hetjob\n#SBATCH -p small -N 1 -n 8 -c 16\n", []),
        ("#SBATCH -p small\n#SBATCH hetjob\n#SBATCH -p dev-g\nsrun -n 8 -N 1 --gpus-per-task=1 b\n", []),
        (
            "#SBATCH -p small\n#SBATCH hetjob\n#SBATCH -p dev-g\nsrun -p dev-g -n 8 --gpus-per-task=1 b\n",
            ["4 missing-partner"],
        ),
        ("#SBATCH -p standard-g,small-g -N 1 -n 8 -c 8\n", ["1 too-many-cores"]),
        ("#SBATCH -p standard-g,unknown -N 1 -n 8 -c 8\n", []),
        ("#SBATCH -p standard-g -N 1 --gpus-per-node=8 --cpus-per-gpu=8\n", ["1 too-many-cores"]),
    ],
)
def test_several_components_and_partitions(text: str, expected: list[str]) -> None:
    assert found(text) == expected


def cpus(options: str, cpu: Literal["core", "thread"]) -> list[str]:
    kind = replace(LUMI.node_kinds["lumi-g"], reserved=None, cpu=cpu)
    site = replace(LUMI, node_kinds={**LUMI.node_kinds, "lumi-g": kind})
    return found(f"#SBATCH -p standard-g -N 1 --ntasks-per-node=4 {options}\n", site)


def test_cores_are_counted_in_the_unit_of_the_sites_slurm() -> None:
    assert cpus("-c 32", "thread") == cpus("-c 16", "core") == []
    assert cpus("-c 32", "core") == cpus("-c 33", "thread") == ["1 too-many-cores"]
    assert cpus("-c 32 --hint=multithread", "core") == []
    assert cpus("-c 32 --threads-per-core=1", "thread") == ["1 too-many-cores"]


def test_nodes_whose_cores_are_not_described_have_no_limit_of_cores() -> None:
    text = "#SBATCH -p small-g --gpus-per-node=1 --ntasks=1 -c 700\nsrun python t.py\n"
    kind = replace(LUMI.node_kinds["lumi-g"], l3=(), gpus=())
    assert found(text) == ["1 too-many-cores"]
    assert found(text, replace(LUMI, node_kinds={**LUMI.node_kinds, "lumi-g": kind})) == []


def test_srun_takes_cpus_over_where_the_sites_slurm_lets_it() -> None:
    text = "#SBATCH -p standard-g -N 1 -n 8 -c 7\nsrun ./app\nsrun -c 7 ./app\n"
    platform = replace(LUMI.platforms[LUMI.platform], slurm=parse_version("22.05.8"))
    old = replace(LUMI, platforms={**LUMI.platforms, LUMI.platform: platform})
    assert found(text) == []
    assert found(text, old) == ["2 srun-without-cpus"]
    assert found(f"{text.splitlines()[0]}\nexport SRUN_CPUS_PER_TASK=7\nsrun ./app\n", old) == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("export MASTER_PORT=${MASTER_PORT:-29400}", 1),
        (': "${MASTER_PORT:=29400}"', 1),
        ('torchrun --rdzv-endpoint="$HOST:29400" x', 1),
        ("accelerate launch --main_process_port 29400 x", 1),
        ("P=4000; Q=$P; export MASTER_PORT=${Q}", 1),
        ("torchrun --master_port 0 --rdzv-endpoint=localhost:0 x", 0),
        ("export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))", 0),
        ("P=4000; P=$((P + 1)); export MASTER_PORT=$P", 0),
    ],
)
def test_ports_of_nodes_that_jobs_share(line: str, expected: int) -> None:
    assert found(f"#SBATCH -p small-g -N 1\n{line}\n") == ["2 fixed-port"] * expected
    assert "2 fixed-port" not in found(f"#SBATCH -p standard-g -N 2\n{line}\n")


@pytest.mark.parametrize("head", ["#SBATCH -p batch\n", "#SBATCH --partition=booster --gres=gpu:4\n"])
def test_the_machine_of_another_site_is_not_this_one(head: str) -> None:
    body = (
        "#SBATCH --ntasks-per-node=8 -c 16 --gpus-per-task=1 --gpu-bind=closest\nexport MASTER_PORT=29500 CXI_FORK_SAFE=1\n"
        "export LD_LIBRARY_PATH=/opt/cray/libfabric/2.3.1/lib64\nsrun -c 16 --cpu-bind=map_cpu:1,2 ./app\n"
    )
    assert found(head + body) == []
    assert found("#SBATCH -p <partition>\n" + body) != []
