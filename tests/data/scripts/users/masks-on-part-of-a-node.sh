#!/bin/bash
#SBATCH --account=project_465001362
#SBATCH --partition=small-g
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=2
#SBATCH --gpus-per-node=2
#SBATCH --cpus-per-task=7
#SBATCH --time=00:20:00
MASKS="0xfe000000000000,0xfe00000000000000"
srun --cpu-bind=mask_cpu:$MASKS singularity run /appl/local/laifs/containers/lumi-multitorch-latest.sif python bench.py
