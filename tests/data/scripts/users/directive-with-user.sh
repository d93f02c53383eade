#!/bin/bash
#SBATCH --account=project_465000644
#SBATCH --partition=small-g
#SBATCH --gpus-per-node=1
#SBATCH --output=/scratch/project_465000644/$USER/logs/%j.out
#SBATCH --ntask-per-node=1
#SBATCH --cpus-per-task=7
#SBATCH --mem=60G
#SBATCH --time=00:30:00
#SBATCH --mail-type=END,FAIL
#SBATCH --time=02:00:00
srun singularity run /appl/local/laifs/containers/lumi-multitorch-latest.sif python infer.py
