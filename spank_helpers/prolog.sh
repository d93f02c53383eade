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

# ---- 1 Be safe, from the first command on: an exported SHELLOPTS could trace into stdout.
{
	lines='' mode=''
	# Until the policy is read, $mode is empty, and lines are printed.
	send() {
		case $mode in observe) return ;; esac
		printf '%s' "$lines"
		lines=''
	}
	trap 'send; exit 0' EXIT HUP INT QUIT TERM USR1 USR2
	trap '' PIPE XFSZ
	set +e +u +x +v +a +C -f
	unset -f '[' printf read umask mkdir taskset
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
	know_task
	# The site's TaskProlog and the user's --task-prolog may both be this file.
	case ${LUMISITE_DONE-} in "$task") exit 0 ;; esac
	# The mark of the cli_filter is for this prolog alone, whatever the policy.
	users_binding=''
	case ${LUMISITE_CPU_BIND-} in user) users_binding=1 && drop LUMISITE_CPU_BIND && send ;; esac
	ls_read_policy
	mode=$ls_mode
	case $mode in off) exit 0 ;; esac
	# ---- 3 to 7
	know_step
	binds_and_path
	settings
	find_places
	decide_cpus
	# ---- 8 Touch and print. What needs no program is said first: programs may fail, or take long.
	case $mode in
	on)
		send
		make_private
		bind_task
		;;
	observe) private=${places%% *} ;;
	esac
	offer_caches
	tell_cpus
	case $mode in observe) tell_log ;; *) send ;; esac
	exit 0
}

# ---- lines for Slurm, in $lines
emit() { lines="$lines$1$line_end"; }
# A value of the user's may have control characters: the line ends before the first.
say() { emit "print lumisite: ${1%%[!\ -~]*}"; }
drop() { emit "unset $1"; }
# One line, or none where the value would make two or is more than Slurm takes.
put() {
	case $2 in *"$line_end"*) return 1 ;; esac
	[ "${#2}" -lt 130000 ] && emit "export $1=$2"
}
# A key, its value, both in words, and `own` for what each task has for itself. Under
# LUMISITE_VERBOSE=1 one task of a node says what all have in common, under =all each says all;
# =report is for `lumisite validate`.
note() {
	case $verbose,$local_id,${4-} in
	,*) ;;
	report,*) emit "print report $1 $2" ;;
	all,* | *,0, | *,own) say "$node rank $rank: $3" ;;
	esac
}
# The first task of a node tells the system log. One that does not answer delays the task by half a
# second, and loses the lines.
tell_log() {
	[ "$local_id" = 0 ] || return
	printf '%.8000s' "$lines" | run timeout 0.5 logger -t "lumisite[$task]"
}
# Runs a program of the system's, without the user's libraries.
run() { LD_PRELOAD='' LD_LIBRARY_PATH='' LD_AUDIT='' "$@" >/dev/null; }
is_long() { [ "${#1}" -gt 8192 ]; }

