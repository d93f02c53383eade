"""Pieces of jobs that are wrong, beside pieces that are like them and right: Slurm, the shell, launchers and modules."""

from __future__ import annotations

import pytest

from lumisite.findings.finding import Severity
from lumisite.lint.rule_table import lint_job, read_script
from tests.support.linted import LUMI, found

_HEAD = "#!/bin/bash\n#SBATCH -p {}\n#SBATCH {}\n"
#: Eight tasks on each of two nodes or on one, one task on each of two nodes, and one GPU of a node.
TASKS = _HEAD.format("standard-g", "-N 2 --ntasks-per-node=8 --gpus-per-node=8 -c 7")
NODE = _HEAD.format("standard-g", "-N 1 --ntasks-per-node=8 --gpus-per-node=8 -c 7")
NODES = _HEAD.format("standard-g", "-N 2 --ntasks-per-node=1 --gpus-per-node=8 -c 56")
PART = _HEAD.format("small-g", "--gpus-per-node=1 --ntasks=1 --cpus-per-task=7 --mem=60G")
SIF = "/appl/local/laifs/containers/lumi-multitorch-latest.sif"
RDZV = "--rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:29500"


def lines(head: str, text: str) -> list[str]:
    """Return what is found in a text that is a part of a job, by the lines of that text."""
    before = head.count("\n")
    bad = (one.split() for one in found(head + text.replace("$SIF", SIF) + "\n"))
    return [f"{int(number) - before} {code}" for number, code in bad]


# ---------------------------------------------------------------- directives and options


@pytest.mark.parametrize(
    ("head", "text", "expected"),
    [
        (TASKS, "# SBATCH --time=1:00\nsrun ./app", ["1 commented-directive"]),
        (TASKS, "##SBATCH --time=1:00\nsrun ./app", []),
        (TASKS, "srun --gpus-per-tasks=1 ./app", ["1 unknown-option"]),
        (TASKS, "srun --array=1-4 ./app", ["1 unknown-option"]),
        (TASKS, "srun --kill-on-bad=1 --cpu_bind=cores -lu ./app --gpus-per-tasks=1", []),
        (TASKS, "#SBATCH --cpu-bind=cores\nsrun ./app", ["1 unknown-directive"]),
        (TASKS, "#SBATCH --het-group=0\nsrun ./app", ["1 unknown-directive"]),
        (PART, "#SBATCH --cpu-per-task=7\nsrun x", ["1 unknown-directive"]),
        ("#SBATCH -p booster --uenv=x --container-image=y\n", "srun --environment=z ./app", []),
        (TASKS, "#SBATCH --mem=8G --mem-per-cpu=1G\nsrun ./app", ["1 options-exclude-each-other"]),
        (TASKS, "#SBATCH --ntasks=32\nsrun ./app", ["1 too-many-tasks"]),
        (TASKS, "#SBATCH -n 12\nsrun ./app", ["1 fewer-tasks"]),
        (TASKS, "#SBATCH -n 16\nsrun ./app", []),
        (TASKS, "#SBATCH --array=1-4 -o %x-%A_%3a.out\nsrun ./app", []),
        (TASKS, "srun --export=MY_VAR=1 ./app", ["1 export-without-all"]),
        (TASKS, "#SBATCH --export=NONE\nmodule load LUMI\nsrun ./app", ["1 export-none"]),
        (TASKS, "#SBATCH --export=NONE\nunset SLURM_EXPORT_ENV\nsrun ./app", []),
        (PART, "#SBATCH --output=${HOME}/out/%j.log\nsrun x", ["1 directive-variable"]),
        (PART, "srun x\n#SBATCH --mem=120G", ["2 late-directive"]),
        (TASKS, '#SBATCH --comment="time=3 nodes=2"\nsrun ./app', []),
        (TASKS, "#SBATCH --job-name='bert -N 4 # of 8'\nsrun ./app", []),
        (TASKS, "#SBATCH --comment group=2\nsrun ./app", []),
        (TASKS, "#SBATCH --gres-flags=disable-binding\n#SBATCH --gres-flags=one-task-per-sharing\nsrun ./app", []),
        (TASKS, f"#SBATCH --comment={'9' * 10_000}\nsrun --cpu-bind=map_cpu:{'9' * 10_000} x", []),
    ],
)
def test_directives_and_options(head: str, text: str, expected: list[str]) -> None:
    assert lines(head, text) == expected


