#!/bin/sh
# The task prolog of lumisite. Slurm runs it on the node, as the user, in front of each task of
# srun, and obeys its lines (export, unset, print). The task starts whatever happens here: the
# status is always 0, and nothing goes to stderr.
#   what it does:      LUMISITE_VERBOSE=1 srun ...
#   off for one user:  export LUMISITE=off
#   off for all:       lumisite policy @ROOT@ off
#   the same by hand:  echo 'off default' >@ROOT@/policy
#   one release back:  lumisite rollback @ROOT@
#   whose it is:       release @RELEASE@ of @SITE@
#   whom to ask:       @SUPPORT@
#                      @CONTACT@
#
# 1 Be safe: nothing of the user's shell acts here.
# 2 Stop where there is nothing to do: no step, or the user or the policy says off.
# 3 Know the step and the node.
# 4 Binds, and the wrapper on PATH.
# 5 Settings; a value of the user's stays.
# 6 Directories for caches: where they may be.
# 7 CPUs: which the task should have.
# 8 Touch and print; where it only observes, tell the system log instead.
#
# A value of more than 8 KiB is left as it is, without a look inside. What is of this site alone
# stands at the end, below "the site's data": it calls `bind`, `setting`, `cache` and the like.
# shellcheck shell=dash

# ---- 1 Be safe, from the first command on: an exported SHELLOPTS could trace into stdout.
{
	lines='' ls_mode=''
	# Until the policy is read, $ls_mode is empty, and lines are printed.
	send() {
		case $ls_mode in observe) return ;; esac
		printf '%s' "$lines"
		lines=''
	}
	trap 'send; exit 0' EXIT HUP INT QUIT TERM USR1 USR2
	trap '' PIPE XFSZ
	set +e +u +x +v +a +C -f
	unset -f '[' printf read umask mkdir taskset timeout
	unset GLOBIGNORE FUNCNEST
	:
} >/dev/null 2>&1 || exit 0
exec 2>/dev/null || exit 0
users_path=${PATH-} PATH=/usr/bin:/bin:/usr/sbin:/sbin LC_ALL=C
unset IFS
line_end='
'

start() {
	# ---- 2 Stop where there is nothing to do
	case ${LUMISITE-} in off | OFF | no | 0) exit 0 ;; esac
	# The batch step has no step id, or -5 since Slurm 26.05; those from 4294967290 on are Slurm's own
	# as well, an interactive salloc among them.
	case ${SLURM_STEP_ID-} in '' | 0?* | *[!0-9]* | 429496729? | ???????????*) exit 0 ;; esac
	ls_know_task
	# The site's TaskProlog and the user's --task-prolog may both be this file.
	case ${LUMISITE_DONE-} in "$ls_task") exit 0 ;; esac
	# The mark of the cli_filter is for this prolog alone, whatever the policy.
	case ${LUMISITE_CPU_BIND-} in user) drop LUMISITE_CPU_BIND && send ;; esac
	ls_read_policy
	case $ls_mode in off) exit 0 ;; esac
	# ---- 3 to 7
	know_step
	binds_and_path
	settings
	find_places
	decide_cpus
	# ---- 8 Touch and print. What needs no program is said first: programs may fail, or take long.
	case $ls_mode in
	on)
		send
		make_private
		bind_task
		;;
	observe) private=${places%% *} ;;
	esac
	set_caches
	put LUMISITE_EXPORTS "$exported"
	tell_cpus
	case $ls_mode in on) send ;; observe) tell_log ;; esac
	exit 0
}

