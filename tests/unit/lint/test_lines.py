"""Lines of users' scripts in jobs that would be right without them: what is found in them, and what is not."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from lumisite.lint.script import read_commands, with_lines
from tests.support.linted import LUMI, found

_HEAD = "#!/bin/bash\n#SBATCH -A project_462000123\n#SBATCH -p {}\n#SBATCH -t 02:00:00\n#SBATCH {}\n"
#: Eight tasks on each of two nodes or on one, one task on each of two nodes, and one GPU of a node.
TASKS = _HEAD.format("standard-g", "-N 2 --ntasks-per-node=8 --gpus-per-node=8 -c 7")
NODE = _HEAD.format("standard-g", "-N 1 --ntasks-per-node=8 --gpus-per-node=8 -c 7")
NODES = _HEAD.format("standard-g", "-N 2 --ntasks-per-node=1 --gpus-per-node=8 -c 56")
PART = _HEAD.format("small-g", "--gpus-per-node=1 --ntasks=1 --cpus-per-task=7 --mem=60G")
SIF = "/appl/local/laifs/containers/lumi-multitorch-latest.sif"


def lines(head: str, text: str) -> list[str]:
    """Return what is found in a text that is a part of a job, by the lines of that text."""
    before = head.count("\n")
    bad = (one.split() for one in found(head + text.replace("$SIF", SIF) + "\n"))
    return [f"{int(number) - before} {code}" for number, code in bad]


@pytest.mark.parametrize(
    ("head", "text", "expected"),
    [
        (
            TASKS,
            'srun singularity run $SIF bash -c "ROCR_VISIBLE_DEVICES=$SLURM_LOCALID python train.py"',
            ["1 rank-in-batch"],
        ),
        (
            TASKS,
            "srun bash <<EOF\nexport RANK=\\$SLURM_PROCID\nexport LOCAL_RANK=$SLURM_LOCALID\npython train.py\nEOF",
            ["3 rank-in-batch"],
        ),
        (
            TASKS,
            'tee wrap.sh <<EOF\n#!/bin/bash\nif [ $SLURM_LOCALID -eq 0 ]; then mkdir -p /tmp/x; fi\nexec "\\$@"\nEOF\nsrun bash wrap.sh ./app',
            ["3 rank-in-batch"],
        ),
        (
            NODES,
            "srun singularity run $SIF bash -c 'export MASTER_ADDR=$(hostname); torchrun --nnodes=2 --nproc_per_node=8 --node_rank=$SLURM_NODEID --master_addr=$MASTER_ADDR --master_port=29500 t.py'",
            ["1 local-master"],
        ),
        (TASKS, "MASTER_ADDR=localhost MASTER_PORT=1234 srun python t.py", ["1 local-master"]),
        (NODES, "srun singularity run $SIF torchrun --nnodes=1 --nproc_per_node=8 t.py", ["1 launcher-nodes"]),
        (
            NODES,
            "srun -N 1 -n 1 singularity run $SIF torchrun --nnodes=$SLURM_NNODES --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:29500 t.py",
            ["1 launcher-nodes"],
        ),
        (PART, "#SBATCH --output=${HOME}/out/%j.log\nsrun x", ["1 directive-variable"]),
        (PART, "#SBATCH --cpu-per-task=7\nsrun x", ["1 unknown-directive"]),
        (TASKS, "export NCCL_NET=IB\nsrun x", ["1 leftover-setting"]),
        (TASKS, "srun --export=ALL,NCCL_P2P_DISABLE=1 python t.py", ["1 leftover-setting"]),
        (TASKS, 'W="bash -c \\"RANK=$SLURM_PROCID python t.py\\""\nsrun $W', ["1 rank-in-batch", "1 rank-in-batch"]),
        (
            NODES,
            "srun torchrun --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=localhost:29500 t.py",
            ["1 local-master"],
        ),
        (PART, "srun x\n#SBATCH --mem=120G", ["2 late-directive"]),
        (TASKS, "#SBATCH --het-group=0\nsrun ./app", ["1 unknown-directive"]),
        (TASKS, "srun singularity run --bind /x --rocm $SIF python bench.py", ["1 gpu-flag"]),
        (
            TASKS,
            "srun singularity run $SIF python -m torch.distributed.run --nnodes=1 --nproc_per_node=1 t.py",
            ["1 launcher-nodes"],
        ),
    ],
)
def test_a_line_that_is_wrong_is_found(head: str, text: str, expected: list[str]) -> None:
    assert lines(head, text) == expected


@pytest.mark.parametrize(
    ("head", "text"),
    [
        (TASKS, "srun bash <<'EOF'\nexport RANK=$SLURM_PROCID\npython train.py\nEOF"),
        (PART, "export RANK=$SLURM_PROCID\nsrun python t.py"),
        (TASKS, 'if [ "$SLURM_PROCID" = 0 ]; then echo start; fi\nsrun python t.py'),
        (TASKS, 'srun bash -c "hostname; echo \\$SLURM_PROCID \\${SLURM_LOCALID}"'),
        (NODE, "export MASTER_ADDR=localhost\nsrun python t.py"),
        (TASKS, "export MASTER_ADDR=$(hostname)\nsrun python t.py"),
        (
            TASKS,
            "srun -n 2 --ntasks-per-node=1 singularity run $SIF torchrun --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:29500 t.py",
        ),
        (NODE, "srun --ntasks-per-node=1 singularity run $SIF torchrun --standalone --nproc_per_node=8 t.py"),
        (NODES, "srun singularity run $SIF accelerate launch --config_file acc.yaml t.py"),
        (
            TASKS,
            "CMD='export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID; python train.py'\nsrun singularity run $SIF bash -c \"$CMD\"",
        ),
        (TASKS, "run() {\n  export RANK=$SLURM_PROCID\n  python t.py\n}\nexport -f run\nsrun bash -c run"),
        (
            TASKS,
            'if [ -z "$IN_TASK" ]; then\n  export IN_TASK=1\n  exec srun bash $0\nfi\nexport RANK=$SLURM_PROCID\npython t.py',
        ),
        (
            NODES,
            "export NODE_RANK=0\nfor n in $(scontrol show hostnames); do\n  srun -N1 -n1 -w $n --export=ALL,NODE_RANK=$NODE_RANK ./node.sh &\n  NODE_RANK=$((NODE_RANK+1))\ndone\nwait",
        ),
        (
            NODES,
            "srun singularity run $SIF torchrun --nnodes=$SLURM_NNODES --nproc_per_node=gpu --rdzv-id=$SLURM_JOB_ID --rdzv-backend=c10d --rdzv-endpoint=$MASTER_ADDR:29500 -m pkg.train",
        ),
        (
            PART,
            "module load LUMI/25.03 partition/G\nmodule load rocm/6.3.4\nexport CUDA_HOME=/nope\nsrun python cuda_free.py --device cuda:0",
        ),
        (TASKS, "export NCCL_DEBUG=INFO NCCL_P2P_LEVEL=SYS FI_PROVIDER=cxi NCCL_NET='AWS Libfabric'\nsrun ./app"),
        (TASKS, '#SBATCH --comment="time=3 nodes=2"\nsrun ./app'),
        (TASKS, "#SBATCH --job-name='bert -N 4 # of 8'\nsrun ./app"),
        (TASKS, "#SBATCH --comment group=2\nsrun ./app"),
        (TASKS, "#SBATCH --gres-flags=disable-binding\n#SBATCH --gres-flags=one-task-per-sharing\nsrun ./app"),
        (TASKS, "srun singularity run $SIF python train.py --strategy deepspeed"),
        (TASKS, "srun singularity run $SIF python train.py --launcher torchrun --nnodes 1"),
        (TASKS, "srun singularity run $SIF python bench.py --rocm"),
        (TASKS, "if command -v nvidia-smi; then nvidia-smi; fi\nsrun ./app"),
    ],
)
def test_a_line_that_is_like_a_wrong_one_is_right(head: str, text: str) -> None:
    assert lines(head, text) == []


def test_a_number_that_nothing_has_is_passed_over() -> None:
    long = "9" * 10_000
    text = f"srun --cpu-bind=map_cpu:{long} torchrun --nnodes={long} t.py"
    assert lines(TASKS, f"#SBATCH --comment={long}\n{text}") == []


def test_the_lines_of_matches_are_those_of_the_text() -> None:
    (command,) = read_commands('echo "a\n$X\n\n$X $X"\n', 7)
    pattern = re.compile(r"\$X")
    assert [line for _, line in command.words[1].matches(pattern)] == [8, 10, 10]
    assert [line for _, line in with_lines(pattern, "$X\n\n$X", 1)] == [1, 3]


def test_nodes_whose_cores_are_not_described_have_no_limit_of_cores() -> None:
    text = PART.replace("=7", "=700") + "srun python t.py\n"
    kind = replace(LUMI.node_kinds["lumi-g"], l3=(), gpus=())
    assert found(text) == ["5 too-many-cores"]
    assert found(text, replace(LUMI, node_kinds={**LUMI.node_kinds, "lumi-g": kind})) == []
