#!/bin/bash
#SBATCH --job-name=coupled
#SBATCH --account=project_465002175
#SBATCH --partition=standard-g --nodes=2 --ntasks-per-node=8 --gpus-per-node=8
#SBATCH --time=02:00:00
#SBATCH hetjob
#SBATCH --partition=standard --nodes=1 --ntasks-per-node=64
#SBATCH --time=02:00:00
export MPICH_GPU_SUPPORT_ENABLED=1
srun --het-group=0 ./atmosphere : --het-group=1 --export=ALL,OMP_NUM_THREADS=2 ./io_server
