#!/bin/bash
#SBATCH -J vllm-serve
#SBATCH -A project_465002178
#SBATCH -p standard-g
#SBATCH -N 2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH -t 08:00:00
SIF=/appl/local/laifs/containers/lumi-multitorch-u24r70f21m50t210-20260415_130625/lumi-multitorch-full.sif
HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -1)
HEAD_IP=$(srun -N1 -n1 -w "$HEAD" hostname -i | awk '{print $1}')
export HF_HOME=/scratch/project_465002178/hf-cache
srun -N1 -n1 -w "$HEAD" singularity run -B /scratch $SIF ray start --head --port=6379 --num-gpus=8 &
sleep 20
srun -N1 -n1 -x "$HEAD" singularity run -B /scratch $SIF bash -c "ulimit -n 65536; ray start --address=$HEAD_IP:6379" &
sleep 20
singularity run -B /scratch $SIF vllm serve meta-llama/Llama-3.1-405B \
  --tensor-parallel-size 16 \
  --distributed-executor-backend ray --port 8000
