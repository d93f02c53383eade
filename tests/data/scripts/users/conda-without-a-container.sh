#!/bin/bash
#SBATCH --account=project_465002175
#SBATCH --partition=small
#SBATCH --ntasks=1 --cpus-per-task=8 --mem=16G
#SBATCH --time=01:00:00
source /projappl/project_465002175/miniconda3/bin/activate
conda activate stats
python clean.py
conda deactivate
conda deactivate
srun singularity exec /projappl/project_465002175/r.sif Rscript model.R
