#!/bin/bash
srun singularity exec $SIF bash -c "$WITH_CONDA; python train.py"
singularity exec $SIF $WITH_CONDA python train.py
srun singularity exec $SIF \
  bash -c "cd /x
           ${WITH_CONDA}
           python train.py"
cat << EOF > run.sh
#!/bin/bash
$WITH_CONDA
EOF
