#!/bin/bash
#SBATCH --account=project_465002175
#SBATCH --partition=standard-g
#SBATCH --nodes=2 --ntasks-per-node=8 --gpus-per-node=8 --cpus-per-task=7
#SBATCH --time=02:00:00
export COORDINATOR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1):1234
# JAX reads SLURM_PROCID itself
srun singularity exec /appl/local/containers/sif-images/lumi-jax-rocm-6.2.4-python-3.12-jax-0.4.35.sif \
  bash -c "\$WITH_CONDA; JAX_PROCESS_ID=\$SLURM_PROCID python train.py --coordinator $COORDINATOR"
python -c 'print("done")'
