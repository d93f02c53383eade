#!/bin/bash
#SBATCH --partition=standard-g
export MASTER_PORT=29500
