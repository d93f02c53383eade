#!/bin/bash
#SBATCH --account=<your-project-number>
#SBATCH --partition=small-g
#SBATCH --gpus-per-node=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=7
#SBATCH --mem-per-gpu=60G
#SBATCH --time=0:15:00

module purge
module use /appl/local/training/modules/AI-20241126/
module load singularity-userfilesystems singularity-CPEbits

CONTAINER=/project/<your-project-number>/tykky/pytorch_transformers.sif

srun singularity exec $CONTAINER  python ./train.py 10 2
