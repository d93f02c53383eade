#!/bin/bash
#SBATCH --account=project_462000371
#SBATCH --partition=standard_g
#SBATCH --nodes=8
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=8
#SBATCH --time=24:00:00
srun ./select_gpu ./solver input.nml
