#!/bin/bash
#SBATCH -p small-g
#SBATCH -N 1
#SBATCH -n 1
#SBATCH -c 56
#SBATCH --gpus-per-task=8
#SBATCH --exclusive
export MASTER_PORT=25900
srun singularity exec $CONTAINER torchrun --standalone --nnodes=1 --nproc-per-node=8 train.py
srun singularity exec $CONTAINER torchrun --rdzv-endpoint=localhost:0 train.py
