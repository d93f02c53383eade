#!/bin/bash
#SBATCH --account=project_465002175
#SBATCH --partition=small-g
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=28
#SBATCH --mem=240G
#SBATCH --time=02:00:00
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
srun singularity run /appl/local/laifs/containers/lumi-multitorch-latest.sif \
  torchrun --standalone --nproc-per-node=8 train.py
