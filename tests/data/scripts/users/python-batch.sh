#!/usr/bin/env python3
#SBATCH --account=project_465002175
#SBATCH --partition=debug
#SBATCH --nodes=2 --ntasks-per-node=4
#SBATCH --time=01:00:00
import os
import subprocess

os.environ["RANK"] = os.environ["SLURM_PROCID"]
RUN = """
export RANK=$SLURM_PROCID
export MASTER_ADDR=localhost
export NCCL_P2P_DISABLE=1
"""
subprocess.run(["srun", "python", "train.py"], check=True)  # don't
