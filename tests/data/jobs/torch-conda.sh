#!/usr/bin/env -S bash -e
#SBATCH --job-name=conda
#SBATCH --nodes=1
#SBATCH --tasks-per-node=1
#SBATCH --cpus-per-task=7
#SBATCH --gpus-per-node=1
#SBATCH --mem=60G
#SBATCH --partition=small-g
#SBATCH --time=15:00
#SBATCH --account=project_your_project_number
export PYTHONNOUSERSITE=1
srun singularity exec /appl/local/containers/sif-images/lumi-pytorch.sif bash -c "\$WITH_CONDA; source /path/to/venv/bin/activate; python3 ./train.py 10 2"
