#!/bin/bash
export SINGULARITY_BIND=/var/spool/slurmd,/opt/cray/libfabric/1.15.2.0/lib64,/usr/lib64/libcxi.so.1
export SINGULARITYENV_LD_LIBRARY_PATH=/opt/cray/libfabric/1.15.2.0/lib64
singularity exec -B /opt/cray/libfabric/1.15.2.0 image.sif true
