# ---- cores that several GPUs have near them, in part of a node
# Of the granted CPUs in `pool`, which follow their cores, the run of GPU $1 is joined to `runs`: one run for each of the
# other GPUs there, $2 and so on, that the step has. Where each task has but its own GPU in Slurm's list, all count.
share() {
	mine=$1 among=0 at=0
	shift
	theirs=" $* "
	if [ "$gpus" = "$tasks" ] && expand "${SLURM_STEP_GPUS-}"; then theirs=$words; fi
	for word in "$@"; do
		case $theirs in *" $word "*) ;; *) continue ;; esac
		[ "$word" != "$mine" ] || at=$among
		among=$((among + 1))
	done
	words=$pool
	[ "$among" != 0 ] && within_granted || return 0
	# Whole cores, where both threads of each are meant.
	each=$((count / among / threads * threads))
	at=$((at * each))
	while [ "$cpus" ] && [ "$each" -gt 0 ]; do
		word=${cpus%%,*} at=$((at - 1))
		case $cpus in *,*) cpus=${cpus#*,} ;; *) cpus='' ;; esac
		[ "$at" -lt 0 ] || continue
		runs="$runs $word" each=$((each - 1))
	done
}
