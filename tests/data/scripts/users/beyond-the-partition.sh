#!/bin/bash
#SBATCH --account=project_462000371
#SBATCH --partition=small-g
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=7
#SBATCH --time=4-00:00:00
srun singularity exec /scratch/project_462000371/jax.sif python -m jax_train
srun --nodes=2 --ntasks-per-node=8 singularity exec /projappl/project_462000371/jax.sif python -m jax_eval
