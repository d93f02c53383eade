#!/bin/sh
# Runs once for each task of a job step. Slurm obeys what it prints, and the task must start whatever happens here:
# docs/explanation/what-the-helper-does.md says how. `lumisite render` joins this file, policy.sh, masks.sh, caches.sh and
# the site's data (all ls_site_*) to one, which calls ls_start at its end.
# Nothing of the user's shell may act here, not even on this line: an exported SHELLOPTS could trace into stdout.
{
	out='' ls_mode=''
	# Where it only observes, all that is printed is kept for the system log.
	flush() {
		case $ls_mode in observe) return ;; esac
		printf '%s' "$out"
		out=
	}
	trap 'flush; exit 0' EXIT HUP INT QUIT TERM USR1 USR2
	trap '' PIPE
	set +e +u +x +v +a -f
	unset -f '[' printf read umask mkdir taskset
	unset GLOBIGNORE
	:
} >/dev/null 2>&1 || exit 0
exec 2>/dev/null || exit 0
users_path=${PATH-} PATH=/usr/bin:/bin:/usr/sbin:/sbin LC_ALL=C
unset IFS
nl='
'

case ${LUMISITE-} in off | OFF | no | 0) exit 0 ;; esac
# The batch step has no step id, or -5 since Slurm 26.05; those from 4294967290 on are Slurm's own as well, an interactive
# salloc among them.
case ${SLURM_STEP_ID-} in '' | 0?* | *[!0-9]* | 429496729? | ???????????*) exit 0 ;; esac
# Name, value, another one: sets the name to the first that is a number; arithmetic on anything else would end the shell.
number() { case $2 in '' | 0?* | *[!0-9]* | ???????????*) eval "$1=\$3" ;; *) eval "$1=\$2" ;; esac }
number job "${SLURM_JOB_ID-}" 0
number rank "${SLURM_PROCID-}" 0
number ls_local_id "${SLURM_LOCALID-}" 0
number user "${SLURM_JOB_UID-}" "job$job"
# The site's TaskProlog and the user's --task-prolog may both be this file.
task=$job.$SLURM_STEP_ID.$rank
case ${LUMISITE_DONE-} in "$task") exit 0 ;; esac

# ---- output
case ${LUMISITE_VERBOSE-} in 0 | no | off) verbose= ;; *) verbose=${LUMISITE_VERBOSE-} ;; esac
say() { emit "print lumisite: $1"; }
# A key, its value, and both in words. LUMISITE_VERBOSE=1 is for people: one task of a node says what all tasks have in
# common, the others what is their own; with `all`, each says all. `report` is for `lumisite env` and `validate`.
note() {
	case $verbose,$ls_local_id,$own in
	,*) ;;
	report,*) emit "print report $1 $2" ;;
	all,* | *,0, | *,own) say "$node rank $rank: $3" ;;
	esac
}
emit() { out="$out$1$nl"; }
# One protocol line, or none where the value would make two or is more than Slurm takes.
put() {
	case $2 in *"$nl"*) return 1 ;; esac
	[ "${#2}" -lt 130000 ] || return 1
	emit "export $1=$2"
}
drop() { emit "unset $1"; }
printable() {
	answer=$1=$2
	case $2 in *[!\ -~]*) answer=$1 ;; esac
	[ "${#2}" -lt 200 ] || answer=$1
}

# ---- the step and the node, for the site's rules
know_step() {
	ls_stack=${ls_site_stacks%% *}
	case " $ls_site_stacks " in *" ${LUMISITE_STACK:-none} "*) ls_stack=$LUMISITE_STACK ;; esac
	case ${SLURM_STEP_NUM_NODES:-${SLURM_NNODES-}} in
	1) ls_nodes=one ;;
	'' | 0* | *[!0-9]*) ls_nodes=unknown ;;
	*) ls_nodes=several ;;
	esac
	ls_partition=other ls_kind='' ls_gpus='' kinds='' kind_gpus=0 whole_nodes='' misfit=''
	if ls_site_partition "${SLURM_JOB_PARTITION-}"; then
		ls_partition=$SLURM_JOB_PARTITION
		find_kind
	fi
	# As all kinds of the partition have GPUs or not, else as the node's own kind, else as Slurm has granted some.
	case $ls_gpus,$ls_kind in
	,) case ${SLURM_STEP_GPUS-}${SLURM_JOB_GPUS-} in '') ls_gpus=cpu ;; *) ls_gpus=gpu ;; esac ;;
	,*) case $kind_gpus in 0) ls_gpus=cpu ;; *) ls_gpus=gpu ;; esac ;;
	esac
}
# The node kind of the partition that has as many GPUs as this node; `lumisite check --host` compares the rest.
find_kind() {
	node_gpus='' fitting=''
	ls_site_drivers
	ls_site_kinds
	case $fitting in
	'') misfit="this node is of no node kind of partition $ls_partition (lumisite check --host shows what differs)" ;;
	' '*' '*) misfit="this node may be of any of these node kinds:$fitting" ;;
	*) ls_kind=${fitting# } ;;
	esac
	[ "$ls_kind" ] || kind_gpus=0
}
read_line() {
	eval "$1="
	[ ! -r "$2" ] || read -r "${1?}" <"$2"
}
# A node kind, how many GPUs tasks have there, and its GPUs by vendor, which are not compared where they are not described.
kind() {
	case " $kinds " in *" $1 "*) ;; *) return ;; esac
	case $3 in '' | "${node_gpus:-none}") fitting="$fitting $1" kind_gpus=$2 ;; esac
}

