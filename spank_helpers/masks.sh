# ---- 7 CPUs: no mask is better than a wrong one, and Slurm's own binding stays where there is none
# Sets $cpus, or $why there are none.
decide_cpus() {
	cpus='' why='' whose=''
	case $kind in '') refuse "$misfit" || return ;; esac
	! bound_by_user || refuse "the binding is yours" || return
	count_tasks || refuse "how many tasks this node has is not known" || return
	to_number "${SLURM_TASK_PID-}" ''
	[ "$number" ] || refuse "the task has no process id" || return
	find_gpu || refuse "which GPU a task has is not known under this GPU binding" || return
	choose_cpus
}
refuse() {
	cpus='' why=$1
	return 1
}
# Whether the user has bound the task. Slurm lists masks of theirs without 0x, its own with it.
bound_by_user() {
	case $users_binding,${LUMISITE_CPU_BIND-} in 1,* | ,off | ,no | ,none) return ;; esac
	binding=${SLURM_CPU_BIND_TYPE:-${SLURM_CPU_BIND-}}/${SLURM_CPU_BIND_LIST:-${SLURM_CPU_BIND-}}
	! is_long "$binding" || return 0
	case $binding in
	*mask_cpu*/0x* | *mask_cpu*/*mask_cpu:0x*)
		# A step inside this one would inherit Slurm's masks as if they were the user's wish.
		for name in '' _LIST _TYPE _VERBOSE; do drop "SLURM_CPU_BIND$name"; done
		return 1
		;;
	*mask_cpu*/* | *map_cpu*/* | *ldom*/* | *rank*/*) ;;
	*) return 1 ;;
	esac
}
# Sets $tasks, of the step on this node.
count_tasks() {
	tasks=0
	! is_long "${SLURM_GTIDS-}" || return
	IFS=,
	for _ in ${SLURM_GTIDS-}; do tasks=$((tasks + 1)); done
	unset IFS
	[ "$local_id" -lt "$tasks" ]
}
# Sets $numbers to those of Slurm's list, such as 0-2,5, with blanks around each, and $count.
expand() {
	numbers=' ' count=0
	! is_long "$1" || return
	case $1 in '' | *[!0-9,-]*) return 1 ;; esac
	IFS=,
	for range in $1; do
		to_number "${range%-*}" 8192 && first=$number
		to_number "${range#*-}" 8192 && last=$number
		while [ "$first" -le "$last" ] && [ "$count" -lt 4096 ]; do
			numbers="$numbers$first " count=$((count + 1)) first=$((first + 1))
		done
		[ "$first" -gt "$last" ] && [ "$last" -lt 8192 ] || count=8192
	done
	unset IFS
	[ "$count" -le 4096 ]
}
# Sets $picked to word number $1, from 0 on, of $2.
pick() {
	position=0
	for picked in $2; do
		[ "$position" != "$1" ] || return 0
		position=$((position + 1))
	done
	return 1
}
# Sets $gpu to the one of the task, empty where all tasks see the same ones and their number is
# another; $gpus_of_step is how many there are. Under a GPU binding that gives the task one,
# SLURM_STEP_GPUS names that one.
find_gpu() {
	gpu='' gpus_of_step=0 index=$local_id binding=${SLURM_GPU_BIND:-${SLURM_TRES_BIND-}}
	if expand "${SLURM_STEP_GPUS-}"; then gpus_of_step=$count; fi
	! is_long "$binding" || return
	case $gpus_of_step,$binding in
	"$tasks", | "$tasks",*none*) ;;
	*, | *none*) return 0 ;;
	1,*) index=0 ;;
	*) return 1 ;;
	esac
	pick "$index" "$numbers" && gpu=$picked
}
choose_cpus() {
	row 1 0 1 || refuse "the site has no masks for a $kind node" || return
	threads=1
	case ${SLURM_HINT-},${SLURM_THREADS_PER_CORE-} in
	nomultithread,*) ;;
	multithread,* | *,2) threads=2 ;;
	esac
	to_number "${SLURM_CPUS_PER_TASK-}" 0 && wanted_cpus=$number
	know_granted_cpus
	if whole_node; then cpus_of_whole_node; else cpus_of_part; fi || return
	[ "$cpu_count" -ge "$wanted_cpus" ] ||
		refuse "it would have fewer CPUs than the $wanted_cpus that --cpus-per-task asks for"
}
# Sets $granted to the CPUs of the step, by its cgroup (version 2 or 1), with blanks around each;
# it is empty where Slurm made none.
know_granted_cpus() {
	granted='' group=''
	read_line /proc/self/cpuset && group=$line
	while [ -z "$granted" ]; do
		case $group in */job_*/step_*) ;; *) return ;; esac
		read_line "/sys/fs/cgroup$group/cpuset.cpus.effective"
		[ "$line" ] || read_line "/sys/fs/cgroup/cpuset$group/cpuset.cpus"
		if expand "$line"; then granted=$numbers; fi
		group=${group%/*}
	done
}
# Sets $line to the first line of a file, empty where there is none.
read_line() {
	line=''
	[ ! -r "$1" ] || read -r line <"$1" || :
}
# Sets $cpus from the site's table, and $cpu_count to the fewest that a task of the row has. The row
# of so many tasks on a whole node, or `near` GPUs; index of a task or GPU; threads of a core.
row() { site_cpus "$kind/$1/$3" && pick "$2" "$lists" && cpus=$picked cpu_count=$fewest; }
# Whether all of the node is this step's: by its cgroup, else by what Slurm says, where that leaves
# no doubt.
whole_node() {
	row 1 0 "$threads" || return
	if [ "$granted" ]; then
		expand "$cpus"
		for number in $numbers; do case $granted in *" $number "*) ;; *) return 1 ;; esac done
		return 0
	fi
	if [ "$whole_nodes" ] || ! row 1 0 2; then row 1 0 1; fi
	to_number "${SLURM_CPUS_ON_NODE-}" 0
	[ "$number" -ge "$cpu_count" ]
}
cpus_of_whole_node() {
	rows=$tasks index=$local_id
	# With all GPUs, or none, the row for so many tasks; with one GPU a task, the part next to that.
	case $tasks,$gpu,$gpus_of_step in
	1,* | *,,0 | *,,"$kind_gpus") ;;
	*,,*) refuse "$tasks tasks do not match the $gpus_of_step GPUs of the step" || return ;;
	*) rows=$kind_gpus index=$gpu ;;
	esac
	row "$rows" "$index" "$threads" ||
		refuse "the site has no masks for $tasks tasks on a $kind node" || return
	[ "$cpu_count" -lt "$wanted_cpus" ] && [ "$threads" = 1 ] || return 0
	# Both threads of its cores may be enough; without them it keeps one of each, and gets no mask.
	threads=2
	whole_node || threads=1
	row "$rows" "$index" "$threads" || row "$rows" "$index" 1
}
cpus_of_part() {
	case $granted,$gpu,$tasks in
	,*)
		why='the job has part of a node, and its CPUs could not be determined (no cgroup cpuset)'
		refuse "$why" || return
		;;
	*,?*,*) row near "$gpu" "$threads" || cpus='' ;;
	*,,1) row 1 0 "$threads" || cpus='' ;;
	*)
		why="part of a node, and $tasks tasks do not match the $gpus_of_step GPUs of the step"
		refuse "$why" || return
		;;
	esac
	expand "$cpus" || numbers=''
	cpus='' cpu_count=0 whose=own
	for number in $numbers; do
		case $granted in *" $number "*) cpus=$cpus${cpus:+,}$number cpu_count=$((cpu_count + 1)) ;; esac
	done
	[ "$cpus" ] || refuse "none of the granted CPUs is${gpu:+ near GPU $gpu and} for tasks"
}

# ---- for step 8
bind_task() {
	case $cpus in '') return ;; esac
	whose=own
	run taskset -cp "$cpus" "$SLURM_TASK_PID" || refuse "taskset refused $cpus"
}
tell_cpus() {
	told="CPUs $cpus (task $local_id of $tasks on a $kind node${gpu:+, near GPU $gpu})"
	case $cpus in '') told="no CPU binding: $why" ;; esac
	case $mode,$verbose in observe,) say "$told" ;; esac
	case $cpus in
	'') note no-cpus "$why" "$told" "$whose" ;;
	*) note cpus "$cpus $gpu" "$told" own ;;
	esac
}
