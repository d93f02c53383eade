#!/bin/bash
#SBATCH --job-name=resnet50-ddp
#SBATCH --account=project_462000371
#SBATCH --partition=standard-g
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=7
#SBATCH --time=04:00:00
#SBATCH --output=logs/%x-%j.out
set -euo pipefail
module purge
module use /appl/local/laifs/modules
module load lumi-aif-singularity-bindings

export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=29500
export WORLD_SIZE=$SLURM_NTASKS
# the batch script is task 0: RANK=$SLURM_PROCID would be 0 here
echo "batch script on $(hostname), SLURM_PROCID=$SLURM_PROCID"
if [[ "${SLURM_PROCID:-0}" -eq 0 ]]; then mkdir -p logs; fi

SIF=/appl/local/laifs/containers/lumi-multitorch-latest.sif
srun singularity run "$SIF" bash -c '
  export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID
  python -u train.py --data /scratch/project_462000371/imagenet --epochs 90'
