#!/bin/bash
#SBATCH --account=<your-project-number>
#SBATCH --partition=standard-g
#SBATCH --nodes=2
#SBATCH --gpus-per-node=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=14
#SBATCH --time=00:10:00
CONTAINER=/appl/local/laifs/containers/ray.sif
srun singularity exec $CONTAINER bash -c '
ray() { python3 -m ray.scripts.scripts "$@"; }
export RAY_USAGE_STATS_ENABLED=0
if [ $SLURM_NODEID = 0 ]; then
  ray start --head --port=$MASTER_PORT --num-cpus=1 --include-dashboard=false
  python3 ./spread.py
  touch ray-$SLURM_JOB_ID.done
else
  until ray start --address=$MASTER_ADDR:$MASTER_PORT --num-cpus=1; do sleep 1; done
  until [ -e ray-$SLURM_JOB_ID.done ]; do sleep 1; done
fi
ray stop --force'
