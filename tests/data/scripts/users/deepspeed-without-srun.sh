#!/bin/bash
#SBATCH --account=project_462000615
#SBATCH --partition=standard-g
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --time=10:00:00
module use /appl/local/laifs/modules
module load lumi-aif-singularity-bindings
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
mkdir -p checkpoints
singularity run /appl/local/laifs/containers/lumi-multitorch-latest.sif \
    deepspeed --num_gpus 8 train.py --deepspeed ds_zero3.json --bf16
