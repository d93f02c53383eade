#!/bin/bash
#SBATCH --account=project_465002175
#SBATCH --partition=standard-g
#SBATCH --nodes=2 --ntasks-per-node=8 --gpus-per-node=8 --cpus-per-task=7
#SBATCH --time=02:00:00
SIF=/appl/local/containers/sif-images/lumi-jax-rocm-6.2.4-python-3.12-jax-0.4.35.sif
singularity exec $SIF python -c 'import jax; print(jax.devices())'
singularity exec $SIF bash -c '$WITH_CONDA; python train.py'
