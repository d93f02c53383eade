#!/bin/bash
#SBATCH --account=project_465002175
#SBATCH --partition=standard-g
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=7
#SBATCH --time=00:20:00
unset HSA_OVERRIDE_GFX_VERSION NCCL_P2P_DISABLE
export NCCL_P2P_DISABLE=0
export FI_PROVIDER=cxi
export NCCL_SOCKET_IFNAME=hsn0,hsn1,hsn2,hsn3
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
# export NCCL_NET=Socket
for net in Socket; do echo "would try NCCL_NET=$net"; done
srun singularity run --bind /scratch /appl/local/laifs/containers/lumi-multitorch-latest.sif python train.py
NCCL_NET=Socket srun -N 1 -n 8 singularity run /appl/local/laifs/containers/lumi-multitorch-latest.sif python compare.py
