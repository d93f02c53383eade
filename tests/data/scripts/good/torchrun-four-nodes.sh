#!/bin/bash
#SBATCH --partition=standard-g
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
#SBATCH --tasks-per-node=1
#SBATCH --cpus-per-task=56
#SBATCH --mem=480G

SIF=/appl/local/laifs/containers/lumi-multitorch-u24r70f21m50t210-20260415_130625/lumi-multitorch-full-u24r70f21m50t210-20260415_130625.sif
export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
export MASTER_PORT="1${SLURM_JOB_ID:0-4}"
unset NCCL_NET_GDR_LEVEL CXI_FORK_SAFE CXI_FORK_SAFE_HP
export WORLD_SIZE=$SLURM_NTASKS   # torchrun sets its own for each process

srun singularity run $SIF bash -c 'python -m torch.distributed.run --numa-binding=exclusive --nnodes=$SLURM_JOB_NUM_NODES \
  --nproc_per_node=8 --rdzv_id=$SLURM_JOB_ID --rdzv_backend=c10d --rdzv_endpoint="$MASTER_ADDR:$MASTER_PORT" train.py'
