#!/bin/bash
#SBATCH --partition=small-g
export MASTER_PORT=29500
MASTER_PORT="12345" srun a.out
srun singularity exec $SIF torchrun --master_port=29501 train.py
srun torchrun --master-port 29502 train.py
srun singularity exec $SIF bash -c 'torchrun --rdzv_endpoint=$MASTER_ADDR:29400 train.py'
