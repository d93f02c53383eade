#!/usr/bin/env bash
#SBATCH --partition=small --nodes=1 --ntasks=4 --cpus-per-task=4 --mem-per-cpu=2G
module load LUMI cray-python
python -m venv --system-site-packages $HOME/venv
source $HOME/venv/bin/activate
trap 'echo "caught"; kill -TERM $pid' TERM
srun --exact -n 1 python a.py & pid=$!
( cd sub && srun --exact -n 1 python b.py ) &
coproc worker { cat; }
wait
select_x() { : ${1:?need "one" (arg)}; }
x=$((1<<3)); y=$[2+3]; (( z = x << 1 ))
(( x > 2 )) && echo ${x//1/2} ${y^^} ${z:+"set ${z}"}
cat <<-END | sed 's/#//' 
	# singularity build x.sif
	END
diff <(sort a) <(sort b) >/dev/null || true
find . -name '*.tmp' -exec rm {} \;
echo 'unbalanced ( in quotes' "and \" here" $'a\tb' # it's fine
