#!/bin/bash
#SBATCH --account=project_462000963
#SBATCH --partition=standard-g
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=7
#SBATCH --time=12:00:00
export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)
export MASTER_PORT=9999
MODEL_PARALLEL="--tensor-model-parallel-size 16 \
    --pipeline-model-parallel-size 2 --sequence-parallel"
srun singularity exec /scratch/project_462000963/megatron.sif \
    bash -c "export RANK=\$SLURM_PROCID LOCAL_RANK=\$SLURM_LOCALID WORLD_SIZE=\$SLURM_NTASKS; python pretrain_gpt.py $MODEL_PARALLEL"