@pytest.mark.parametrize(
    ("head", "text", "expected"),
    [
        (TASKS, "srun -l \\ \n  ./app", ["1 text-after-continuation"]),
        (TASKS, "for i in 1 2; do\n  srun -n 8 -N 1 ./app $i &\ndone", ["2 background-without-wait"]),
        (TASKS, "for i in 1 2; do\n  srun -n 8 -N 1 ./app $i &\ndone\nwait", []),
        (TASKS, "srun -n 1 -N 1 ./server &\nsleep 30\nsrun -n 1 -N 1 ./client", []),
        (TASKS, "start() {\n  srun -N 1 ./app &\n}\nstart; start\nwait", []),
        # jobs that a script writes or submits are scripts of their own
        ("sbatch <<'EOF'\n", "#!/bin/bash\n#SBATCH -p dev-g\n#SBATCH -n 8 -N 1 -c 8\nsrun x\nEOF", []),
        (
            PART,
            "cat > j <<'EOF'\n#SBATCH -p standard-g\nexport MASTER_PORT=1\nEOF\nsrun --array=1 x",
            ["5 unknown-option"],
        ),
        ("", "sbatch -p small-g --wrap='MASTER_PORT=4000 python x'", []),
        # what is in variables and after reserved words
        (TASKS, 'S="srun -N 2 \\\n  --gpus-per-task=1"\n$S x', ["1 missing-partner"]),
        (TASKS, "O='--mpi=pmi2 --gpus-per-task=1'\nsrun \"$O\" x", []),
        (PART, 'A=(--master_port=4000)\ntorchrun "${A[@]}" x', ["1 fixed-port"]),
        (TASKS, "if true; then srun --gpus-per-task=1 x; fi", ["1 missing-partner"]),
        (TASKS, "echo srun --gpus-per-task=1 x\ncommand -v srun", []),
        (PART, "A0=xxxx\n" + "".join(f"A{n + 1}=$A{n}$A{n}\n" for n in range(60)) + "true $A60", []),
        (TASKS, "if command -v nvidia-smi; then nvidia-smi; fi\nsrun ./app", []),
        ("", "$(" * 20_000, []),
        ("", "A=(" + "$(" * 20_000, []),
    ],
)
def test_what_the_shell_does(head: str, text: str, expected: list[str]) -> None:
    assert lines(head, text) == expected


# ---------------------------------------------------------------- ranks and launchers


@pytest.mark.parametrize(
    ("head", "text", "expected"),
    [
        (TASKS, 'srun $SIF bash -c "ROCR_VISIBLE_DEVICES=$SLURM_LOCALID python t.py"', ["1 rank-in-batch"]),
        (
            TASKS,
            "srun bash <<EOF\nexport RANK=\\$SLURM_PROCID\nexport LOCAL_RANK=$SLURM_LOCALID\npython train.py\nEOF",
            ["3 rank-in-batch"],
        ),
        (
            TASKS,
            'tee wrap.sh <<EOF\n#!/bin/bash\nif [ $SLURM_LOCALID -eq 0 ]; then x; fi\nexec "\\$@"\nEOF\nsrun wrap.sh ./app',
            ["3 rank-in-batch"],
        ),
        (TASKS, 'W="bash -c \\"RANK=$SLURM_PROCID python t.py\\""\nsrun $W', ["1 rank-in-batch", "1 rank-in-batch"]),
        (TASKS, "srun bash <<'EOF'\nexport RANK=$SLURM_PROCID\npython train.py\nEOF", []),
        (PART, "export RANK=$SLURM_PROCID\nsrun python t.py", []),
        (TASKS, 'if [ "$SLURM_PROCID" = 0 ]; then echo start; fi\nsrun python t.py', []),
        (TASKS, 'srun bash -c "hostname; echo \\$SLURM_PROCID \\${SLURM_LOCALID}"', []),
        (TASKS, "C='export RANK=$SLURM_PROCID; python t.py'\nsrun singularity run $SIF bash -c \"$C\"", []),
        (TASKS, "run() {\n  export RANK=$SLURM_PROCID\n  python t.py\n}\nexport -f run\nsrun bash -c run", []),
        (
            TASKS,
            'if [ -z "$IN_TASK" ]; then\n  export IN_TASK=1\n  exec srun bash $0\nfi\nexport RANK=$SLURM_PROCID\npython t.py',
            [],
        ),
        (
            NODES,
            "export NODE_RANK=0\nfor n in $(scontrol show hostnames); do\n  srun -N1 -n1 -w $n --export=ALL,NODE_RANK=$NODE_RANK ./node.sh &\n  NODE_RANK=$((NODE_RANK+1))\ndone\nwait",
            [],
        ),
    ],
)
def test_ranks(head: str, text: str, expected: list[str]) -> None:
    assert lines(head, text) == expected


