#!/bin/bash
#SBATCH --account=<your-project-number>
#SBATCH --partition=standard-g
#SBATCH --gpus-per-node=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=14
#SBATCH --mem=120G
#SBATCH --time=0:15:00


export PATH="/scratch/<your-project-number>/tykkyTest/tykkyTest/bin:$PATH"

srun torchrun --standalone --nnodes=1 --nproc_per_node=${SLURM_GPUS_PER_NODE} ./train.py 50 10
