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

module purge
module use /appl/local/laifs/modules
module load lumi-aif-singularity-bindings

export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=29500
export WORLD_SIZE=$SLURM_NTASKS
export RANK=$SLURM_PROCID
export LOCAL_RANK=${SLURM_LOCALID}

SIF=/appl/local/laifs/containers/lumi-multitorch-latest.sif
srun singularity run $SIF python -u train.py --data /scratch/project_462000371/imagenet --epochs 90
