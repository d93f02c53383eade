#!/bin/bash
#SBATCH --nodes=2
export NCCL_NET_GDR_LEVEL=PHB
SIF=/appl/local/laifs/containers/lumi-multitorch-u24r70f21m50t210-20260415_130625/lumi-multitorch-full.sif
export FI_MR_CACHE_MONITOR=kdreg2 NCCL_PROTO=LL,LL128,Simple
srun singularity run --env NCCL_NET_GDR_LEVEL=3 $SIF python train.py
NCCL_MIN_NCHANNELS=32 srun singularity run $SIF python train.py
