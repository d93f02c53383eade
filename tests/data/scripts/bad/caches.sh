#!/bin/bash
#SBATCH --partition=small-g
CACHE=/scratch/project_465000000/${USER}/cache
export MIOPEN_USER_DB_PATH=$CACHE/db
export TRITON_CACHE_DIR=$HOME/.triton AITER_JIT_DIR=~/aiter
srun singularity run --env TORCHINDUCTOR_CACHE_DIR=/users/me/inductor image.sif python train.py
