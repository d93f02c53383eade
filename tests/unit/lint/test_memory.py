"""Memory that a script asks for."""

from __future__ import annotations

import pytest

from tests.support.linted import found


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
        ("-p standard-g -N 2 --gpus-per-node=8 --mem-per-gpu=64G", "memory-of-node"),
        ("-p standard-g -N 1 --ntasks-per-node=8 -c 7 --mem-per-cpu=9G", "memory-of-node"),
    ],
)
def test_memory(options: str, rule: str | None) -> None:
    bad = [one for one in found(f"#!/bin/bash\n#SBATCH {options}\nsrun ./x\n") if "memory" in one]
    assert bad == ([f"2 {rule}"] if rule else [])


def test_steps_share_what_their_job_has() -> None:
    job = "#SBATCH -p small-g -N 1 --gpus-per-node=8 --mem=480G\n"
    assert found(f"{job}srun -n 1 --gpus=1 --mem=120G ./x\n") == []
    assert found(f"{job}srun -n 1 --gpus=1 --mem=500G ./x\n") == ["2 memory-of-node"]
    assert found("srun -p small-g -N 1 --gpus=1 --mem=120G ./x\n") == ["1 memory-of-others"]
