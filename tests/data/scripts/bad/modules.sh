#!/bin/bash
#SBATCH --partition=small-g
module use /appl/local/training/modules/AI-20240529/
module load singularity-userfilesystems/default
module load singularity-AI-bindings/99.99
ml singularity-CPEbits/25.03-rocm6.2
