#!/bin/bash
#SBATCH -p small-g
#SBATCH -n 8
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=8
srun ./a.out
