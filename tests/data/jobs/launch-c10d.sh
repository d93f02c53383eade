#!/bin/bash
#SBATCH --account=<your-project-number>
#SBATCH --partition=standard-g
#SBATCH --nodes=2
#SBATCH --gpus-per-node=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=14
#SBATCH --time=00:10:00
CONTAINER=/appl/local/containers/sif-images/lumi-pytorch.sif
srun singularity exec $CONTAINER bash -c '$WITH_CONDA; torchrun --nnodes=$SLURM_NNODES --nproc_per_node=2 \
  --rdzv_id=$SLURM_JOB_ID --rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:$MASTER_PORT ./train.py 50 10'