@pytest.mark.parametrize(
    ("head", "text", "expected"),
    [
        (
            NODES,
            "srun singularity run $SIF bash -c 'export MASTER_ADDR=$(hostname); torchrun t.py'",
            ["1 local-master"],
        ),
        (TASKS, "MASTER_ADDR=localhost MASTER_PORT=1234 srun python t.py", ["1 local-master"]),
        (
            NODES,
            "srun torchrun --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=localhost:29500 t.py",
            ["1 local-master"],
        ),
        (NODE, "export MASTER_ADDR=localhost\nsrun python t.py", []),
        (TASKS, "export MASTER_ADDR=$(hostname)\nsrun python t.py", []),
        (NODES, "export MASTER_ADDR=$(echo $SLURM_NODELIST | cut -d, -f1)", ["1 nodelist"]),
        (NODE, "export MASTER_ADDR=$(echo $SLURM_NODELIST | cut -d, -f1)", []),
        (
            NODES,
            'H="nid$(echo $SLURM_STEP_NODELIST | grep -Eo [0-9]+ | head -n 1)"\ntorchrun --rdzv_endpoint=$H:$PORT x',
            ["1 nodelist"],
        ),
        (NODES, 'H="nid$(echo $SLURM_STEP_NODELIST | grep -Eo [0-9]+ | head -n 1)"\necho $H', []),
        (NODES, "srun singularity run $SIF torchrun --nnodes=1 --nproc_per_node=8 t.py", ["1 launcher-nodes"]),
        (NODES, f"srun -N 1 -n 1 torchrun --nnodes=$SLURM_NNODES --nproc_per_node=8 {RDZV} t.py", ["1 launcher-nodes"]),
        (TASKS, "srun python -m torch.distributed.run --nnodes=1 --nproc_per_node=1 t.py", ["1 launcher-nodes"]),
        (TASKS, f"srun -n 2 --ntasks-per-node=1 torchrun --nnodes=2 --nproc_per_node=8 {RDZV} t.py", []),
        (NODE, "srun --ntasks-per-node=1 singularity run $SIF torchrun --standalone --nproc_per_node=8 t.py", []),
        (NODES, f"srun torchrun --nnodes=$SLURM_NNODES --nproc_per_node=gpu {RDZV} -m pkg.train", []),
        (NODES, "srun singularity run $SIF accelerate launch --config_file acc.yaml t.py", []),
        (TASKS, "srun singularity run $SIF python train.py --launcher torchrun --nnodes 1", []),
        (NODES, f"torchrun --nnodes=2 --nproc_per_node=8 {RDZV} t.py", ["1 launcher-without-srun"]),
        (NODES, "torchrun --standalone --nproc_per_node=8 t.py", []),
        (TASKS, "mpirun -n 16 singularity exec my.sif ./app", ["1 mpirun-before-container"]),
        ("#SBATCH -p booster\n", "mpirun -n 16 singularity exec my.sif ./app", []),
        (TASKS, "export OMP_NUM_THREADS=8\nsrun -c 7 ./app", ["1 too-many-threads"]),
        (TASKS, "export OMP_NUM_THREADS=7\nsrun -n 8 -c 2 ./a : -n 2 -c 7 ./b", []),
        (PART, "srun vllm serve m -tp 2", ["1 tensor-parallel"]),
    ],
)
def test_rendezvous_and_launchers(head: str, text: str, expected: list[str]) -> None:
    assert lines(head, text) == expected


# ---------------------------------------------------------------- settings, images and modules


