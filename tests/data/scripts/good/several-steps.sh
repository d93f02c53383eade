#!/bin/bash
#SBATCH -p dev-g -N 2 --gpus-per-node=8 --ntasks-per-node=8 --cpus-per-task=7 --mem-per-gpu=60G
module load singularity-AI-bindings
SIF=/appl/local/laifs/containers/lumi-multitorch-latest.sif
export NCCL_DEBUG=INFO
export NCCL_DEBUG_SUBSYS=INIT,COLL
for opt in "" "NCCL_NET_GDR_LEVEL=3"; do echo "would try $opt"; done
for n in 1 2; do
  srun -N $n --ntasks-per-node=8 singularity run $SIF python bench.py |& tee bench.$n
done
if srun -N 1 -n 1 singularity run $SIF test -f /x; then echo yes; fi
module unload singularity-AI-bindings
singularity build --sandbox tmp.sb $SIF
