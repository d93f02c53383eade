#!/bin/bash
#SBATCH --job-name=llama-sft
#SBATCH --account=project_462000745
#SBATCH --partition=standard-g
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=56
#SBATCH --time=06:00:00
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=29400
export OMP_NUM_THREADS=7
export CONTAINER=/appl/local/laifs/containers/lumi-multitorch-latest.sif
LAUNCHER="torchrun --nnodes=$SLURM_NNODES --nproc_per_node=8 --rdzv_id=$SLURM_JOB_ID"
LAUNCHER="$LAUNCHER --rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:$MASTER_PORT"
srun singularity run $CONTAINER $LAUNCHER finetune.py --config configs/sft.yaml
# the evaluation fits on one GPU: eight independent tasks
srun --ntasks-per-node=8 --cpus-per-task=7 singularity run $CONTAINER python evaluate.py --shard-by-rank
