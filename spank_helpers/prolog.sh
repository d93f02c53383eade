#!/bin/sh
# Runs once for each task of a job step. Slurm obeys what it prints, and the task must start whatever happens here.
# docs/explanation/what-the-helper-does.md says how it keeps to that, and why it is written as it is.
# `lumisite render` joins this file, masks.sh, caches.sh and the site's data (all ls_site_*) to one, and calls ls_start.
# Nothing of the user's shell may act here, not even on this line: an exported SHELLOPTS could trace into stdout.
{
	out=
	flush() {
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
# A number that Slurm has set, or the second value; arithmetic on anything else would end the shell.
number() { case $1 in '' | 0?* | *[!0-9]* | ???????????*) answer=$2 ;; *) answer=$1 ;; esac }
number "${SLURM_JOB_ID-}" 0
job=$answer
number "${SLURM_PROCID-}" 0
rank=$answer
number "${SLURM_LOCALID-}" 0
ls_local_id=$answer
number "${SLURM_JOB_UID-}" "job$job"
user=$answer
# The site's TaskProlog and the user's --task-prolog may both be this file.
task=$job.$SLURM_STEP_ID.$rank
case ${LUMISITE_DONE-} in "$task") exit 0 ;; esac

# ---- output
case ${LUMISITE_VERBOSE-} in 0 | no | off) verbose= ;; *) verbose=${LUMISITE_VERBOSE-} ;; esac
say() { out="${out}print lumisite: $1$nl"; }
# A key, its value, and both in words: LUMISITE_VERBOSE=1 is for people, `report` for `lumisite env` and `validate`.
note() {
	case $verbose in
	'') ;;
	report) out="${out}print report $1 $2$nl" ;;
	*) say "$3" ;;
	esac
}
# Name, value: one protocol line, or none where the value would make two or is more than Slurm takes.
put() {
	case $2 in *"$nl"*) return 1 ;; esac
	[ "${#2}" -lt 130000 ] || return 1
	out="${out}export $1=$2$nl"
}
# Name, value: $answer is both, or the name alone where the value is long or does not print.
printable() {
	answer=$1=$2
	case $2 in *[!\ -~]*) answer=$1 ;; esac
	[ "${#2}" -lt 200 ] || answer=$1
}

# ---- the step and the node: ls_stack, ls_nodes, ls_gpus, ls_partition and ls_kind are what the site's rules ask for
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
	# Whether the node has GPUs: as all kinds of the partition, else as its own kind, else as Slurm has granted some.
	case $ls_gpus,$ls_kind in
	,) case ${SLURM_STEP_GPUS-}${SLURM_JOB_GPUS-} in '') ls_gpus=cpu ;; *) ls_gpus=gpu ;; esac ;;
	,*) case $kind_gpus in 0) ls_gpus=cpu ;; *) ls_gpus=gpu ;; esac ;;
	esac
}
# Which kind of its partition the node is, by what its kernel says of the whole node, whatever cgroup the task is in.
# lumisite/site/kinds.py compares the same for `check --host`.
find_kind() {
	read_line /sys/devices/system/cpu/present
	present=$answer
	read_line /sys/devices/system/cpu/online
	online=$answer
	read_line /sys/devices/system/node/has_cpu
	domains=$answer node_gpus='' addresses='' fitting=''
	ls_site_drivers
	ls_site_kinds
	case $fitting in
	'') misfit="this node is of no node kind of partition $ls_partition (lumisite check --host shows what differs)" ;;
	' '*' '*) misfit="this node may be of any of these node kinds:$fitting" ;;
	*) ls_kind=${fitting# } ;;
	esac
	[ "$ls_kind" ] || kind_gpus=0
}
# The first line of a file, or nothing.
read_line() {
	answer=
	if [ -r "$1" ]; then read -r answer <"$1" || :; fi
}
# Vendor, its drivers. A driver's folder has more than devices, so that the pattern always fits something.
count_gpus() {
	vendor=$1 count=0
	shift
	set +f
	for driver; do
		[ -d "/sys/bus/pci/drivers/$driver" ] || continue
		for name in "/sys/bus/pci/drivers/$driver"/*; do
			case ${name##*/} in *:*:*.*) count=$((count + 1)) addresses="$addresses ${name##*/}" ;; esac
		done
	done
	set -f
	[ "$count" = 0 ] || node_gpus="${node_gpus:+$node_gpus and }$count $vendor"
}
# A node kind, its GPUs, CPUs, NUMA domains, CPU@domain for some CPUs, GPUs by vendor, and their PCI addresses: what is
# empty is not described, and not compared.
kind() {
	case " $kinds " in *" $1 "*) ;; *) return ;; esac
	is_kind "$@" || return
	fitting="$fitting $1" kind_gpus=$2
}

