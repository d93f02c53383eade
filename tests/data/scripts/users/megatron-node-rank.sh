#!/bin/bash
#SBATCH --account=project_462000963
#SBATCH --partition=standard-g
#SBATCH --nodes=16
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=56
#SBATCH --mem=480G
#SBATCH --time=2-00:00:00

export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)
export MASTER_PORT=9999
export CUDA_DEVICE_MAX_CONNECTIONS=1
CONTAINER=/scratch/project_462000963/images/megatron-rocm-6.2.4.sif
DISTRIBUTED_ARGS="--nproc_per_node 8 --nnodes $SLURM_NNODES --node_rank \$SLURM_NODEID \
    --master_addr $MASTER_ADDR --master_port $MASTER_PORT"
GPT_ARGS="--tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --num-layers 32 --hidden-size 4096 \
    --num-attention-heads 32 --seq-length 2048 --micro-batch-size 1 --global-batch-size 1024"

srun singularity exec -B /scratch,/flash $CONTAINER \
    torchrun --nproc_per_node 8 --nnodes $SLURM_NNODES \
    --node_rank $SLURM_NODEID \
    --master_addr $MASTER_ADDR --master_port $MASTER_PORT pretrain_gpt.py $GPT_ARGS --bf16
srun singularity exec -B /scratch,/flash $CONTAINER bash -c "torchrun $DISTRIBUTED_ARGS eval_gpt.py $GPT_ARGS"
