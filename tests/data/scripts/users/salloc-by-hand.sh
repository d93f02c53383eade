#!/bin/bash
# started by hand in: salloc -A project_465002175 -p standard-g -N 2 --ntasks-per-node=8 --gpus-per-node=8 -t 1:00:00
SIF=/appl/local/laifs/containers/lumi-multitorch-u24r64f21m43t29-20260225_144743.sif
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) MASTER_PORT=29500
srun -p standard-g -N 2 --ntasks-per-node=8 --gpus-per-node=8 singularity run $SIF \
  bash -c "RANK=$SLURM_PROCID WORLD_SIZE=16 python bench.py"
srun -N 2 --ntasks-per-node=8 --gpus-per-node=8 singularity run $SIF \
  bash -c "RANK=\$SLURM_PROCID WORLD_SIZE=16 python bench.py"
