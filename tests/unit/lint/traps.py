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
    (_HEAD + "# SBATCH lines are read up to here\nsrun ./app\n", ()),
    (_HEAD + "srun --gpus-per-tasks=1 ./app\n", ("unknown-option",)),
    (_HEAD + "srun --array=1-4 ./app\n", ("unknown-option",)),
    (_HEAD + "srun --kill-on-bad=1 --cpu_bind=cores -lu ./app --gpus-per-tasks=1\n", ()),
    (_HEAD + "srun -- ./app --gpus-per-tasks=1\n", ()),
    (_HEAD + "#SBATCH --cpu-bind=cores\nsrun ./app\n", ("unknown-directive",)),
    ("#SBATCH -p booster --uenv=x --container-image=y\nsrun --environment=z ./app\n", ()),
    (_HEAD + "#SBATCH --mem=8G --mem-per-cpu=1G\nsrun ./app\n", ("options-exclude-each-other",)),
    (_HEAD + "#SBATCH --mem=8G\nsrun --mem-per-cpu=1G ./app\n", ()),
    (_HEAD + "#SBATCH --ntasks=32\nsrun ./app\n", ("too-many-tasks",)),
    (_HEAD + "#SBATCH -n 12\nsrun ./app\n", ("fewer-tasks",)),
    (_HEAD + "#SBATCH -n 16\nsrun ./app\n", ()),
    (_HEAD + "srun --export=MY_VAR=1 ./app\n", ("export-without-all",)),
    (_HEAD + "srun --export=ALL,MY_VAR=1 ./app\nsrun --export=NONE /bin/app\n", ()),
    (_HEAD + "#SBATCH --export=NONE\nmodule load LUMI\nsrun ./app\n", ("export-none",)),
    (_HEAD + "#SBATCH --export=NONE\nunset SLURM_EXPORT_ENV\nsrun ./app\n", ()),
    (_HEAD + "#SBATCH --export=NONE\nsrun --export=ALL ./app\n", ()),
    # ---- the shell
    (_HEAD + "srun -l \\ \n  ./app\n", ("text-after-continuation",)),
    (_HEAD + "srun -l \\ # labels\n  ./app\n", ("text-after-continuation",)),
    (_HEAD + "srun -l \\\n  ./app a\\ b\n", ()),
    (_HEAD + "for i in 1 2; do\n  srun -n 8 -N 1 ./app $i &\ndone\n", ("background-without-wait",)),
    (_HEAD + "srun ./server > log 2>&1 &\necho started\n", ("background-without-wait",)),
    (_HEAD + "for i in 1 2; do\n  srun -n 8 -N 1 ./app $i &\ndone\nwait\n", ()),
    (_HEAD + "srun -n 1 -N 1 ./server &\nsleep 30\nsrun -n 1 -N 1 ./client\n", ()),
    (_HEAD + "srun ./a && srun ./b 2>&1 | tee log\n", ()),
    (_HEAD + "start() {\n  srun -N 1 ./app &\n}\nstart; start\nwait\n", ()),
    (_HEAD + "srun singularity exec --bind /scratch python train.py\n", ("no-image",)),
    (_HEAD + "srun singularity run\n", ("no-image",)),
    (
        _HEAD + "srun singularity exec $SIF python train.py\nsingularity exec sandbox/ bash\nsingularity run --help\n",
        (),
    ),
    (_HEAD + "srun -n 8 -c 2 ./a : -n 2 -c 7 --gpus-per-tasks=1 ./b\n", ("unknown-option",)),
    # ---- launchers
    (_ONE_TASK + "torchrun --nnodes=2 --nproc_per_node=8 --rdzv_endpoint=$A:1 t.py\n", ("launcher-without-srun",)),
    (_ONE_TASK + "torchrun --standalone --nproc_per_node=8 t.py\n", ()),
    (_ONE_TASK + "L='torchrun --nnodes=2 --nproc_per_node=8 --rdzv_endpoint=a:1'\nsrun bash -c \"$L t.py\"\n", ()),
    ("torchrun --nnodes=$N --nproc_per_node=8 --rdzv_endpoint=$A:1 t.py\n", ()),
    (_HEAD + "mpirun -n 16 singularity exec my.sif ./app\n", ("mpirun-before-container",)),
    ("#SBATCH -p booster\nmpirun -n 16 singularity exec my.sif ./app\n", ()),
    # ---- what the description says
    (_HEAD + "export NCCL_NET_GDR_LEVEL=PHB\nsrun singularity run $SIF x\n", ("value-may-harm",)),
    (_HEAD + "export FI_CXI_RDZV_PROTO=alt_read\nsrun ./app\n", ("missing-partner",)),
    (_HEAD + "export FI_CXI_RDZV_PROTO=alt_read\nsrun --network=no_vni,disable_rdzv_get ./app\n", ()),
    (_HEAD + "export FI_CXI_RDZV_PROTO=alt_read SLURM_NETWORK=disable_rdzv_get\nsrun ./app\n", ()),
    (_HEAD + "FI_CXI_RDZV_PROTO=alt_read srun --network=disable_rdzv_get ./app\nsrun ./other\n", ()),
    (_HEAD + "srun --gpu-bind=closest --gres-flags=allow-task-sharing ./app\n", ("missing-partner",)),
    (_HEAD + "srun --gpu-bind=map:4,5,2,3,6,7,0,1 --gres-flags=allow-task-sharing ./app\n", ()),
    (_ONE_TASK + "srun --gpus-per-task=8 ./app\n", ()),
    (_SHARED + "module load singularity-bindings\nsrun ./app\n", ("foreign-module",)),
    (_SHARED + "ml singularity-bindings singularity-CPEbits\nsrun ./app\n", ("conflicting-modules",)),
    (_SHARED + "module load singularity-AI-bindingss\nsrun singularity exec my.sif ./app\n", ("unknown-module",)),
    (_SHARED + "module load LUMI\nsrun singularity exec my.sif ./app\n", ("module-not-loaded",)),
)
