#!/bin/bash
#SBATCH --account=project_465002178
#SBATCH --partition=small-g
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=28
#SBATCH --mem=240G
#SBATCH --time=01:00:00
export VLLM_WORKER_MULTIPROC_METHOD=spawn
srun singularity run /appl/local/laifs/containers/lumi-multitorch-latest.sif \
  python -m vllm.entrypoints.openai.api_server --model Qwen/Qwen2.5-72B \
    -tp 8 --dtype bfloat16
