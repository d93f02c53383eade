#!/bin/bash
#SBATCH --nodes=2
srun singularity run $SIF bash -c 'torchrun --rdzv_id=\$SLURM_JOB_ID --rdzv_endpoint="$MASTER_ADDR:$MASTER_PORT" train.py'
srun torchrun --rdzv-id '$SLURM_JOB_ID' train.py
