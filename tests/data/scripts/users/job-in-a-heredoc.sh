#!/bin/bash
# submits one job for each seed
#SBATCH --job-name=submit
#SBATCH --account=project_462000371
#SBATCH --partition=small
#SBATCH --time=00:10:00 # long enough

for seed in 1 2 3; do
  sbatch <<EOF
#!/bin/bash
#SBATCH --job-name=seed-$seed
#SBATCH --account=$SLURM_JOB_ACCOUNT
#SBATCH --partition=small-g
#SBATCH --gpus-per-node=1
#SBATCH --output=/scratch/$SLURM_JOB_ACCOUNT/seed-$seed.out
srun python train.py --seed $seed
EOF
done
