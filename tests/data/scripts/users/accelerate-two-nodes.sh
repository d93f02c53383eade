#!/bin/bash
#SBATCH --account=project_465001726
#SBATCH --partition=standard-g
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=56
#SBATCH --time=03:00:00
#SBATCH --output=%x_%j.log
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=12802
export NCCL_DEBUG=WARN
export HF_HOME=/scratch/project_465001726/hf
srun singularity run /appl/local/laifs/containers/lumi-multitorch-latest.sif bash -c "accelerate launch \
   --num_machines $SLURM_NNODES --num_processes 16 --machine_rank \$SLURM_NODEID \
   --main_process_ip $MASTER_ADDR --main_process_port $MASTER_PORT run_clm.py"
