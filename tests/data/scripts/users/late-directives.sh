#!/bin/bash
#SBATCH --job-name=preprocess
#SBATCH --account=project_462000371
#SBATCH --partition=small
export RUN=$(date +%F)
#SBATCH --time=12:00:00
#SBATCH --cpus-per-task=16

module load LUMI cray-python
srun python tokenize.py --out /flash/project_462000371/$RUN
