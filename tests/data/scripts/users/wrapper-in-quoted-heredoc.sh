#!/bin/bash -l
#SBATCH -A project_465001098
#SBATCH -p standard-g
#SBATCH -N 4 --ntasks-per-node=8 --gpus-per-node=8
#SBATCH -t 1-00:00:00
#SBATCH -o slurm-%j.out

cat << 'EOF' > select_gpu_$SLURM_JOB_ID
#!/bin/bash
export ROCR_VISIBLE_DEVICES=$SLURM_LOCALID
exec "$@"
EOF
cat << EOF > report_$SLURM_JOB_ID
#!/bin/bash
echo "rank \$SLURM_PROCID of job $SLURM_JOB_ID"
export RANK=\$SLURM_PROCID
EOF
chmod +x select_gpu_$SLURM_JOB_ID report_$SLURM_JOB_ID

export MPICH_GPU_SUPPORT_ENABLED=1
CPU_BIND="mask_cpu:7e000000000000,7e00000000000000"
CPU_BIND="${CPU_BIND},7e0000,7e000000"
CPU_BIND="${CPU_BIND},7e,7e00"
CPU_BIND="${CPU_BIND},7e00000000,7e0000000000"
srun --cpu-bind=${CPU_BIND} ./select_gpu_$SLURM_JOB_ID ./gmx_mpi mdrun -s topol.tpr -nsteps 100000
rm -f select_gpu_$SLURM_JOB_ID report_$SLURM_JOB_ID
