#!/bin/bash
#SBATCH --account=project_465002175
#SBATCH --partition=small-g
#SBATCH --gpus-per-node=1
#SBATCH --cpus-per-task=7
#SBATCH --mem=60G
#SBATCH --time=01:00:00
source ~/miniconda3/bin/activate
conda activate torch-rocm
SIF=/appl/local/laifs/containers/lumi-multitorch-latest.sif
singularity run $SIF pip install --quiet einops timm
srun singularity run $SIF bash -c "pip install -e . && python train.py"
