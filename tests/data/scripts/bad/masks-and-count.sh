#!/bin/bash
#SBATCH --partition=standard-g
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=8
MASKS="mask_cpu:0xfe,0xfe00"
srun -c 7 --cpu-bind=${MASKS} ./a.out
srun --cpus-per-task=7 --cpu-bind=v,map_cpu:1,9 ./a.out
