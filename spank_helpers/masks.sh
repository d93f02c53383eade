# ---- 7 CPUs: no mask is better than a wrong one, and Slurm's own binding stays where there is none
# Sets $cpus to the CPUs of the task, or $no_mask to why it gets none.
decide_cpus() {
	cpus='' no_mask=''
	if [ -z "$kind" ]; then
		no_mask=$misfit
	elif is_bound_by_user; then
		no_mask='the binding is yours'
	else
		drop_slurms_binding
		choose_cpus
	fi
}
# Slurm lists its own masks with 0x, and a user's without.
is_bound_by_user() {
	case ${LUMISITE_CPU_BIND-},${SLURM_CPU_BIND-} in
	user,* | off,* | no,* | none,*) ;;
	*mask_cpu:0x*) return 1 ;;
	*mask_cpu:* | *map_cpu:* | *ldom* | *rank*) ;;
	*) return 1 ;;
	esac
}
# A step inside this one would inherit Slurm's masks as if they were the user's wish.
drop_slurms_binding() {
	case ${SLURM_CPU_BIND-} in
	*mask_cpu:0x*) for name in '' _LIST _TYPE _VERBOSE; do drop "SLURM_CPU_BIND$name"; done ;;
	esac
}
choose_cpus() {
	count_tasks
	find_gpu
	know_granted_cpus
	ls_to_number "${SLURM_CPUS_PER_TASK-}" 0 && wanted_cpus=$ls_number
	ls_to_number "${SLURM_TASK_PID-}" ''
	if [ "$ls_local_id" -ge "$task_count" ]; then
		no_mask='how many tasks this node has is not known'
	elif [ -z "$ls_number" ]; then
		no_mask='the task has no process id'
	elif [ "$gpu" = unknown ]; then
		no_mask='which GPU a task has is not known under this GPU binding'
	elif ! site_cpus "$kind/1/1"; then
		no_mask="the site has no masks for a $kind node"
	else
		choose_threads
		if has_whole_node; then cpus_of_whole_node; else cpus_of_part; fi
	fi
	if [ -z "$no_mask" ] && [ "$cpu_count" -lt "$wanted_cpus" ]; then
		no_mask="it would have fewer CPUs than the $wanted_cpus that --cpus-per-task asks for"
	fi
}
# Sets $task_count, of the step on this node; 0 if it is not known.
count_tasks() {
	task_count=0
	if ls_is_long "${SLURM_GTIDS-}"; then return; fi
	IFS=,
	for _ in ${SLURM_GTIDS-}; do task_count=$((task_count + 1)); done
	unset IFS
}
# Sets $gpu_count, of the step on this node, and $gpu: the GPU of the task, `unknown` where only
# Slurm knows it, empty where several tasks share one, or one has several.
find_gpu() {
	gpu='' gpu_count=0
	if expand "${SLURM_STEP_GPUS-}"; then gpu_count=$count; fi
	case ${SLURM_GPU_BIND:-${SLURM_TRES_BIND-}} in
	'' | *none*)
		# Each task sees all of them; where they are as many as the tasks, each has one.
		case $gpu_count in "$task_count") pick "$ls_local_id" "$numbers" && gpu=$picked ;; esac
		;;
	*)
		# Each task sees its own, which is then the only one of that list.
		case $gpu_count in 1) pick 0 "$numbers" && gpu=$picked ;; *) gpu=unknown ;; esac
		;;
	esac
}
# Sets $granted_cpus to those of the step, by its cgroup (version 2 or 1), with blanks around each;
# it is empty where Slurm made none.
know_granted_cpus() {
	granted_cpus='' cgroup=''
	read_line /proc/self/cpuset && cgroup=$line
	while [ -z "$granted_cpus" ]; do
		case $cgroup in */job_*/step_*) ;; *) return ;; esac
		read_line "/sys/fs/cgroup$cgroup/cpuset.cpus.effective" ||
			read_line "/sys/fs/cgroup/cpuset$cgroup/cpuset.cpus"
		if expand "$line"; then granted_cpus=$numbers; fi
		cgroup=${cgroup%/*}
	done
}
# Sets $line to the first line of a file, empty where there is none.
read_line() {
	line=''
	if [ -r "$1" ]; then read -r line <"$1"; fi
	[ "$line" ]
}
# Sets $threads, of a core, that a task gets: both where that is said, or its cores are too few.
choose_threads() {
	threads=1
	case ${SLURM_HINT-},${SLURM_THREADS_PER_CORE-} in
	nomultithread,*) ;;
	multithread,* | *,2) threads=2 ;;
	*) [ $((wanted_cpus * task_count)) -le "$fewest" ] || threads=2 ;;
	esac
}
# Whether all of the node that is for tasks is this step's: by its cgroup, else by Slurm's count.
has_whole_node() {
	if [ "$granted_cpus" ]; then
		take_row 1 0 && keep_granted && [ "$granted_count" = "$row_count" ]
	else
		ls_to_number "${SLURM_CPUS_ON_NODE-}" 0
		[ "$ls_number" -ge "$whole_cpus" ]
	fi
}
# With all GPUs, or none, those for so many tasks; with one GPU a task, those next to that. Tasks,
# GPU of the task, GPUs of the step: 4,,8 takes the row of 4 tasks, 3,2,3 that of GPU 2, 3,,2 none.
cpus_of_whole_node() {
	case $task_count,$gpu,$gpu_count in
	1,* | *,,0 | *,,"$kind_gpus") take_row "$task_count" "$ls_local_id" ;;
	*,,*) no_mask="$task_count tasks do not match the $gpu_count GPUs of the step" ;;
	*) take_row "$kind_gpus" "$gpu" ;;
	esac || no_mask="the site has no masks for $task_count tasks on a $kind node"
}
# Those that were granted, of those near the task's GPU, or for the only task of all.
cpus_of_part() {
	granted_of_row='' granted_count=0
	case $granted_cpus,$gpu,$task_count in
	,*)
		no_mask='the job has part of a node, and its CPUs could not be determined (no cgroup cpuset)'
		;;
	*,?*,*) take_row near "$gpu" && keep_granted ;;
	*,,1) take_row 1 0 && keep_granted ;;
	*) no_mask="part of a node, and $task_count tasks do not match the $gpu_count GPUs of the step" ;;
	esac || no_mask="none of the granted CPUs is${gpu:+ near GPU $gpu and} for tasks"
	cpus=$granted_of_row cpu_count=$granted_count
}

# Sets $cpus from the site's table, and $cpu_count to the fewest that a task of the row has. The row
# of so many tasks on a whole node, or `near` GPUs; the number of the task or GPU.
take_row() {
	site_cpus "$kind/$1/$threads" && pick "$2" "$lists" && cpus=$picked cpu_count=$fewest
}
# Sets $row_count to how many $cpus are, $granted_of_row to those that are granted, and
# $granted_count to how many these are.
keep_granted() {
	granted_of_row='' granted_count=0
	expand "$cpus" && row_count=$count
	for number in $numbers; do
		case $granted_cpus in
		*" $number "*)
			granted_of_row=$granted_of_row${granted_of_row:+,}$number
			granted_count=$((granted_count + 1))
			;;
		esac
	done
	[ "$granted_of_row" ]
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
# Sets $numbers to those of a list of Slurm's or the kernel's, such as 0-2,5, with blanks around
# each, and $count to how many they are. What is no number makes a list too long to be one.
expand() {
	numbers=' ' count=0
	if ls_is_long "$1"; then return 1; fi
	case $1 in '' | *[!0-9,-]*) return 1 ;; esac
	IFS=,
	for range in $1; do
		ls_to_number "${range%-*}" 0 && first=$ls_number
		ls_to_number "${range#*-}" 9999 && last=$ls_number
		while [ "$first" -le "$last" ] && [ "$count" -le 4096 ]; do
			numbers="$numbers$first " first=$((first + 1)) count=$((count + 1))
		done
	done
	unset IFS
	[ "$count" -le 4096 ]
}

# ---- for step 8
bind_task() {
	case $no_mask in ?*) return ;; esac
	run taskset -cp "$cpus" "$SLURM_TASK_PID" || no_mask="taskset refused $cpus"
}
tell_cpus() {
	text="CPUs $cpus (task $ls_local_id of $task_count on a $kind node${gpu:+, near GPU $gpu})"
	case $no_mask in ?*) text="no CPU binding: $no_mask" ;; esac
	case $ls_mode in observe) ls_say "$text" ;; *) ls_note_own "$text" ;; esac
}
