#!/bin/bash
#SBATCH --account=project_465000644
#SBATCH --partition=small-g
#SBATCH --gpus-per-node=1
#SBATCH --output=/scratch/project_465000644/%u/logs/%x-%j.out   # not $USER
#SBATCH --tasks-per-node=1
##SBATCH --nodes=2
# SBATCH --exclusive
#SBATCH --cpus-per-task=7
#SBATCH --mem=60G
#SBATCH --comment="costs 5$"
#SBATCH --time=00:30:00
#SBATCH -t 00:30:00
#SBATCH --mail-type=END,FAIL
srun singularity run /appl/local/laifs/containers/lumi-multitorch-latest.sif python infer.py
