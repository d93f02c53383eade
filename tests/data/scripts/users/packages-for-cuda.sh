#!/bin/bash
#SBATCH --account=project_462000371
#SBATCH --partition=small-g
#SBATCH --gpus-per-node=1 --ntasks=1 --cpus-per-task=7
#SBATCH --time=01:00:00
python3 -m venv /flash/project_462000371/env
source /flash/project_462000371/env/bin/activate
pip install torch --index-url https://download.pytorch.org/whl/cu121
pip install torch --index-url https://download.pytorch.org/whl/rocm5.4.2
srun python train.py
