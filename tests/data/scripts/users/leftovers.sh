#!/bin/bash
#SBATCH --account=project_465002175
#SBATCH --partition=standard-g
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=7
#SBATCH --time=00:20:00
export HSA_OVERRIDE_GFX_VERSION=10.3.0
export NCCL_P2P_DISABLE=1
export NCCL_NET=Socket
export FI_PROVIDER=tcp
export CUDA_VISIBLE_DEVICES=0,1,2,3
export OMP_NUM_THREADS=56
srun singularity run --rocm /appl/local/laifs/containers/lumi-multitorch-latest.sif python train.py
