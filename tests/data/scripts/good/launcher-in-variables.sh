#!/bin/bash
#SBATCH --partition=standard-g
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=56
#SBATCH --mem=480G
#SBATCH --exclusive
SIF=/appl/local/containers/sif-images/lumi-pytorch-rocm-6.2.4-python-3.12-pytorch-v2.7.1.sif
# export MASTER_PORT=29500
export MASTER_ADDR=$(scontrol show hostname $SLURM_JOB_NODELIST | head -n1)
export MASTER_PORT=1${SLURM_JOB_ID: -4}
LAUNCHER="python -m torch.distributed.run \
    --nproc_per_node 8 \
    --nnodes $SLURM_NNODES \
    --node_rank \$SLURM_PROCID \
    --rdzv_endpoint $MASTER_ADDR:$MASTER_PORT \
    --rdzv_backend c10d \
    --max_restarts 0 \
    --tee 3"
CMD="train.py --world-size 8"
CLUSTER_CMD="singularity exec -B $PWD:/workdir,/scratch $SIF"
srun -l --cpu-bind=none $CLUSTER_CMD bash -c "\$WITH_CONDA; $LAUNCHER $CMD" \
  2>&1 | tee log.txt
RC=${PIPESTATUS[0]}
[ $RC -eq 0 ] || { echo "failed: see <<log>>"; exit $RC; }
