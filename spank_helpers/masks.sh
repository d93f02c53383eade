# shellcheck disable=SC2086  # lists of numbers are split
# ---- the CPU mask: no mask is better than a wrong one, and Slurm's own binding stays where there is none
# Slurm's list of numbers, such as 0-2,5: $words are its numbers.
expand() {
	words=' ' count=0 rest=$1,
	case $1 in '' | *[!0-9,-]*) return 1 ;; esac
	while [ "$rest" ]; do
		part=${rest%%,*} rest=${rest#*,}
		number first "${part%-*}" 8192
		number last "${part#*-}" 8192
		[ "$last" -lt 8192 ] && [ "$count" -lt 8192 ] || return 1
		while [ "$first" -le "$last" ]; do
			words="$words$first " count=$((count + 1)) first=$((first + 1))
		done
	done
}
pick() {
	[ "$1" -lt "$(($# - 1))" ] || return 1
	shift "$(($1 + 1))"
	answer=$1
}

# ---- what touches the node
# $granted are the CPUs of the step, by its cgroup (version 2 or 1), and empty where Slurm made none.
granted_cpus() {
	granted=''
	read_line group /proc/self/cpuset
	while [ -z "$granted" ]; do
		case $group in */job_*/step_*) ;; *) return ;; esac
		read_line cpus "/sys/fs/cgroup$group/cpuset.cpus.effective"
		[ "$cpus" ] || read_line cpus "/sys/fs/cgroup/cpuset$group/cpuset.cpus"
		if expand "$cpus"; then granted=$words; fi
		group=${group%/*}
	done
}

count_tasks() {
	IFS=,
	set -- ${SLURM_GTIDS-}
	unset IFS
	tasks=$#
	[ "$ls_local_id" -lt "$tasks" ]
}
# Whether the user has bound the task. Slurm lists masks of theirs without 0x, its own with it.
bound_by_user() {
	case $users_binding,${LUMISITE_CPU_BIND-} in 1,* | ,off | ,no | ,none) return 0 ;; esac
	case ${SLURM_CPU_BIND_TYPE:-${SLURM_CPU_BIND-}}/${SLURM_CPU_BIND_LIST:-${SLURM_CPU_BIND-}} in
	*mask_cpu*/0x* | *mask_cpu*/*mask_cpu:0x*)
		# A step inside this one would inherit its masks as if they were the user's wish.
		for name in '' _LIST _TYPE _VERBOSE; do drop "SLURM_CPU_BIND$name"; done
		return 1
		;;
	*mask_cpu*/* | *map_cpu*/* | *ldom*/* | *rank*/*) ;;
	*) return 1 ;;
	esac
}
# $gpu is empty where all tasks see the same ones and their number is another. Under a GPU binding that gives the task
# one, SLURM_STEP_GPUS names that one.
gpu_of_task() {
	gpu='' gpus=0 index=$ls_local_id binding=${SLURM_GPU_BIND:-${SLURM_TRES_BIND-}}
	if expand "${SLURM_STEP_GPUS-}"; then gpus=$count; fi
	case $gpus,${LUMISITE_GPUS-},$binding in
	"$tasks",*, | "$tasks",*none*) ;;
	0,one, | 0,one,*none*)
		[ "$tasks" -ge "$kind_gpus" ] || gpu=$ls_local_id
		return 0
		;;
	*,*, | *none*) return 0 ;;
	1,*) index=0 ;;
	0,*map:*) expand "${binding##*map:}" || return ;;
	*) return 1 ;;
	esac
	pick "$index" $words && gpu=$answer
}
# On request. A list of one GPU, or of something else than numbers, stays.
one_gpu() {
	[ "${LUMISITE_GPUS-}" = one ] && [ -z "$misfit" ] || return
	own=own
	case $2 in
	'') [ "$kind_gpus" -le "$ls_local_id" ] || offer "$1" '' "$ls_local_id" "$4" ;;
	*-*) ;;
	x*,*) expand "${2#x}" && pick "$ls_local_id" $words && offer "$1" '' "$answer" "$4" ;;
	esac
	own=
}
refuse() {
	why=$1
	return 1
}
# Tasks on a node, or `near`; index of a task or GPU; threads of a core: its $cpus on a whole node, $count is the fewest.
row() { ls_site_cpus "$ls_kind/$1/$3" && pick "$2" $lists && cpus=$answer; }
# Whether all of the node is this step's: by its cgroup, else by what Slurm says, where that leaves no doubt.
whole_node() {
	row 1 0 "$threads" || return
	if [ "$granted" ]; then
		expand "$cpus"
		for word in $words; do case $granted in *" $word "*) ;; *) return 1 ;; esac done
		return 0
	fi
	if [ "$whole_nodes" ] || ! row 1 0 2; then row 1 0 1; fi
	number on_node "${SLURM_CPUS_ON_NODE-}" 0
	[ "$on_node" -ge "$count" ]
}
near_and_granted() {
	[ "$granted" ] || refuse "the job has part of a node, and its CPUs could not be determined (no cgroup cpuset)" || return
	if [ "$gpu" ]; then
		row near "$gpu" "$threads"
	else
		[ "$tasks" = 1 ] || refuse "part of a node, and $tasks tasks do not match the $gpus GPUs of the step" || return
		row 1 0 "$threads"
	fi || cpus=
	expand "$cpus" || words=
	cpus='' count=0 own=own
	for word in $words; do
		case $granted in *" $word "*) cpus=$cpus${cpus:+,}$word count=$((count + 1)) ;; esac
	done
	[ "$cpus" ] || refuse "none of the granted CPUs is${gpu:+ near GPU $gpu and} for tasks"
}
choose_cpus() {
	threads=1
	case ${SLURM_HINT-},${SLURM_THREADS_PER_CORE-} in nomultithread,*) ;; multithread,* | *,2) threads=2 ;; esac
	number least "${SLURM_CPUS_PER_TASK-}" 0
	gpu_of_task || refuse "which GPU a task has is not known under this GPU binding" || return
	granted_cpus
	if ! whole_node; then
		near_and_granted || return
	elif [ "$tasks" != 1 ] && [ -z "$gpu" ] && [ "$gpus" != 0 ] && [ "$gpus" != "$kind_gpus" ]; then
		refuse "$tasks tasks do not match the $gpus GPUs of the step" || return
	else
		set -- "$tasks" "$ls_local_id"
		if [ "$tasks" != 1 ] && [ "$gpu" ]; then set -- "$kind_gpus" "$gpu"; fi
		row "$@" "$threads" || refuse "the site has no masks for $tasks tasks on a $ls_kind node" || return
		if [ "$count" -lt "$least" ] && [ "$threads" = 1 ]; then
			threads=2
			# Without the second threads the task keeps one thread of each core, which the check below refuses.
			if ! whole_node || ! row "$@" 2; then row "$@" 1; fi
		fi
	fi
	[ "$count" -ge "$least" ] || refuse "it would have fewer CPUs than the $least that --cpus-per-task asks for"
}
bind_task() {
	[ "$ls_kind" ] || refuse "${misfit:-partition $ls_partition is not described}" || return
	! bound_by_user || refuse "the binding is yours" || return
	count_tasks || refuse "how many tasks this node has is not known" || return
	number pid "${SLURM_TASK_PID-}" ''
	[ "$pid" ] || refuse "the task has no process id" || return
	choose_cpus || return
	own=own
	[ "$ls_mode" = observe ] || run_taskset -cp "$cpus" "$pid" || refuse "taskset refused $cpus" || return
	note cpus "$cpus $gpu" "CPUs $cpus (task $ls_local_id of $tasks on a $ls_kind node${gpu:+, near GPU $gpu})"
}
