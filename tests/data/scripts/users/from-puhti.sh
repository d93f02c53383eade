#!/bin/bash
#SBATCH --job-name=bert
#SBATCH --account=project_462001234
#SBATCH --partition=small-g
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --gres=gpu:v100:1
#SBATCH --cpus-per-task=7
#SBATCH --time=24:00:00
export DATA=/scratch/project_2001234/corpus
srun singularity run --nv /appl/local/laifs/containers/lumi-multitorch-latest.sif python pretrain.py --data $DATA
