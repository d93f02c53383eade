#!/bin/bash
module load cray-python
python -m venv --system-site-packages /projappl/project_465000000/venv
srun singularity exec $SIF bash -c 'source /projappl/project_465000000/venv/bin/activate; python train.py'
