#!/bin/bash
#SBATCH --account=project_462000371
#SBATCH --partition=largemem
#SBATCH --ntasks=1 --cpus-per-task=32 --mem=1500G
#SBATCH --time=20:00:00
source /projappl/project_462000371/venvs/stats/bin/activate
python join.py /scratch/project_462000371/parts
