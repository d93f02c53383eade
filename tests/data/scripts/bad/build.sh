#!/bin/bash
module load Local-LAIF lumi-aif-singularity-bindings
singularity build new.sif recipe.def
/usr/bin/singularity --quiet build new.sif recipe.def
cotainr build out.sif --system=lumi-g
module unload lumi-aif-singularity-bindings
ml singularity-userfilesystems
srun apptainer build new.sif recipe.def
