#!/bin/bash
#SBATCH --account=project_465002175
#SBATCH --partition=small-g
#SBATCH --gpus-per-node=1
#SBATCH --cpus-per-task=7
#SBATCH --mem=60G
#SBATCH --time=01:00:00
SIF=/appl/local/laifs/containers/lumi-multitorch-latest.sif
VENV=/flash/project_465002175/venv
[ -d $VENV ] || singularity run $SIF bash -c "python -m venv --system-site-packages $VENV; source $VENV/bin/activate; pip install einops timm"
singularity run $SIF pip list
srun singularity run $SIF bash -c "source $VENV/bin/activate && python train.py"