# ---- lines for Slurm, in $lines
emit() { lines="$lines$1$line_end"; }
# A value of the user's may have control characters: the line ends before the first.
ls_say() { emit "print lumisite: ${1%%[![:print:]]*}"; }
drop() { emit "unset $1"; }
# A variable and its value; none where the value would make two lines, or is more than Slurm takes.
put() {
	case $2 in *"$line_end"*) return 1 ;; esac
	[ "${#2}" -lt 130000 ] && emit "export $1=$2"
}
# The first task of a node tells the system log. One that does not answer delays the task by half a
# second, and loses the lines.
tell_log() {
	[ "$ls_local_id" = 0 ] || return
	printf '%.8000s' "$lines" | run timeout 0.5 logger -t "lumisite[$ls_task]"
}
# Runs a program of the system's, without the user's libraries.
run() { LD_PRELOAD='' LD_LIBRARY_PATH='' LD_AUDIT='' "$@" >/dev/null; }

# ---- 3 The step and the node
# Sets $step, by which the site's data is chosen: combination/nodes/gpus/kind of node. The kind is
# empty where it is not certain; $misfit says why.
know_step() {
	ls_know_combination
	case ${SLURM_STEP_NUM_NODES:-${SLURM_NNODES-}} in
	1) nodes=one ;;
	'' | 0* | *[!0-9]*) nodes=unknown ;;
	*) nodes=several ;;
	esac
	kind='' kind_gpus=0 kind_devices='' whole_cpus=0 gpus=cpu
	if site_partition "${SLURM_JOB_PARTITION-}"; then
		case $kind_gpus in 0) ;; *) gpus=gpu ;; esac
		check_devices
	else
		misfit="partition ${SLURM_JOB_PARTITION-} is not described"
		case ${SLURM_STEP_GPUS-}${SLURM_JOB_GPUS-} in ?*) gpus=gpu ;; esac
	fi
	step=$ls_combination/$nodes/$gpus/$kind
	ls_note "release $site_release, step $step"
}
# Clears $kind where this node has another number of GPUs than others of its partition. A driver's
# folder has the PCI address of each of its devices, among other names.
check_devices() {
	devices=0
	set +f
	for driver in $site_drivers; do
		for device in "/sys/bus/pci/drivers/$driver"/*:*:*.*; do
			case $device in *'/*:'*) ;; *) devices=$((devices + 1)) ;; esac
		done
	done
	set -f
	case $kind_devices in '' | "$devices") return ;; esac
	misfit="this node is not a $kind node as others of partition $SLURM_JOB_PARTITION"
	misfit="$misfit (lumisite check --host shows what differs)"
	kind=''
}

# ---- 4 Binds, and the wrapper on PATH
binds_and_path() {
	# Without a prefix, modules of another kind bind, and there is no wrapper.
	case $ls_site_prefix in '') return ;; esac
	ls_know_list
	case $ls_list in
	*"$line_end"*) ;;
	*) ls_is_long "$ls_list$ls_other_binds" || add_binds ;;
	esac
	# Slurm looks the command up on the PATH that this prolog gives.
	case $0 in
	*/current/spank/*) folder=${0%/current/*}/releases/$site_release/spank/bin ;;
	*) folder=${0%/*}/bin ;;
	esac
	case :$users_path: in
	*":$folder:"*) ;;
	*) put PATH "$folder${users_path:+:$users_path}" ;;
	esac
}
add_binds() {
	root=/
	set +f
	for folder in /*; do root=$root${folder#/}/; done
	set -f
	users_list=$ls_list
	site_binds
	case $ls_list in "$users_list") return ;; esac
	put "$ls_list_name" "$ls_list"
	ls_note "$ls_list_name=$ls_list"
}
# Whether a path exists. What is right below `/` may be a shared file system: the list of `/` has
# its name, without asking its servers.
exists() {
	case $1 in
	/ | /*/*) [ -e "$1" ] ;;
	*) case $root in */"${1#/}"/*) ;; *) return 1 ;; esac ;;
	esac
}
# The binds of a module, or of all tasks, stand between begin_module and end_module. The variable
# has what the module has bound when it was loaded: of that, what this node lacks is taken out, as
# no container would start with it.
begin_module() {
	module_binds='' remembered='' wanted=yes
	if ls_look_up "$1"; then
		ls_is_long "$ls_value" || remembered=$ls_value
	elif [ "${LUMISITE_STACK+loaded}" ] && [ "$1" != LUMISITE_BINDS_TASK ]; then
		# Who has loaded modules, and not this one, has unloaded it.
		wanted=''
	fi
	IFS=,
	for path in $remembered; do
		if exists "${path%%:*}"; then
			module_binds=${module_binds:+$module_binds,}$path
		else
			ls_take_out "$path"
		fi
	done
	unset IFS
}
# `required` or `optional`, a bind, and its path and target where they are not the bind itself.
bind() {
	path=${3:-$2}
	case $wanted in '') return ;; esac
	if ! exists "$path"; then
		case $1,$ls_local_id in
		required,0) ls_say "$path not found on $ls_node: containers start without it" ;;
		esac
	elif ! ls_is_bound "${4:-$2}"; then
		ls_list=${ls_list:+$ls_list,}$2
		module_binds=${module_binds:+$module_binds,}$2
	fi
}
end_module() { case $module_binds in "$remembered") ;; *) put "$1" "$module_binds" ;; esac }

# ---- 5 Settings. What depends on the image is set by the wrapper, spank/bin/singularity.
settings() {
	exported=';'
	case ${LUMISITE_EXPORTS-} in ?*) take_back ;; esac
	site_settings
	put LUMISITE_DONE "$ls_task"
	put LUMISITE_STEP "$step"
}
# What the helper of an outer step has set, and is still as it was: this step may need another
# value, or none.
take_back() {
	for name in $site_names; do
		if ls_is_ours "$name"; then unset "$name" && drop "$name"; fi
	done
}
# Whether the task lacks a variable. What it has stays, whoever has set that.
is_free() {
	ls_look_up "$1" || return 0
	ls_note_kept "$1" "$ls_value"
	return 1
}
# A variable, and the value that it gets if it is free.
setting() {
	is_free "$1" || return
	put "$1" "$2" || return
	exported="$exported$1=$2;"
	ls_note "$1=$2"
}
# A variable, and what it gets: nothing, or what is worked out on the node.
special_setting() {
	case $2 in
	unset)
		case " ${LUMISITE_KEEP-} " in *" $1 "*) return ;; esac
		if ls_look_up "$1"; then drop "$1"; fi
		ls_note "$1 unset"
		;;
	master-address)
		# With an arbitrary distribution rank 0 may be on any node.
		case ${SLURM_DISTRIBUTION-} in *arbitrary*) return ;; esac
		find_first_host
		case $first_host in '') return ;; esac
		setting "$1" "$first_host$site_host_suffix" && name_this_node
		;;
	master-port)
		# Above the ports that Ray gives its workers (10002 to 19999), below the ephemeral ones, never
		# 29500; the modulus is a prime, so jobs with near numbers stay apart.
		port=$(((ls_job % 7993 * 101 + ls_step_id % 7993) % 7993 + 20000))
		[ "$ls_job" = 0 ] || setting "$1" "$port"
		;;
	esac
}
# Sets $first_host to the first of Slurm's list, such as x[001-004,007],z; empty if it is none.
find_first_host() {
	first_host=${SLURM_STEP_NODELIST:-${SLURM_JOB_NODELIST-}}
	if ls_is_long "$first_host"; then first_host='' && return; fi
	before=${first_host%%[[,]*}
	brackets=${first_host#"$before"}
	case $brackets in
	'['*']'*) number=${brackets#?} && first_host=$before${number%%[],-]*}${brackets#*]} ;;
	esac
	first_host=${first_host%%,*}
	case $first_host in *[!A-Za-z0-9._-]*) first_host='' ;; esac
}
# torchrun's c10d waits for ever where no node knows MASTER_ADDR as its own, as with a suffix. PET_*
# are defaults of torchrun's options. Other nodes get no is_host=0: that would break --standalone.
name_this_node() {
	case $site_host_suffix,$ls_node in ,* | *,'this node') return ;; esac
	setting PET_LOCAL_ADDR "$ls_node$site_host_suffix"
	[ "$ls_rank" != 0 ] || setting PET_RDZV_CONF is_host=1
}
