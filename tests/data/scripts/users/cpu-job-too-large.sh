#!/bin/bash
#SBATCH --account=project_462000371
#SBATCH --partition=standard
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=128
#SBATCH --mem=256G
#SBATCH --time=1-12
#SBATCH --gpus-per-node=1
export OMP_NUM_THREADS=1
srun ./cp2k.psmp -i h2o.inp -o h2o.out
