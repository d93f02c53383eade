#!/bin/bash
#SBATCH --account=project_465001362
#SBATCH --partition=standard-g
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --time=00:20:00
srun --gpu-bind=map:4,5,2,3,6,7,0,1 --gres-flags=allow-task-sharing --cpu-bind=map_cpu:1,9,17,25,33,41,49,57 ./app
srun --cpu-bind=map_cpu:49,57,17,25,1,9,33,41 ./app
srun --cpu-bind=mask_cpu:fefefefefefefefe -n 2 --ntasks-per-node=1 ./omp_app
srun --cpu-bind=verbose,cores ./app
