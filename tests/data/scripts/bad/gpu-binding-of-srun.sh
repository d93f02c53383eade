#!/bin/bash
#SBATCH --partition=standard-g
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=8
srun --gpu-bind=closest ./a.out
srun --gpu-bind=map:4,5,2,3,6,7,0,1 ./a.out
srun --gpu-bind map_gpu:4,5,2,3,6,7,0,1 ./a.out
srun --gpus-per-task=1 ./a.out
BIND=verbose,closest
srun --gpu-bind=$BIND ./a.out
