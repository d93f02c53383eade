#!/bin/bash
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=64
srun ./a.out
