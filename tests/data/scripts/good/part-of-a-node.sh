#!/bin/bash
#SBATCH --partition=small-g
#SBATCH --nodes=1
#SBATCH --gpus-per-node=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=14
#SBATCH --mem=120G
export NCCL_NET_GDR_LEVEL=PHB
module load singularity-AI-bindings/25.03-rocm6.2 singularity-userfilesystems/default
srun singularity run lumi-multitorch-u24r72f21m50t211-20260929_104918.sif python train.py
