#!/bin/bash
#SBATCH --account=<your-project-number>
#SBATCH --partition=standard-g
#SBATCH --nodes=2
#SBATCH --gpus-per-node=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=7
#SBATCH --time=00:10:00
CONTAINER=/appl/local/containers/sif-images/lumi-pytorch.sif
srun singularity exec $CONTAINER bash -c '$WITH_CONDA; python ./train.py 50 10'
