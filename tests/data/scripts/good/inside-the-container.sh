#!/bin/bash -e
# runs inside of the container, started by srun
$WITH_CONDA
export MASTER_PORT=25900
export WORLD_SIZE=$SLURM_NPROCS RANK=$SLURM_PROCID
if [[ $SLURM_LOCALID -eq 0 && -n "$HOME" ]] ; then mkdir -p "/tmp/$(whoami)" ; fi
echo "# not a comment: ${USER#x} $((1 + 2)) `hostname`" # a comment with an apostrophe: don't
case $1 in a|b) echo "x" ;; *) : ;; esac
python "$@"
