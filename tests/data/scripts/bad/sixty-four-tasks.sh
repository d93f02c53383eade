#!/bin/bash
#SBATCH -p standard-g --gpus-per-node=8
#SBATCH --ntasks-per-node=64
srun ./a.out
