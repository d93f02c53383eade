#!/bin/bash
#SBATCH --account=<your-project-number>
#SBATCH --partition=small-g
#SBATCH --gpus-per-node=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=7
#SBATCH --mem-per-gpu=60G
#SBATCH --time=0:15:00

module purge

export PATH="/scratch/<your-project-number>/tykkyTest/tykkyTest/bin:$PATH"
echo "Python path: $(which python)"
echo "Python version: $(python --version)"
srun python ./train.py 10 2