# ---- what touches the node: `lumisite env` defines these anew, and own_folder, make_private, granted_cpus
# What is right below `/` may be a shared file system: the list of `/` has its name, without asking its servers.
exists() {
	case $1,$roots in
	/,* | /*/*,*) [ -e "$1" ] ;;
	*,*/"${1#/}"/*) ;;
	*) return 1 ;;
	esac
}
# A vendor, and its drivers. A driver's folder has more than devices, so that the pattern always fits something.
count_gpus() {
	vendor=$1 count=0
	shift
	set +f
	for driver; do
		[ -d "/sys/bus/pci/drivers/$driver" ] || continue
		for name in "/sys/bus/pci/drivers/$driver"/*; do
			case ${name##*/} in *:*:*.*) count=$((count + 1)) ;; esac
		done
	done
	set -f
	[ "$count" = 0 ] || node_gpus="${node_gpus:+$node_gpus and }$count $vendor"
}
run_taskset() { LD_PRELOAD='' LD_LIBRARY_PATH='' LD_AUDIT='' taskset "$@" >/dev/null; }

# ---- settings: a name, its value behind an `x` or nothing where it is not set, the site's value, and its entry's number
# What the helper of an outer step has set, and is still as it was, is taken back. Its values never contain `;`.
forget() {
	for name in ${LUMISITE_EXPORTS:+$ls_site_names}; do
		eval "answer=\${$name-}"
		case $answer in *';'*) continue ;; esac
		case $LUMISITE_EXPORTS in *";$name=$answer;"*) unset "$name" && drop "$name" ;; esac
	done
}
offer() {
	if [ "$2" ]; then
		printable "$1" "${2#x}"
		note kept "$answer" "$answer not changed: it was set before lumisite ran"
		return 1
	fi
	after="$after$1=$3;"
	put "$1" "$3"
	note setting "$1 $4" "$1=$3"
}
withdraw() {
	case " ${LUMISITE_KEEP-} " in *" $1 "*) return ;; esac
	[ -z "$2" ] || drop "$1"
	note setting "$1 $4" "$1 unset"
}
# The first host of Slurm's list, such as x-[001-004,007]-y,z.
first_host() {
	host=${SLURM_STEP_NODELIST:-${SLURM_JOB_NODELIST-}}
	while :; do
		begin=${host%%[[,]*}
		rest=${host#"$begin"}
		case $rest in '['*']'*) ;; *) break ;; esac
		[ "${#begin}" -lt 256 ] || return 1
		first=${rest#?}
		host=$begin${first%%[],-]*}${rest#*]}
	done
	host=${host%%,*}
	case $host in '' | *[!A-Za-z0-9._-]*) return 1 ;; esac
}
master_address() {
	# With an arbitrary distribution rank 0 may be on any node.
	case ${SLURM_DISTRIBUTION-} in *arbitrary*) return ;; esac
	first_host && offer "$1" "$2" "$host$ls_site_host_suffix" "$4"
}
# torchrun's c10d waits for ever where no node knows MASTER_ADDR as its own, as with a suffix. PET_* are the defaults of
# torchrun's options. Other nodes get no is_host=0, which would break --standalone.
name_node() {
	[ "$node" != 'this node' ] || return
	offer PET_LOCAL_ADDR "${PET_LOCAL_ADDR+x$PET_LOCAL_ADDR}" "$node$ls_site_host_suffix" ''
	[ "$rank" != 0 ] || offer PET_RDZV_CONF "${PET_RDZV_CONF+x$PET_RDZV_CONF}" is_host=1 ''
}
master_port() {
	# Above the ports that Ray gives its workers (10002 to 19999), below the ephemeral ones, never 29500; the modulus is a
	# prime, so jobs with near numbers stay apart.
	[ "$job" = 0 ] || offer "$1" "$2" $(((job % 7993 * 101 + SLURM_STEP_ID % 7993) % 7993 + 20000)) "$4"
}

