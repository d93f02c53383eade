#!/bin/bash
#SBATCH --partition=standard-g
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
srun --gpu-bind=map:4,5,2,3,6,7,0,1 --gres-flags=allow-task-sharing ./a.out -c 8 --gpu-bind=closest
srun --gpu-bind=none -c 7 ./a.out
srun --gpu-bind=verbose,none ./a.out
srun -n 1 -N 1 --gpus-per-task=1 ./a.out
srun --gpus-per-task=1 --gpu-bind=none ./a.out
export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | grep -m 1 nid)