# ---- what touches the node, here and in the other files: `lumisite env` defines these anew
there() { [ -e "$1" ]; }
in_root() { case $roots in */"$1"/*) ;; *) return 1 ;; esac }
is_kind() {
	case $3 in '' | "$present" | "$online") ;; *) return 1 ;; esac
	case $4 in '' | "$domains") ;; *) return 1 ;; esac
	case $6 in '' | "${node_gpus:-none}") ;; *) return 1 ;; esac
	case " or $7 or " in ' or  or ' | *" or ${addresses# } or "*) ;; *) return 1 ;; esac
	for place in $5; do there "/sys/devices/system/node/node${place#*@}/cpu${place%@*}" || return 1; done
}
run_taskset() { LD_PRELOAD='' LD_LIBRARY_PATH='' LD_AUDIT='' taskset "$@" >/dev/null; }

# ---- settings: each function gets a name, its value behind an `x` or nothing where it is not set, the ledger's value,
# and the number of the ledger's entry
# Name, value: whether the helper of an outer step has set it. Its own values never contain `;`.
mine() {
	case $2 in *';'*) return 1 ;; esac
	case $before in *";$1=$2;"*) ;; *) return 1 ;; esac
}
offer() {
	if [ "$2" ] && ! mine "$1" "${2#x}"; then
		printable "$1" "${2#x}"
		note kept "$answer" "$answer not changed: it was set before lumisite ran"
		return
	fi
	after="$after$1=$3;"
	case $2 in "x$3") ;; *) put "$1" "$3" ;; esac
	note setting "$1 $4" "$1=$3"
}
withdraw() {
	case " ${LUMISITE_KEEP-} " in *" $1 "*) return ;; esac
	[ -z "$2" ] || out="${out}unset $1$nl"
	note setting "$1 $4" "$1 unset"
}
# Name, value, why: a value that was seen to do harm is named by one task of the step, and stays all the same.
harm() {
	case "$rank ${LUMISITE_KEEP-} " in *" $1 "*) return ;; '0 '*) ;; *) return ;; esac
	! mine "$1" "$2" || return
	printable "$1" "$2"
	say "$answer, set before lumisite ran, does harm: $3"
}
# What an outer step has got from the helper, and this one does not get, goes if it is still as it was.
take_back() {
	[ "$before" ] || return 0
	for name in $ls_site_names; do
		case $after in *";$name="*) continue ;; esac
		eval "answer=\${$name-}"
		! mine "$name" "$answer" || out="${out}unset $name$nl"
	done
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
	first_host || return
	host=$host$ls_site_host_suffix
	offer "$1" "$2" "$host" "$4"
	# torchrun's c10d waits for ever where no node knows MASTER_ADDR as its own, as with a suffix. PET_* are the defaults
	# of torchrun's options. Other nodes get no is_host=0, which would break --standalone.
	[ "$ls_site_host_suffix" ] && [ "$node" != 'this node' ] || return 0
	case $after in *";$1=$host;"*) ;; *) return ;; esac
	offer PET_LOCAL_ADDR "${PET_LOCAL_ADDR+x$PET_LOCAL_ADDR}" "$node$ls_site_host_suffix" ''
	[ "$rank" != 0 ] || offer PET_RDZV_CONF "${PET_RDZV_CONF+x$PET_RDZV_CONF}" is_host=1 ''
}
master_port() {
	# Above the ports that Ray gives its workers (10002 to 19999), below the ephemeral ones, never 29500; the modulus is a
	# prime, so jobs with near numbers stay apart.
	[ "$job" = 0 ] || offer "$1" "$2" $(((job % 7993 * 101 + SLURM_STEP_ID % 7993) % 7993 + 20000)) "$4"
}

# ---- binds
add_binds() {
	list=${SINGULARITY_BINDPATH-} list_name=SINGULARITY_BINDPATH beside=${SINGULARITY_BIND-}
	# Apptainer drops SINGULARITY_BINDPATH where APPTAINER_BINDPATH differs from it: what a user has there stays in use.
	if [ "$ls_site_prefix" = APPTAINER ]; then
		beside=${APPTAINER_BIND-}
		if [ "${APPTAINER_BINDPATH-}" ] || [ -z "$list" ]; then
			list=${APPTAINER_BINDPATH-} list_name=APPTAINER_BINDPATH
		fi
	fi
	# One that Slurm would not take stays as it is.
	changeable=1 changed='' brought_changed='' known=",$list,$beside,"
	case $list in *"$nl"*) changeable= ;; esac
	[ "${#list}" -lt 120000 ] || changeable=
	# That a shared file system is there is seen in the list of `/`, without asking its servers.
	roots=/
	set +f
	for name in /*; do roots=$roots${name#/}/; done
	set -f
	ls_site_binds
	remember_binds
	[ "$changed" ] || return 0
	put "$list_name" "$list"
	note binds "$list" "$list_name=$list"
}
# Variable that remembers whose binds are in the list, its value behind an `x` or nothing: for the binds that follow.
brought_by() {
	remember_binds
	marker=$1 brought=${2#x} loaded=1
	# A module whose variable is gone has been unloaded.
	case ${LUMISITE_STACK+stack}$2,$1 in stack,LUMISITE_BINDS_TASK) ;; stack,*) loaded= ;; esac
}
remember_binds() {
	[ -z "$brought_changed" ] || put "$marker" "$brought"
	brought_changed=
}
# Path, target, bind, its name in `/` or nothing, required or nothing.
bind() {
	if [ "$4" ]; then in_root "$4"; else there "$1"; fi || {
		[ -z "$5" ] || [ "$ls_local_id" != 0 ] || say "$1 not found on $node: containers start without it"
		# A list of `/` without /proc tells nothing.
		if [ -z "$4" ] || in_root proc; then take_out "$3"; fi
		return
	}
	case $known in *",$2,"* | *":$2,"* | *":$2:"*) return ;; esac
	[ "$loaded" ] && [ "$changeable" ] || return 0
	list=${list:+$list,}$3 known=$known$3, changed=1
	brought=${brought:+$brought,}$3 brought_changed=1
}
# What a module brought and the node lacks: no container would start with it.
take_out() {
	case ${changeable:+,$brought,} in *",$1,"*) ;; *) return ;; esac
	case ,$list, in *",$1,"*) ;; *) return ;; esac
	without "$brought" "$1"
	brought=$answer brought_changed=1
	without "$list" "$1"
	list=$answer changed=1
}
# A list, an entry of it: $answer is the list without the entry.
without() {
	answer=,$1,
	answer=${answer%%",$2,"*},${answer#*",$2,"}
	answer=${answer#,} answer=${answer%,}
}
# What a task of an earlier job brought that this node lacks, such as the folder of that job.
take_out_gone() {
	rest=$brought,
	while [ "$rest" ]; do
		word=${rest%%,*} rest=${rest#*,}
		[ -z "$word" ] || there "${word%%:*}" || take_out "$word"
	done
}

# ---- the wrapper, first on PATH: Slurm looks the command up after this
put_wrapper_first() {
	own=${0%/*}
	case $own in
	*/current/spank) own=${own%/current/spank}/releases/$ls_site_release/spank ;;
	/*) ;;
	*) own=$ls_site_root/releases/$ls_site_release/spank ;;
	esac
	case :$users_path: in *":$own/bin:"*) ;; *) put PATH "$own/bin${users_path:+:$users_path}" ;; esac
}
# The container wrapper (Tykky) calls the runtime by its absolute path, past ours: on request, it is served here.
serve_tykky() {
	case ${ls_site_libraries:+${LUMISITE_TYKKY-}} in '' | 0 | no | off) return ;; esac
	libraries=$ls_site_libraries
	case $LUMISITE_TYKKY in *:*) ;; /*) libraries=$LUMISITE_TYKKY:$libraries ;; esac
	case :${LD_LIBRARY_PATH-}: in
	*":$libraries:"*) ;;
	*) put LD_LIBRARY_PATH "$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" ;;
	esac
}

ls_start() {
	node=${SLURMD_NODENAME-} after=';' private='' before=${LUMISITE_EXPORTS-}
	case $node in '' | *[!A-Za-z0-9._-]*) node='this node' ;; esac
	case $before in *"$nl"*) before= ;; esac
	know_step
	step=$ls_stack/$ls_nodes/$ls_gpus/$ls_partition/$ls_kind
	note step "$step" "release $ls_site_release, step $step"
	# Without a prefix, modules of another kind bind, and there is no wrapper.
	if [ "$ls_site_prefix" ]; then
		add_binds
		put_wrapper_first
		serve_tykky
	fi
	ls_site_settings
	ls_site_harms
	put LUMISITE_DONE "$task"
	# For the wrapper.
	case ${LUMISITE_STEP-} in "$step") ;; *) put LUMISITE_STEP "$step" ;; esac
	# These start programs, which may fail or take long.
	flush
	ls_site_caches
	take_back
	# The record of what is ours, for the prolog of a step inside this one.
	case ${LUMISITE_EXPORTS-} in "$after") ;; *) put LUMISITE_EXPORTS "$after" ;; esac
	flush
	bind_task || note no-cpus "$why" "no CPU binding: $why"
	flush
	exit 0
}
