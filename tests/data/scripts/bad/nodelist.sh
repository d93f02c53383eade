#!/bin/bash
export MASTER_ADDR=$(echo $SLURM_NODELIST | cut -d, -f1)
export MASTER_ADDR=${SLURM_JOB_NODELIST%%,*}
MASTER_ADDR=$(echo "$SLURM_JOB_NODELIST" | sed 's/[][]//g; s/[-,].*//')
export MASTER_ADDR=$SLURM_NODELIST
