#!/bin/bash
#SBATCH --account=project_465001362
#SBATCH --partition=standard-g
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --time=00:20:00
CPU_BIND="mask_cpu:ff000000000000,ff00000000000000"
CPU_BIND="${CPU_BIND},ff0000,ff000000"
CPU_BIND="${CPU_BIND},ff,ff00"
CPU_BIND="${CPU_BIND},ff00000000,ff0000000000"
srun --cpu-bind=${CPU_BIND} ./select_gpu ./app
srun --cpu-bind=map_cpu:48,56,16,24,1,8,32,40 ./select_gpu ./app
srun --cpu-bind=map_cpu:1,9,17,25,33,41,49,57 ./app
