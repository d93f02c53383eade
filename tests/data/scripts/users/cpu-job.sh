#!/bin/bash
#SBATCH --account=project_462000371
#SBATCH --partition=standard
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=16
#SBATCH --cpus-per-task=8
#SBATCH --mem=224G
#SBATCH --time=1-12
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK}
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
export OMP_PLACES=cores
srun --hint=nomultithread ./cp2k.psmp -i h2o.inp -o h2o.out
