#!/bin/bash
#SBATCH --account=project_462000615
#SBATCH --partition=standard-g
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --time=10:00:00
module use /appl/local/laifs/modules
module load lumi-aif-singularity-bindings
for host in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do echo "$host slots=8"; done > hosts.$SLURM_JOB_ID
singularity run /appl/local/laifs/containers/lumi-multitorch-latest.sif \
    deepspeed --hostfile hosts.$SLURM_JOB_ID train.py --deepspeed ds_zero3.json --bf16
