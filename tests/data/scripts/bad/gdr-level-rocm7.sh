#!/bin/bash
export NCCL_NET_GDR_LEVEL=PHB
SIF=/appl/local/laifs/containers/lumi-multitorch-u24r70f21m50t210-20260415_130625/lumi-multitorch-full.sif
srun singularity run --env NCCL_NET_GDR_LEVEL=3 $SIF python train.py
