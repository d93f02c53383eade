#!/bin/bash
#SBATCH -A project_465000320
#SBATCH -p small-g
#SBATCH --gpus-per-node=1 --ntasks=1 --cpus-per-task=7 --mem=60G
#SBATCH --array=1-64%8
#SBATCH -t 3-00:00:00
#SBATCH -o sweep-%A_%3a.out
LR=$(sed -n "${SLURM_ARRAY_TASK_ID}p" rates.txt)
export PYTHONUNBUFFERED=1
srun singularity run /appl/local/laifs/containers/lumi-multitorch-latest.sif python train.py --lr "$LR" --name "lr-$LR"