# ---- 3 The step and the node
# Sets $number to $1 if that is one, else to $2: arithmetic on anything else would end the shell.
to_number() { case $1 in '' | 0?* | *[!0-9]* | ???????????*) number=$2 ;; *) number=$1 ;; esac }
know_task() {
	to_number "${SLURM_JOB_ID-}" 0 && job=$number
	to_number "${SLURM_PROCID-}" 0 && rank=$number
	to_number "${SLURM_LOCALID-}" 0 && local_id=$number
	to_number "${SLURM_JOB_UID-}" "job$job" && user=$number
	task=$job.$SLURM_STEP_ID.$rank
	node=${SLURMD_NODENAME-}
	case $node in '' | *[!A-Za-z0-9._-]*) node='this node' ;; esac
	verbose=${LUMISITE_VERBOSE-}
	case $verbose in 0 | no | off) verbose='' ;; esac
}
# Sets $step, by which the site's data is chosen: combination/nodes/gpus/kind of node.
know_step() {
	stack=${site_stacks%% *}
	for name in $site_stacks; do
		case $name in "${LUMISITE_STACK-}") stack=$name ;; esac
	done
	case ${SLURM_STEP_NUM_NODES:-${SLURM_NNODES-}} in
	1) nodes=one ;;
	'' | 0* | *[!0-9]*) nodes=unknown ;;
	*) nodes=several ;;
	esac
	kind='' kind_gpus=0 devices='' gpus=cpu whole_nodes='' misfit=''
	if site_partition "${SLURM_JOB_PARTITION-}"; then
		case $kind_gpus in 0) ;; *) gpus=gpu ;; esac
		check_gpus
	else
		misfit="partition ${SLURM_JOB_PARTITION-} is not described"
		case ${SLURM_STEP_GPUS-}${SLURM_JOB_GPUS-} in ?*) gpus=gpu ;; esac
	fi
	step=$stack/$nodes/$gpus/$kind
	note step "$step" "release $site_release, step $step"
}
# Clears $kind where this node has another number of GPUs than the site describes for it, and says
# so in $misfit. A driver's folder has the PCI address of each device, among other names.
check_gpus() {
	count=0
	set +f
	for driver in $site_drivers; do
		for device in "/sys/bus/pci/drivers/$driver"/*:*:*.*; do
			case $device in *'/*:'*) ;; *) count=$((count + 1)) ;; esac
		done
	done
	set -f
	case $devices in '' | "$count") return ;; esac
	misfit="this node is not a $kind node as others of partition $SLURM_JOB_PARTITION"
	misfit="$misfit (lumisite check --host shows what differs)"
	kind='' kind_gpus=0
}

# ---- 4 Binds, in $list
binds_and_path() {
	# Without a prefix, modules of another kind bind, and there is no wrapper.
	case $site_prefix in '') return ;; esac
	know_list
	case $list in
	*"$line_end"*) ;;
	*) is_long "$list$other_binds" || add_binds ;;
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
# Apptainer drops SINGULARITY_BINDPATH where APPTAINER_BINDPATH differs from it: what a user has
# there stays in use. $other_binds are binds that stay as they are.
know_list() {
	list_name=SINGULARITY_BINDPATH list=${SINGULARITY_BINDPATH-} other_binds=${SINGULARITY_BIND-}
	case $site_prefix in SINGULARITY) return ;; esac
	other_binds=${APPTAINER_BIND-}
	case ${APPTAINER_BINDPATH:+theirs}${list:+list} in
	list) ;;
	*) list_name=APPTAINER_BINDPATH list=${APPTAINER_BINDPATH-} ;;
	esac
}
add_binds() {
	roots=/
	set +f
	for folder in /*; do roots=$roots${folder#/}/; done
	set -f
	users_list=$list marker='' brought=''
	site_binds
	remember_binds
	case $list in "$users_list") return ;; esac
	put "$list_name" "$list"
	note binds "$list" "$list_name=$list"
}
# What is right below `/` may be a shared file system: the list of `/` has its name, without asking
# its servers.
exists() {
	case $1 in
	/ | /*/*) [ -e "$1" ] ;;
	*) case $roots in */"${1#/}"/*) ;; *) return 1 ;; esac ;;
	esac
}
# The variable that remembers which binds are those of the module whose binds follow. What the node
# lacks goes: no container would start with it.
brought_by() {
	remember_binds
	marker=$1 brought=''
	look_up "$1"
	remembered=$old_value
	if is_long "$remembered"; then remembered=''; fi
	# A module whose variable is gone has been unloaded, where the user has loaded some.
	loaded=1
	case ${LUMISITE_STACK+stack}$is_set,$1 in
	stack,LUMISITE_BINDS_TASK) ;;
	stack,*) loaded='' ;;
	esac
	IFS=,
	for name in $remembered; do
		if exists "${name%%:*}"; then brought=${brought:+$brought,}$name; else take_out "$name"; fi
	done
	unset IFS
}
remember_binds() {
	case $marker,$brought in
	,* | "$marker,$remembered") ;;
	*) put "$marker" "$brought" ;;
	esac
}
# `required` or `optional`, the bind, and its path and target where they are not the bind itself.
bind() {
	path=${3:-$2} target=${4:-$2}
	if ! exists "$path"; then
		case $1,$local_id in
		required,0) say "$path not found on $node: containers start without it" ;;
		esac
		return
	fi
	case $loaded,$list,$other_binds, in
	,* | *",$target,"* | *":$target,"* | *":$target:"*) ;;
	*) list=${list:+$list,}$2 brought=${brought:+$brought,}$2 ;;
	esac
}
take_out() {
	case ,$list, in *",$1,"*) ;; *) return ;; esac
	list=,$list,
	list=${list%%",$1,"*},${list#*",$1,"}
	list=${list#,} list=${list%,}
}

# ---- 5 Settings. What depends on the image is set by the wrapper, spank/bin/singularity.
settings() {
	ours=${LUMISITE_EXPORTS-} exported=';'
	if is_long "$ours"; then ours=''; fi
	case $ours in ?*) forget ;; esac
	site_settings
	put LUMISITE_DONE "$task"
	put LUMISITE_STEP "$step"
}
# What the helper of an outer step has set, and is still as it was, is taken back: this step may
# need another value, or none. The helper's values never contain `;`.
forget() {
	for name in $site_names; do
		look_up "$name"
		case $old_value in *';'*) continue ;; esac
		case $ours in *";$name=$old_value;"*) unset "$name" && drop "$name" ;; esac
	done
}
# Sets $is_set to x where the task has a variable, and $old_value to its value.
look_up() { is_set='' old_value='' && eval "is_set=\${$1+x} old_value=\${$1-}"; }
# Whether the task lacks a variable. What it has stays, whoever has set that.
is_free() {
	look_up "$1"
	case $is_set in '') return ;; esac
	shown=$1=$old_value
	case $old_value in *[!\ -~]*) shown=$1 ;; esac
	[ "${#old_value}" -lt 200 ] || shown=$1
	note kept "$shown" "$shown not changed: it was set before lumisite ran"
	return 1
}
# A variable, and the value that it gets if it is free.
setting() {
	is_free "$1" || return
	exported="$exported$1=$2;"
	put "$1" "$2"
	note setting "$1" "$1=$2" "${3-}"
}
# A variable, and what it gets.
special_setting() {
	case $2 in
	unset)
		case " ${LUMISITE_KEEP-} " in *" $1 "*) return ;; esac
		look_up "$1"
		case $is_set in x) drop "$1" ;; esac
		note setting "$1" "$1 unset"
		;;
	master-address)
		# With an arbitrary distribution rank 0 may be on any node.
		case ${SLURM_DISTRIBUTION-} in *arbitrary*) return ;; esac
		first_host && setting "$1" "$host$site_host_suffix" && name_this_node
		;;
	master-port)
		# Above the ports that Ray gives its workers (10002 to 19999), below the ephemeral ones, never
		# 29500; the modulus is a prime, so jobs with near numbers stay apart.
		port=$(((job % 7993 * 101 + SLURM_STEP_ID % 7993) % 7993 + 20000))
		[ "$job" = 0 ] || setting "$1" "$port"
		;;
	esac
}
# Sets $host to the first host of Slurm's list, such as x[001-004,007],z.
first_host() {
	host=${SLURM_STEP_NODELIST:-${SLURM_JOB_NODELIST-}}
	! is_long "$host" || return
	begin=${host%%[[,]*}
	rest=${host#"$begin"}
	case $rest in
	'['*']'*) first=${rest#?} && host=$begin${first%%[],-]*}${rest#*]} ;;
	esac
	host=${host%%,*}
	case $host in '' | *[!A-Za-z0-9._-]*) return 1 ;; esac
}
# torchrun's c10d waits for ever where no node knows MASTER_ADDR as its own, as with a suffix. PET_*
# are defaults of torchrun's options. Other nodes get no is_host=0: that would break --standalone.
name_this_node() {
	case $site_host_suffix,$node in ,* | *,'this node') return ;; esac
	setting PET_LOCAL_ADDR "$node$site_host_suffix"
	[ "$rank" != 0 ] || setting PET_RDZV_CONF is_host=1
}
