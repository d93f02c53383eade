#!/bin/bash
#SBATCH --account=project_465000000
#SBATCH --partition=standard-g   # whole nodes
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=7
#SBATCH --mem-per-gpu=60G
#SBATCH --time=1:00:00

module purge
module use /appl/local/laifs/modules
module load lumi-aif-singularity-bindings

# not export MIOPEN_USER_DB=..., and no MASTER_PORT=29500
export MIOPEN_USER_DB_PATH=/tmp/miopen-config-${USER}
export MIOPEN_CUSTOM_CACHE_DIR=/tmp/miopen-cache-${USER}

SIF=/appl/local/laifs/containers/lumi-multitorch-u24r64f21m43t29-20260225_144743/lumi-multitorch-full-u24r64f21m43t29-20260225_144743.sif
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT="1${SLURM_JOB_ID:0-4}"
export WORLD_SIZE=$SLURM_NPROCS

MASKS="0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,0xfe0000000000"
srun --cpu-bind=v,mask_cpu=$MASKS singularity run $SIF \
    bash -c "mkdir -p \$MIOPEN_USER_DB_PATH && export RANK=\$SLURM_PROCID LOCAL_RANK=\$SLURM_LOCALID && python train.py"
