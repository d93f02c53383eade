#!/bin/bash
#SBATCH -p small-g -N 1
#SBATCH -n 8
#SBATCH --gpus=8
srun -c8 ./a.out
srun -n 1 -c 64 ./a.out
