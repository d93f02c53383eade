#!/bin/bash
#SBATCH --partition=standard-g
MIOPEN_DIR=$(mktemp -d)
export MIOPEN_CUSTOM_CACHE_DIR=$MIOPEN_DIR/cache
export MIOPEN_USER_DB=$MIOPEN_DIR/config
srun singularity exec --env MIOPEN_USER_DB=/tmp/x,A=b image.sif true
SINGULARITYENV_MIOPEN_USER_DB=/tmp/x srun singularity exec image.sif true
cache=`mktemp -d`
export MIOPEN_USER_DB_PATH="${cache}/db"
other=$(mktemp -d)
export TMPDIR=$other
srun bash -c 'export MIOPEN_USER_DB=/tmp/y'
export MIOPEN_CUSTOM_CACHE_DIR=$(mktemp -d)
