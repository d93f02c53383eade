# ---- the CPU mask; no mask is better than a wrong one, and Slurm's own binding stays where there is none
# Slurm's list of numbers, such as 0-2,5: words are its numbers, count is how many.
expand() {
	words=' ' count=0 rest=$1
	case $rest in '' | *[!0-9,-]*) return 1 ;; esac
	rest=$rest,
	while [ "$rest" ]; do
		part=${rest%%,*} rest=${rest#*,}
		number "${part%-*}" ''
		first=$answer
		number "${part#*-}" ''
		last=$answer
		[ "$first" ] && [ "$last" ] && [ "$last" -lt 8192 ] && [ "$count" -lt 8192 ] || return 1
		while [ "$first" -le "$last" ]; do
			words="$words$first " count=$((count + 1)) first=$((first + 1))
		done
	done
}
# The CPUs of the step, by its cgroup (version 2 or 1), as the kernel lists them; nothing where Slurm made none.
granted_cpus() {
	granted='' place=''
	own_cpuset
	while :; do
		case $place in */job_*/step_*) ;; *) return 1 ;; esac
		for file in "/sys/fs/cgroup$place/cpuset.cpus.effective" "/sys/fs/cgroup/cpuset$place/cpuset.cpus"; do
			[ -r "$file" ] && read -r granted <"$file" && [ "$granted" ] && return 0
		done
		place=${place%/*}
	done
}
# The entry of a Slurm list such as 8(x2),4 that belongs to this node.
tasks_here() {
	rest=${SLURM_STEP_TASKS_PER_NODE:-${SLURM_TASKS_PER_NODE-}}
	number "${SLURM_NODEID-}" 0
	index=$answer
	case $rest in '' | *[!0-9,x\(\)]*) return 1 ;; esac
	rest=$rest,
	while [ "$rest" ]; do
		part=${rest%%,*} rest=${rest#*,}
		number "${part%%\(*}" ''
		tasks=$answer times=1
		case $part in *'(x'*)
			part=${part#*x}
			number "${part%\)}" ''
			times=$answer
			;;
		esac
		[ "$tasks" ] && [ "$times" ] || return 1
		[ "$index" -ge "$times" ] || return 0
		index=$((index - times))
	done
	return 1
}
# A list of masks as plain: without 0x, leading zeros and capitals.
plain_masks() {
	plain='' rest=$1,
	while [ "$rest" ]; do
		part=${rest%%,*} rest=${rest#*,} part=${part#0x}
		plain=$plain,${part#"${part%%[!0]*}"}
	done
	for letter in A.a B.b C.c D.d E.e F.f; do
		while :; do
			case $plain in
			*"${letter%.*}"*) plain=${plain%%"${letter%.*}"*}${letter#*.}${plain#*"${letter%.*}"} ;;
			*) break ;;
			esac
		done
	done
}
# Whether the user has bound the task: Slurm lists masks of theirs without 0x, its own with it. Its own come without it
# too, and in small letters, in a step inside a step, which inherits them: LUMISITE_AUTO_BIND remembers them from there.
bound_by_user() {
	case ${LUMISITE_CPU_BIND-} in
	# The cli_filter's mark is for this step alone.
	user)
		out="${out}unset LUMISITE_CPU_BIND$ls_nl"
		return 0
		;;
	off | no | none) return 0 ;;
	esac
	case ${SLURM_CPU_BIND_TYPE:-${SLURM_CPU_BIND-}} in
	*map_cpu* | *ldom* | *rank*) return 0 ;;
	*mask_cpu*) ;;
	*) return 1 ;;
	esac
	masks=${SLURM_CPU_BIND_LIST:-${SLURM_CPU_BIND-}}
	masks=${masks#*mask_cpu:}
	case $masks in
	0x*)
		case ${LUMISITE_AUTO_BIND-} in "$masks") ;; *) put LUMISITE_AUTO_BIND "$masks" ;; esac
		return 1
		;;
	esac
	[ "${LUMISITE_AUTO_BIND-}" ] && [ "${#LUMISITE_AUTO_BIND}" -lt 5000 ] && [ "${#masks}" -lt 5000 ] || return 0
	plain_masks "$LUMISITE_AUTO_BIND"
	inherited=$plain
	plain_masks "$masks"
	case $inherited in "$plain") return 1 ;; esac
	return 0
}
# Tasks, threads, task: mask and count, from the table of a whole node.
row() {
	index=$3
	ls_site_masks "$ls_kind/$1/$2" || return 1
	# shellcheck disable=SC2086  # masks, one for each task
	set -- $masks
	[ "$index" -lt "$#" ] || return 1
	shift "$index"
	mask=$1
}
# What of `words`, which ls_site_cpus gives, was granted: cpus is a list as taskset takes it.
within_granted() {
	cpus='' count=0
	for word in $words; do
		case $granted_words in *" $word "*) cpus=$cpus${cpus:+,}$word count=$((count + 1)) ;; esac
	done
	[ "$cpus" ]
}
# Whether all of the node is this step's: by its cgroup, else by what Slurm says, where that leaves no doubt.
# shellcheck disable=SC2086  # numbers
whole_node() {
	ls_site_cpus "$ls_kind/2" || ls_site_cpus "$ls_kind/1" || return 1
	set -- $words
	all=$#
	if granted_cpus && expand "$granted"; then
		granted_words=$words
		ls_site_cpus "$ls_kind/$threads" || return 1
		for word in $words; do
			case $granted_words in *" $word "*) ;; *) return 1 ;; esac
		done
		return 0
	fi
	granted=
	number "${SLURM_CPUS_ON_NODE-}" 0
	[ "$answer" -lt "$all" ] || return 0
	[ "$ls_whole_nodes" ] || return 1
	ls_site_cpus "$ls_kind/1"
	set -- $words
	[ "$answer" -ge "$#" ]
}
# The GPU of this task, if Slurm's lists tell: gpu is empty where all tasks see the same ones and their number is another.
# Under a GPU binding that gives the task one, SLURM_STEP_GPUS names that one.
gpu_of_task() {
	gpu='' gpus=0 index=$ls_local_id
	if expand "${SLURM_STEP_GPUS-}"; then gpus=$count; fi
	bound=${SLURM_GPU_BIND:-${SLURM_TRES_BIND-}}
	case $gpus,$bound in
	*, | *none*)
		case $gpus,${LUMISITE_GPUS-} in
		"$tasks",*) ;;
		0,one)
			[ "$tasks" -ge "$ls_kind_gpus" ] || gpu=$ls_local_id
			return 0
			;;
		*) return 0 ;;
		esac
		;;
	1,*) index=0 ;;
	0,*map:*) expand "${bound##*map:}" || return 1 ;;
	*) return 1 ;;
	esac
	# shellcheck disable=SC2086  # numbers
	set -- $words
	[ "$index" -lt "$#" ] || return 1
	shift "$index"
	gpu=$1
}
# A setting: the task's own GPU, on request.
one_gpu() {
	case ${LUMISITE_GPUS-} in
	one) ;;
	*)
		explain "$1 is left alone: a task sees all GPUs that were granted (LUMISITE_GPUS=one gives it one)"
		return
		;;
	esac
	case $ls_misfit in ?*)
		leave "$1" "$2" '' "$ls_misfit"
		return
		;;
	esac
	case $2 in
	'')
		if [ "$ls_kind_gpus" -gt "$ls_local_id" ]; then
			offer "$1" "$2" "$ls_local_id" "$4"
		else
			leave "$1" "$2" '' 'there are fewer GPUs than tasks'
		fi
		;;
	x | *[!0-9,x]* | x,* | *,,* | *,) explain "$1 stays as it is: not a list of GPU numbers" ;;
	x*,*)
		# Slurm has put the granted GPUs there, and the task takes its own of them.
		rest=${2#x}, index=$ls_local_id
		while [ "$index" -gt 0 ] && [ "$rest" ]; do
			rest=${rest#*,} index=$((index - 1))
		done
		if [ -z "$rest" ]; then
			explain "$1 stays as it is: there are fewer GPUs than tasks"
		else
			put "$1" "${rest%%,*}"
			after="$after$1=${rest%%,*};"
			[ -z "$verbose" ] || report setting "$1" "$4" "$1=${rest%%,*} ($4)"
		fi
		;;
	*) explain "$1 stays as it is: it names one GPU" ;;
	esac
}
# Why the task gets no mask.
refuse() {
	why=$1
	return 1
}
choose_mask() {
	threads=1
	case ${SLURM_HINT-},${SLURM_THREADS_PER_CORE-} in nomultithread,*) ;; multithread,* | *,2) threads=2 ;; esac
	number "${SLURM_CPUS_PER_TASK-}" 0
	least=$answer
	gpu_of_task || refuse "which GPU a task has is not known under this GPU binding" || return
	if whole_node; then
		while :; do
			if [ "$tasks" != 1 ] && [ "$gpu" ]; then
				row "$ls_kind_gpus" "$threads" "$gpu"
			elif [ "$tasks" != 1 ] && [ "$gpus" != 0 ] && [ "$gpus" != "$ls_kind_gpus" ]; then
				refuse "$tasks tasks do not match the $gpus GPUs of the step"
				return
			else
				row "$tasks" "$threads" "$ls_local_id"
			fi || refuse "$tasks tasks on a $ls_kind node are not in the table" || return
			[ "$count" -lt "$least" ] || return 0
			[ "$threads" = 1 ] || break
			threads=2
			whole_node || break
		done
		mask=
		refuse "it would have fewer CPUs than the $least that --cpus-per-task asks for"
		return
	fi
	[ "$granted" ] || refuse "part of a node, and there is no cgroup that tells which" || return
	if [ "$gpu" ]; then
		ls_site_cpus "$ls_kind/$threads/$gpu" && within_granted || refuse "no granted CPU is near GPU $gpu" || return
	elif [ "$tasks" = 1 ]; then
		ls_site_cpus "$ls_kind/$threads" && within_granted || refuse "no CPU that tasks may have was granted" || return
	else
		refuse "part of a node, and $tasks tasks do not match the $gpus GPUs of the step"
		return
	fi
	[ "$count" -ge "$least" ] || refuse "near it are fewer than the $least CPUs that --cpus-per-task asks for" || return
}
bind_task() {
	[ "$ls_kind" ] || refuse "${ls_misfit:-partition $ls_partition is not described}" || return
	! bound_by_user || refuse "the binding is yours" || return
	tasks_here || refuse "how many tasks this node has is not known" || return
	number "${SLURM_TASK_PID-}" ''
	pid=$answer
	[ "$pid" ] || refuse "the task has no process id" || return
	mask='' cpus=''
	choose_mask || return 1
	flush
	if [ "$mask" ]; then set -- -p "$mask"; else set -- -cp "$cpus"; fi
	run_taskset "$@" "$pid" || refuse "taskset refused $2" || return
	why="task $ls_local_id of $tasks on ${granted:+these granted CPUs of }a $ls_kind node${gpu:+, near GPU $gpu}"
	[ -z "$verbose" ] || report cpus "$2" "$why" "CPU mask $2 ($why)"
	[ "$tasks" != 1 ] || explain "a launcher such as torchrun binds its own workers: torchrun --numa-binding=exclusive"
}
