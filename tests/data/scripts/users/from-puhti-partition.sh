#!/bin/bash
#SBATCH --job-name=bert
#SBATCH --account=project_462000371
#SBATCH --partition=gpumedium
#SBATCH --nodes=1
#SBATCH --gpus-per-node=4
#SBATCH --time=24:00:00
srun singularity run /appl/local/laifs/containers/lumi-multitorch-latest.sif python pretrain.py --data /scratch/project_462000371/corpus
