#!/bin/bash
#SBATCH --partition=standard-g
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=8
#SBATCH --mem=480G
export NCCL_SOCKET_IFNAME=hsn
export GLOO_SOCKET_IFNAME=hsn0
export FI_MR_CACHE_MONITOR=userfaultfd
export NCCL_PROTO=^LL128
export NCCL_NET_GDR_LEVEL=PHB   # ROCm before 6.2 does not do it by itself
export MIOPEN_USER_DB_PATH=/tmp/${USER}/miopen TRITON_CACHE_DIR=/tmp/${USER}/triton
IMAGES=/appl/local/containers/sif-images
SIF=$IMAGES/lumi-pytorch-rocm-6.1.3-python-3.12-pytorch-v2.4.1.sif
srun singularity exec -B /scratch,/appl $SIF bash -c '$WITH_CONDA; python train.py'
NCCL_SOCKET_IFNAME=lo srun -N 1 -n 1 singularity exec $SIF bash -c '$WITH_CONDA; python test.py'
