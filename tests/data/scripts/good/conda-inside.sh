#!/bin/bash -l
#SBATCH --partition=standard-g
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
cat << EOF > run.sh
#!/bin/bash -e
\$WITH_CONDA
export ROCR_VISIBLE_DEVICES=\$SLURM_LOCALID
export MIOPEN_USER_DB_PATH="/tmp/$(whoami)-miopen-cache-\$SLURM_NODEID"
eval "\$@"
bash -c "\$WITH_CONDA; python other.py"
EOF
cat > other.sh <<'EOF'
$WITH_CONDA
d=$(mktemp -d)
export MIOPEN_USER_DB_PATH=$d
EOF
chmod +x run.sh
CPU_BIND="map_cpu:49,57,17,25,1,9,33,41"
srun --cpu-bind=${CPU_BIND} singularity exec $SIF bash -c '$WITH_CONDA ; cd /workdir ; ./run.sh python train.py'
srun --cpu-bind=${CPU_BIND} singularity exec $SIF bash -c "\$WITH_CONDA; python train.py"
srun singularity exec $SIF bash -c '
  $WITH_CONDA
  d=$(mktemp -d)
  export MIOPEN_USER_DB_PATH=$d
  python train.py --port 29500'
