#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=1
export WORLD_SIZE=$SLURM_NTASKS
srun singularity run $SIF python train.py
