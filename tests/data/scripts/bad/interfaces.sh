#!/bin/bash
#SBATCH --partition=standard-g
#SBATCH --nodes=2
export NCCL_SOCKET_IFNAME=ib0
export GLOO_SOCKET_IFNAME=hsn
srun ./a.out
NCCL_SOCKET_IFNAME=nmn0 srun ./a.out
SINGULARITYENV_NCCL_SOCKET_IFNAME=eth srun ./a.out