# ---- binds
use_list_of_singularity() {
	list=${SINGULARITY_BINDPATH-} list_name=SINGULARITY_BINDPATH beside=${SINGULARITY_BIND-}
}
# Apptainer drops SINGULARITY_BINDPATH where APPTAINER_BINDPATH differs from it: what a user has there stays in use.
use_list_of_apptainer() {
	use_list_of_singularity
	beside=${APPTAINER_BIND-}
	if [ "${APPTAINER_BINDPATH-}" ] || [ -z "$list" ]; then
		list=${APPTAINER_BINDPATH-} list_name=APPTAINER_BINDPATH
	fi
}
add_binds() {
	"$ls_site_list"
	roots=/
	set +f
	for name in /*; do roots=$roots${name#/}/; done
	set -f
	users_list=$list output=$out marker='' brought=''
	ls_site_binds
	remember_binds
	case $list in "$users_list") return ;; esac
	# A list that Slurm would not take stays as it is.
	if put "$list_name" "$list"; then note binds "$list" "$list_name=$list"; else out=$output; fi
}
# The variable that remembers whose binds the next ones are. What the node lacks goes, such as the folder of an earlier
# job: no container would start with it.
brought_by() {
	remember_binds
	marker=$1 remembered=${2#x} brought='' loaded=1
	# A module whose variable is gone has been unloaded.
	case ${LUMISITE_STACK+stack}$2,$1 in stack,LUMISITE_BINDS_TASK) ;; stack,*) loaded= ;; esac
	IFS=,
	for name in $remembered; do
		if exists "${name%%:*}"; then brought=${brought:+$brought,}$name; else take_out "$name"; fi
	done
	unset IFS
}
remember_binds() { case $marker,$brought in , | "$marker,$remembered") ;; *) put "$marker" "$brought" ;; esac }
# Path, target, bind, required or nothing.
bind() {
	if ! exists "$1"; then
		[ -z "$4" ] || [ "$ls_local_id" != 0 ] || say "$1 not found on $node: containers start without it"
		return
	fi
	case $loaded,$list,$beside, in ,* | *",$2,"* | *":$2,"* | *":$2:"*) return ;; esac
	list=${list:+$list,}$3 brought=${brought:+$brought,}$3
}
take_out() {
	case ,$list, in *",$1,"*) ;; *) return ;; esac
	list=,$list,
	list=${list%%",$1,"*},${list#*",$1,"}
	list=${list#,} list=${list%,}
}

# ---- the wrapper, first on PATH: Slurm looks the command up after this
put_wrapper_first() {
	case $0 in
	*/current/spank/*) folder=${0%/current/*}/releases/$ls_site_release/spank/bin ;;
	*) folder=${0%/*}/bin ;;
	esac
	case :$users_path: in
	*":$folder:"*) ;;
	*) put PATH "$folder${users_path:+:$users_path}" ;;
	esac
}
# The first task of a step on a node says what it would have printed. A log that does not answer delays it by half a
# second, and loses the lines.
tell_log() {
	[ "$ls_local_id" = 0 ] || return
	printf '%.8000s' "$out" | LD_PRELOAD='' LD_LIBRARY_PATH='' LD_AUDIT='' timeout 0.5 logger -t "lumisite[$task]" >/dev/null
}
ls_start() {
	node=${SLURMD_NODENAME-} after=';' private='' own='' users_binding=''
	case $node in '' | *[!A-Za-z0-9._-]*) node='this node' ;; esac
	# What the cli_filter has marked for this prolog alone goes from the task's environment, whatever the policy.
	case ${LUMISITE_CPU_BIND-} in user) users_binding=1 && drop LUMISITE_CPU_BIND && flush ;; esac
	ls_read_policy
	[ "$ls_mode" != off ] || exit 0
	know_step
	step=$ls_stack/$ls_nodes/$ls_gpus/$ls_partition/$ls_kind
	note step "$step" "release $ls_site_release, step $step"
	# Without a prefix, modules of another kind bind, and there is no wrapper.
	if [ "$ls_site_prefix" ]; then
		add_binds
		put_wrapper_first
	fi
	forget
	ls_site_settings
	put LUMISITE_DONE "$task"
	put LUMISITE_STEP "$step"
	# These start programs, which may fail or take long.
	flush
	ls_site_caches
	put LUMISITE_EXPORTS "$after"
	flush
	bind_task || note no-cpus "$why" "no CPU binding: $why"
	case $ls_mode in
	observe) tell_log ;;
	*) flush ;;
	esac
	exit 0
}
