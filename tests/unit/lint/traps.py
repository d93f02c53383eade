"""Traps of plain Slurm and shell, and lines that are like them and right: a script with the codes that it has."""

from __future__ import annotations

_HEAD = "#!/bin/bash\n#SBATCH -p standard-g -N 2 --ntasks-per-node=8 --gpus-per-node=8\n"
_ONE_TASK = _HEAD.replace("=8 --gpus", "=1 --gpus")
_SHARED = "#!/bin/bash\n#SBATCH -p small-g -N 1 --gpus-per-node=1\n"

TRAPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    # ---- directives and options
    ("#!/bin/bash\r\n#SBATCH -N 1\r\nsrun ./app\r\n", ("dos-line-ends",)),
    (_HEAD + "# SBATCH --time=1:00\nsrun ./app\n", ("commented-directive",)),
    (_HEAD + "##SBATCH --time=1:00\nsrun ./app\n", ()),
    (_HEAD + "srun --gpus-per-tasks=1 ./app\n", ("unknown-option",)),
    (_HEAD + "srun --array=1-4 ./app\n", ("unknown-option",)),
    (_HEAD + "srun --kill-on-bad=1 --cpu_bind=cores -lu ./app --gpus-per-tasks=1\n", ()),
    (_HEAD + "#SBATCH --cpu-bind=cores\nsrun ./app\n", ("unknown-directive",)),
    ("#SBATCH -p booster --uenv=x --container-image=y\nsrun --environment=z ./app\n", ()),
    (_HEAD + "#SBATCH --mem=8G --mem-per-cpu=1G\nsrun ./app\n", ("options-exclude-each-other",)),
    (_HEAD + "#SBATCH --ntasks=32\nsrun ./app\n", ("too-many-tasks",)),
    (_HEAD + "#SBATCH -n 12\nsrun ./app\n", ("fewer-tasks",)),
    (_HEAD + "#SBATCH -n 16\nsrun ./app\n", ()),
    (_HEAD + "#SBATCH --array=1-4 -o %x-%A_%3a.out\nsrun ./app\n", ()),
    (_HEAD + "srun --export=MY_VAR=1 ./app\n", ("export-without-all",)),
    (_HEAD + "#SBATCH --export=NONE\nmodule load LUMI\nsrun ./app\n", ("export-none",)),
    (_HEAD + "#SBATCH --export=NONE\nunset SLURM_EXPORT_ENV\nsrun ./app\n", ()),
    # ---- the shell
    (_HEAD + "srun -l \\ \n  ./app\n", ("text-after-continuation",)),
    (_HEAD + "for i in 1 2; do\n  srun -n 8 -N 1 ./app $i &\ndone\n", ("background-without-wait",)),
    (_HEAD + "for i in 1 2; do\n  srun -n 8 -N 1 ./app $i &\ndone\nwait\n", ()),
    (_HEAD + "srun -n 1 -N 1 ./server &\nsleep 30\nsrun -n 1 -N 1 ./client\n", ()),
    (_HEAD + "start() {\n  srun -N 1 ./app &\n}\nstart; start\nwait\n", ()),
    (_HEAD + "srun singularity exec --bind /scratch python train.py\n", ("no-image",)),
    (
        _HEAD + "srun singularity exec $SIF python train.py\nsingularity exec sandbox/ bash\nsingularity run --help\n",
        (),
    ),
    # ---- launchers
    (_ONE_TASK + "torchrun --nnodes=2 --nproc_per_node=8 --rdzv_endpoint=$A:1 t.py\n", ("launcher-without-srun",)),
    (_ONE_TASK + "torchrun --standalone --nproc_per_node=8 t.py\n", ()),
    (_HEAD + "mpirun -n 16 singularity exec my.sif ./app\n", ("mpirun-before-container",)),
    (_ONE_TASK + "srun bash -c 'torchrun --nnodes=2 --rdzv_id=$SLURM_JOB_ID --rdzv_endpoint=$A:1 t.py'\n", ()),
    (_HEAD + "export OMP_NUM_THREADS=8\nsrun -c 7 ./app\n", ("too-many-threads",)),
    (_HEAD + "export OMP_NUM_THREADS=7\nsrun -n 8 -c 2 ./a : -n 2 -c 7 ./b\n", ()),
    ("#SBATCH -p booster\nmpirun -n 16 singularity exec my.sif ./app\n", ()),
    # ---- what the description says
    (_HEAD + "export FI_CXI_RDZV_PROTO=alt_read\nsrun ./app\n", ("missing-partner",)),
    (_HEAD + "export FI_CXI_RDZV_PROTO=alt_read\nsrun --network=no_vni,disable_rdzv_get ./app\n", ()),
    (_HEAD + "export FI_CXI_RDZV_PROTO=alt_read SLURM_NETWORK=disable_rdzv_get\nsrun ./app\n", ()),
    (_HEAD + "srun --gpu-bind=closest --gres-flags=allow-task-sharing ./app\n", ("missing-partner",)),
    (_ONE_TASK + "srun --gpus-per-task=8 ./app\n", ()),
    (_HEAD + "export ROCR_VISIBLE_DEVICES=0,1,2,3,4,5,6,7\nsrun ./app\n", ()),
    (_SHARED + "srun vllm serve m -tp 2\n", ("tensor-parallel",)),
    ("module load singularity-bindings\nunset SINGULARITY_BIND\nsingularity build x.sif x.def\n", ("foreign-module",)),
    ("ml singularity-AI-bindings singularity-userfilesystems\nsingularity build x.sif x.def\n", ()),
    (_SHARED + "module load LUMI\nsrun singularity exec my.sif ./app\n", ("module-not-loaded",)),
)
