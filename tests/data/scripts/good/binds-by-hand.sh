#!/bin/bash
export SINGULARITY_BIND='/pfs,/scratch,/projappl,/project,/flash,/appl'
export LD_LIBRARY_PATH=/opt/cray/libfabric/1.22.0/lib64:$LD_LIBRARY_PATH
singularity exec -B /opt/cray/libfabric/1.22.0/lib64:/x image.sif true
# singularity exec -B /opt/cray/libfabric/1.15.2.0 image.sif true
