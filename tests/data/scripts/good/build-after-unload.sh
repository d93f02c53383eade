#!/bin/bash
module load Local-LAIF lumi-aif-singularity-bindings
singularity exec image.sif true
module unload lumi-aif-singularity-bindings
singularity build new.sif recipe.def
ml singularity-AI-bindings/25.03-rocm6.2
ml -singularity-AI-bindings
cotainr build out.sif --system=lumi-g --conda-env env.yml
module load singularity-AI-bindings; module purge; apptainer build x.sif x.def
