#!/bin/bash
#SBATCH --partition=small-g --gpus=2
srun singularity exec -B /x --env A=b /appl/local/containers/sif-images/lumi-rocm-rocm-5.6.1.sif rocminfo
SIF=lumi-multitorch-latest.sif
RUN="singularity --quiet exec -eB /y $SIF"
srun $RUN python train.py
srun singularity exec $SIF python train.py
srun singularity run docker://nvcr.io/nvidia/pytorch:24.10-py3 python train.py
