"""Lines of correct job scripts that were reported once, and sites whose description says less."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lumisite.site.model import Site
from tests.support.linted import LUMI, found
from tests.unit.lint.test_lines import SIF, TASKS, lines


@pytest.mark.parametrize(
    "text",
    [
        '#SBATCH --comment="time=3 nodes=2"\nsrun ./app',
        "#SBATCH --job-name='bert -N 4 # of 8'\nsrun ./app",
        "#SBATCH --comment group=2\nsrun ./app",
        "#SBATCH --gres-flags=disable-binding\n#SBATCH --gres-flags=one-task-per-sharing\nsrun ./app",
        "#SBATCH --tres-bind=gres/gpu:none\nsrun --het-group=0 ./app",
        "srun singularity run $SIF python train.py --strategy deepspeed",
        "srun singularity run $SIF python -u -m lightning fit --strategy deepspeed",
        "srun singularity run $SIF python train.py --launcher torchrun --nnodes 1",
        "srun singularity run $SIF python bench.py --rocm",
        "if command -v nvidia-smi; then nvidia-smi; fi\nsrun ./app",
    ],
)
def test_a_correct_line_is_not_reported(text: str) -> None:
    assert lines(TASKS, text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#SBATCH --het-group=0\nsrun ./app", ["1 unknown-directive"]),
        ("srun singularity run --bind /x --rocm $SIF python bench.py", ["1 gpu-flag"]),
        ("srun singularity run --unknown-to-us --rocm $SIF python bench.py", ["1 gpu-flag"]),
        (
            "srun singularity run $SIF python -m torch.distributed.run --nnodes=1 --nproc_per_node=1 t.py",
            ["1 launcher-nodes"],
        ),
    ],
)
def test_what_is_like_it_is_reported_still(text: str, expected: list[str]) -> None:
    assert lines(TASKS, text) == expected


def with_kind(**changed: Any) -> Site:
    """LUMI with another description of its GPU nodes."""
    return replace(LUMI, node_kinds={**LUMI.node_kinds, "lumi-g": replace(LUMI.node_kinds["lumi-g"], **changed)})


def test_nodes_whose_cores_are_not_described_have_no_limit_of_cores() -> None:
    text = (
        TASKS.replace("standard-g", "small-g") + f"export MASTER_PORT=29500\nsrun singularity run {SIF} python t.py\n"
    )
    assert found(text, with_kind(l3=(), gpus=())) == found(text, with_kind(l3=())) == ["6 fixed-port"]
