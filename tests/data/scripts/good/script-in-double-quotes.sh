#!/bin/bash
#SBATCH --partition=standard-g --nodes=1 --gpus-per-node=8 --tasks-per-node=8
wd=$(pwd)
jobid=$(squeue --me | head -2 | tail -n1 | awk '{print $1}')
printf -v N '%s' "$(scontrol show hostnames | wc -l)"
Nodes=1; Ntasks=$((8*Nodes))
if [ "${1:-}" = "" ]; then
  echo "usage: $0 'srun -n 8 --gpu-bind=closest app'" ; exit 1
fi
MYMASKS1="0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,0xfe0000000000"
srun -N $Nodes -n $Ntasks --gpus $((Nodes*8)) --cpu-bind=mask_cpu:$MYMASKS1 \
  singularity exec \
    -B "$wd:/workdir" \
    -B /opt/cray/libfabric/1.22.0/lib64/libfabric.so.1 \
    ${SIFPYTORCH} \
    bash -c "
      set -e
      export MIOPEN_USER_DB_PATH=\"/tmp/\$(whoami)-miopen-cache-\$SLURM_NODEID\"
      export MIOPEN_CUSTOM_CACHE_DIR=\$MIOPEN_USER_DB_PATH
      if [ \$SLURM_LOCALID -eq 0 ] ; then rm -rf \$MIOPEN_USER_DB_PATH; mkdir -p \$MIOPEN_USER_DB_PATH; fi
      sleep 2
      export RANK=\$SLURM_PROCID ROCR_VISIBLE_DEVICES=\$SLURM_LOCALID
      export NCCL_SOCKET_IFNAME=hsn0,hsn1,hsn2,hsn3
      python -u mnist.py
    "
