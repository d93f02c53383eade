#!/bin/bash
#SBATCH --partition=standard-g
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=7
#SBATCH --mem-per-gpu=60G
#SBATCH --account=project_your_project_number
srun singularity exec /appl/local/containers/sif-images/lumi-jax.sif bash -c "\$WITH_CONDA; python3 ./ranks.py"
