#!/bin/bash
#SBATCH --account=project_465001362
#SBATCH --partition=dev-g
#SBATCH --nodes=1 --exclusive --mem=480G
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --time=00:20:00
cat > gpu_of_rank <<'EOF'
#!/bin/bash
order=(4 5 2 3 6 7 0 1)
export ROCR_VISIBLE_DEVICES=${order[$SLURM_LOCALID]}
exec "$@"
EOF
chmod +x gpu_of_rank
srun --cpu-bind=map_cpu:1,9,17,25,33,41,49,57 ./gpu_of_rank ./app
