#!/bin/bash -l
#SBATCH --job-name=ddp           # Job name
#SBATCH --output=ddp.o%j
#SBATCH --partition=standard-g
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --time=0-01:00:00
#SBATCH --account=project_465000001

set -euo pipefail

CONTAINER=/appl/local/laifs/containers/lumi-multitorch-latest.sif

cat << 'EOF2' > select_gpu
#!/bin/bash
export ROCR_VISIBLE_DEVICES=$SLURM_LOCALID
exec "$@"
EOF2
chmod +x ./select_gpu

CPU_BIND="mask_cpu:7e000000000000,7e00000000000000"
CPU_BIND="${CPU_BIND},7e0000,7e000000"
CPU_BIND="${CPU_BIND},7e,7e00"
CPU_BIND="${CPU_BIND},7e00000000,7e0000000000"

export OMP_NUM_THREADS=6
export MPICH_GPU_SUPPORT_ENABLED=1

log() {
  local level=$1; shift
  printf '[%s] %s\n' "$level" "srun singularity exec --gpus-per-task=1 $*" >&2
}

function run_step() {
  local -r name="$1"
  shift
  case "$name" in
    train|eval) srun --cpu-bind=${CPU_BIND} ./select_gpu singularity run "$CONTAINER" "$@" ;;
    *) log error "unknown $name"; return 1 ;;
  esac
}

export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$(( 10000 + SLURM_JOB_ID % 20000 ))
run_step train python -u train.py --port 29500
rm -rf ./select_gpu
