#!/bin/bash
#SBATCH --account=<your-project-number>
#SBATCH --partition=standard-g
#SBATCH --nodes=2
#SBATCH --gpus-per-node=2
#SBATCH --time=00:10:00

#SBATCH --tasks-per-node=1
#SBATCH --cpus-per-task=7
#SBATCH --mem=60G


export PATH="/scratch/<your-project-number>/tykkyTest/tykkyTest/bin:$PATH"
# Tell RCCL to use Slingshot interfaces and GPU RDMA
export NCCL_SOCKET_IFNAME=hsn0,hsn1,hsn2,hsn3
export NCCL_NET_GDR_LEVEL=PHB

export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
export MASTER_PORT=29500


# Run the distributed training job
srun torchrun \
    --nnodes=$SLURM_JOB_NUM_NODES \
    --nproc_per_node=$SLURM_GPUS_PER_NODE \
    --rdzv_id=$SLURM_JOB_ID \
    --rdzv_backend=c10d \
    --rdzv_endpoint=$MASTER_ADDR:$MASTER_PORT \
    ./train.py 50 10
