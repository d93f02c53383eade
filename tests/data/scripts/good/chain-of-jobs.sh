#!/bin/bash
# submit a chain
set -e
submit() { sbatch --parsable "$@"; }
first=$(submit --export=ALL,STAGE=1 <<'JOB'
#!/bin/bash
#SBATCH --partition=dev-g
#SBATCH --nodes=1 --gpus-per-node=8 --ntasks-per-node=8 --cpus-per-task=7
srun bash -c 'ROCR_VISIBLE_DEVICES=$SLURM_LOCALID ./app $STAGE'
JOB
)
second=$(sbatch --parsable --dependency=afterok:${first##*;} -p small -n 1 -c 4 --wrap "python post.py && echo \"done\"")
while squeue -h -j "$second" | grep -q .; do sleep 10; done
python3 - "$second" <<PY
import sys
d = {"a": "it's", 'b': """x"""}
print(f"{d['a']} ${USER}", sys.argv)
PY
awk '{ if ($1 > 3) { print "big", $2 } }' <<< "4 x" > "out.$(date +%F)"