@pytest.mark.parametrize(
    ("head", "text", "expected"),
    [
        (TASKS, "export NCCL_NET=IB\nsrun x", ["1 leftover-setting"]),
        (TASKS, "srun --export=ALL,NCCL_P2P_DISABLE=1 python t.py", ["1 leftover-setting"]),
        (TASKS, "export NCCL_DEBUG=INFO NCCL_P2P_LEVEL=SYS FI_PROVIDER=cxi NCCL_NET='AWS Libfabric'\nsrun ./app", []),
        (TASKS, "export FI_CXI_RDZV_PROTO=alt_read\nsrun ./app", ["1 missing-partner"]),
        (TASKS, "export FI_CXI_RDZV_PROTO=alt_read\nsrun --network=no_vni,disable_rdzv_get ./app", []),
        (TASKS, "export FI_CXI_RDZV_PROTO=alt_read SLURM_NETWORK=disable_rdzv_get\nsrun ./app", []),
        (TASKS, "srun --gpu-bind=closest --gres-flags=allow-task-sharing ./app", ["1 missing-partner"]),
        (NODES, "srun --gpus-per-task=8 ./app", []),
        (TASKS, "export ROCR_VISIBLE_DEVICES=0,1,2,3,4,5,6,7\nsrun ./app", []),
        (TASKS, "srun singularity run --bind /x --rocm $SIF python bench.py", ["1 gpu-flag"]),
        (TASKS, "srun singularity run $SIF python bench.py --rocm", []),
        (TASKS, "srun singularity exec --bind /scratch python train.py", ["1 no-image"]),
        (TASKS, "singularity exec sandbox/ bash\nsingularity run --help", []),
        (PART, "$WITH_CONDA\nsrun singularity exec x.sif python y", ["1 with-conda"]),
        (PART, 'C="$WITH_CONDA; python y"\nsrun singularity exec x.sif bash -c "$C"', ["1 with-conda"]),
        (PART, "cat > r.sh <<EOF\n\\$WITH_CONDA\npython y\nEOF", []),
        (PART, "srun singularity exec x.sif bash -c 'bash -c \"$WITH_CONDA; python y\"'", []),
        (PART, 'echo "activate with $WITH_CONDA"', []),
    ],
)
def test_settings_and_images(head: str, text: str, expected: list[str]) -> None:
    assert lines(head, text) == expected


OTHERS = "module use /project/me/modules\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # versions that the site can have, and others
        ("module --force load cray-python singularity-CPEbits/22.08", ["1 unknown-module"]),
        ("module load singularity-AI-bindings/default singularity-CPEbits/", []),
        ("module load singularity-AI-bindings/25.03-rocm6.2 singularity-CPEbits/25.09", []),
        ("module load pytorch/99.99 LUMI/25.03", []),
        (f"{OTHERS}module load singularity-AI-bindings/99.99", []),
        ("#SBATCH -p gpu\nmodule load singularity-AI-bindings/99.99", []),
        # folders of past courses
        ("module use /appl/local/training/modules/AI-20241126/\nml singularity-CPEbits", ["1 retired-folder"]),
        ("#module use /appl/local/training/modules/AI-20241126\nmodule load singularity-CPEbits", []),
        # misspelt names and conflicts
        ("module load singularity-AI-bindingss", ["1 unknown-module"]),
        ("ml singularity_CPEbits/25.03", ["1 unknown-module"]),
        (f"{OTHERS}module load singularity-AI-bindingss", []),
        ("module load singularity-bindings singularity-AI-bindings", ["1 conflicting-modules"]),
        ("ml singularity-userfilesystems\nml lumi-aif-singularity-bindings", ["2 conflicting-modules"]),
        ("module load singularity-CPEbits\nmodule swap singularity-CPEbits lumi-aif-singularity-bindings", []),
        ("module load singularity-bindings\nmodule purge\nmodule load singularity-AI-bindings", ["1 foreign-module"]),
        # binds while an image is built
        (
            "module load singularity-bindings\nunset SINGULARITY_BIND\nsingularity build x.sif x.def",
            ["1 foreign-module"],
        ),
        ("ml singularity-AI-bindings singularity-userfilesystems\nsingularity build x.sif x.def", []),
    ],
)
def test_modules(text: str, expected: list[str]) -> None:
    assert found(f"{text}\n") == expected


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("srun singularity exec my.sif python x", True),
        ("module load LUMI\nsrun singularity exec my.sif ./app", True),
        ("module load singularity-AI-bindings\nsrun singularity exec my.sif python x", False),
        (f"{OTHERS}ml mine\nsrun singularity exec my.sif python x", False),
        ("module load PyTorch/2.7.1-singularity\nsrun singularity exec $SIF python x", False),
        ("singularity build my.sif my.def", False),
        ("srun python x", False),
    ],
)
def test_a_container_without_the_module_is_a_hint(text: str, hint: bool) -> None:
    bad = lint_job(read_script((PART + text).encode(), "s", LUMI), "s")
    assert [one.severity for one in bad if one.code == "module-not-loaded"] == [Severity.INFO] * hint
    elsewhere = lint_job(read_script((PART.replace("small-g", "booster") + text).encode(), "s", LUMI), "s")
    assert "module-not-loaded" not in [one.code for one in elsewhere]
