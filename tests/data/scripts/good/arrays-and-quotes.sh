#!/bin/bash
#SBATCH -A project_465000001
#SBATCH -p small-g
#SBATCH -N 1 -n 1 -c 7
#SBATCH --gpus-per-node=1
#SBATCH --mem=60G
#SBATCH -t 00:30:00
#SBATCH --array=0-9%2
module load LUMI/24.03 partition/G
module use /appl/local/laifs/modules
module load lumi-aif-singularity-bindings
PARAMS=( "--lr 0.1" "--lr 0.01" # first
  '--lr "0.001"'
)
declare -A MAP=([a]=1 [b]="two words")
ARGS=(--data "/scratch/$SLURM_JOB_ACCOUNT/data set" --epochs $((SLURM_ARRAY_TASK_ID * 2 + 1)))
for i in "${!PARAMS[@]}"; do
  if [[ "${PARAMS[$i]}" =~ ^--lr\ (.*)$ && -n "${MAP[a]:-}" ]]; then
    echo "run $i: ${BASH_REMATCH[1]}" | tee -a "log.${SLURM_ARRAY_TASK_ID}" >&2
  fi
done
srun singularity run -B /scratch /appl/local/laifs/containers/lumi-multitorch-latest.sif bash -c '
  export TRITON_CACHE_DIR=/tmp/$USER/triton
  mkdir -p "$TRITON_CACHE_DIR"
  python train.py '"${ARGS[*]}"' $(cat <<INNER
--extra
INNER
)'
