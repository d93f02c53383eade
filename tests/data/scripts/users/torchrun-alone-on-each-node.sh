#!/bin/bash
#SBATCH --account=project_462000745
#SBATCH --partition=standard-g
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=56
#SBATCH --time=02:00:00
SIF=/appl/local/laifs/containers/lumi-multitorch-latest.sif
srun singularity run $SIF torchrun --standalone --nproc_per_node=8 train.py
srun singularity run $SIF torchrun --nnodes=4 --nproc_per_node=8 \
  --rdzv_id=$SLURM_JOB_ID --rdzv_backend=c10d --rdzv_endpoint=$(hostname):29500 train.py
srun singularity run $SIF bash -c 'torchrun --nnodes=2 --nproc_per_node=8 \
  --rdzv_backend=c10d --rdzv_endpoint=$(hostname):29500 train.py'
srun singularity run $SIF torchrun --nnodes=2 --nproc_per_node=8 train.py
