#!/bin/sh
# Runs once for each task of a job step. Slurm obeys what it prints, and the task must start whatever happens here.
# docs/explanation/what-the-helper-does.md says how it keeps to that, and why it is written as it is.
# `lumisite render` joins this file, masks.sh, private.sh, kinds.sh, step.sh and the site's data (all ls_site_*) to one, and
# calls ls_start.
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
# The site's TaskProlog and the user's --task-prolog may both be this file.
task=$job.$SLURM_STEP_ID.$rank
case ${LUMISITE_DONE-} in "$task") exit 0 ;; esac
case ${LUMISITE_VERBOSE-} in '' | 0 | no | off) verbose= ;; *) verbose=1 ;; esac

# ---- what asks or touches the node, or tells what was decided: `lumisite env` defines these anew
there() { [ -e "$1" ]; }
in_root() { case $roots in */"$1"/*) ;; *) return 1 ;; esac }
own_cpuset() { read -r place </proc/self/cpuset; }
run_taskset() { LD_PRELOAD='' LD_LIBRARY_PATH='' LD_AUDIT='' taskset "$@" >/dev/null; }
# What it is about (setting or cpus), its name or mask, why, and all of it in words. Only where somebody listens.
report() { say "$4"; }

# ---- what is said
say() { out="${out}print lumisite: $1$ls_nl"; }
explain() { [ -z "$verbose" ] || say "$1"; }
# Name, value, what speaks against it or nothing: who set it is not known here, a login file, the site's TaskProlog or
# the job. No value may make two lines.
stays() {
	[ "$verbose$3" ] || return 0
	case $2 in
	*[!\ -~]*) set -- "$1" '' "$3" ;;
	*) [ "${#2}" -gt 200 ] || set -- "$1=$2" '' "$3" ;;
	esac
	say "$1 stays: it was set before lumisite ran${3:+, but $3}"
}
# Name, value, why: a value that was seen to do harm is told by one task of the step, and stays all the same.
harm() {
	case "$rank ${LUMISITE_KEEP-} " in *" $1 "*) ;; '0 '*) ls_mine "$1" "$2" || stays "$@" ;; esac
}
# Name, value: one protocol line, or none where the value would make two or is more than Slurm takes.
put() {
	case $2 in *"$ls_nl"*) return 1 ;; esac
	[ "${#2}" -lt 130000 ] || return 1
	out="${out}export $1=$2$ls_nl"
}

# ---- settings: each function gets a variable's name, its value behind an `x` or nothing where it is not set, the value
# that the ledger has, and why
offer() {
	if [ "$2" ] && ! ls_mine "$1" "${2#x}"; then
		stays "$1" "${2#x}"
		return
	fi
	after="$after$1=$3;"
	case $2 in "x$3") ;; *) put "$1" "$3" ;; esac
	[ -z "$verbose" ] || report setting "$1" "$4" "$1=$3 ($4)"
}
leave() {
	outcome='left alone'
	if [ "$2" ] && ls_mine "$1" "${2#x}"; then
		out="${out}unset $1$ls_nl" outcome='taken away again'
	fi
	[ -z "$verbose" ] || report setting "$1" "$4" "$1 is $outcome ($4)"
}
no_entry() { leave "$1" "$2" '' 'no entry of the ledger applies here'; }
# A variable that no step gets, and why: only said.
left() { report setting "$1" "$2" "$1 is left alone ($2)"; }
withdraw() {
	case " ${LUMISITE_KEEP-} " in
	*" $1 "*) explain "$1 stays, since LUMISITE_KEEP names it" ;;
	*)
		[ -z "$2" ] || out="${out}unset $1$ls_nl"
		[ -z "$verbose" ] || report setting "$1" "$4" "$1 is taken away ($4)"
		;;
	esac
}
# What names a private directory waits until that is made.
want_directory() {
	if [ "$2" ] && ! ls_mine "$1" "${2#x}"; then
		stays "$1" "${2#x}"
	else
		wanted="$wanted $1 $3"
	fi
}
first_host() {
	host='' rest=${SLURM_STEP_NODELIST:-${SLURM_JOB_NODELIST-}}
	while [ "$rest" ]; do
		case $rest in
		,*) break ;;
		'['*']'*) ;;
		'['*) return 1 ;;
		esac
		[ "${#host}" -lt 256 ] || return 1
		case $rest in
		'['*']'*)
			part=${rest#?} part=${part%%]*} rest=${rest#*]} part=${part%%,*}
			host=$host${part%%-*}
			;;
		*)
			part=${rest%%[[,]*}
			host=$host$part rest=${rest#"$part"}
			;;
		esac
	done
	case $host in '' | *[!A-Za-z0-9._-]*) return 1 ;; esac
}
master_address() {
	case ${SLURM_DISTRIBUTION-} in
	*arbitrary*)
		leave "$1" "$2" '' 'with an arbitrary distribution rank 0 may be on any node'
		return
		;;
	esac
	if first_host; then
		offer "$1" "$2" "$host$ls_site_host_suffix" "$4"
		[ -z "$ls_site_host_suffix" ] || lead_torchrun "$1=$host$ls_site_host_suffix"
	else
		leave "$1" "$2" '' 'the list of nodes is not readable'
	fi
}
# MASTER_ADDR as it is set here. torchrun's c10d waits for ever where no node knows the address as its own, as with a
# suffix. PET_* are the defaults of torchrun's options. Other nodes get no is_host=0, which would break --standalone.
lead_torchrun() {
	answer=leave
	case $after/$node in *' node') ;; *";$1;"*) answer=offer ;; esac
	"$answer" PET_LOCAL_ADDR "${PET_LOCAL_ADDR+x$PET_LOCAL_ADDR}" \
		"$node$ls_site_host_suffix" 'ranks meet by a name like MASTER_ADDR'
	[ "$rank" = 0 ] || answer=leave
	"$answer" PET_RDZV_CONF "${PET_RDZV_CONF+x$PET_RDZV_CONF}" is_host=1 'this node does not know MASTER_ADDR as its own'
}
master_port() {
	# Above the ports that Ray gives its workers (10002 to 19999), below the ephemeral ones, never 29500; the modulus is a
	# prime, so jobs with near numbers stay apart.
	if [ "$job" = 0 ]; then
		leave "$1" "$2" '' 'there is no job id'
	else
		offer "$1" "$2" $(((job % 7993 * 101 + SLURM_STEP_ID % 7993) % 7993 + 20000)) "$4"
	fi
}

# ---- binds
# That a shared file system is there is seen in the list of `/`, without asking its servers.
list_root() {
	roots=/
	set +f
	for name in /*; do roots=$roots${name#/}/; done
	set -f
}
# Variable that remembers whose binds are in the list, its value behind an `x` or nothing: for the binds that follow.
brought_by() {
	remember_binds
	marker=$1 brought=${2#x} before=${2#x} loaded=1
	# A module whose variable is gone has been unloaded.
	case ${LUMISITE_STACK+stack}$2,$1 in stack,LUMISITE_BINDS_TASK) ;; stack,*) loaded= ;; esac
}
remember_binds() {
	case $brought in "$before" | *"$ls_nl"*) return ;; esac
	[ "${#brought}" -lt 130000 ] && markers="${markers}export $marker=$brought$ls_nl"
}
# Path, target, bind, its name in `/` or nothing, required or nothing, why.
bind() {
	if [ "$4" ]; then in_root "$4"; else there "$1"; fi || {
		if [ "$5" ] && [ "$ls_local_id" = 0 ]; then
			say "$node lacks $1, which containers need ($6)"
		else
			explain "$1 is not on $node and not bound ($6)"
		fi
		# A list of `/` without /proc tells nothing.
		if [ -z "$4" ] || in_root proc; then take_out "$3"; fi
		return
	}
	case $known in *",$2,"* | *":$2,"* | *":$2:"*)
		explain "$2 is bound already"
		return
		;;
	esac
	if [ -z "$loaded" ] || [ -z "$bindable" ]; then
		explain "$1 stays unbound: you have unloaded its module, or your list cannot be added to"
		return
	fi
	ls_list=${ls_list:+$ls_list,}$3 known=$known$3, appended=1 brought=${brought:+$brought,}$3
	explain "bind $3 ($6)"
}
# What a task of an earlier job brought that this node lacks, such as the folder of that job.
take_out_gone() {
	rest=$brought,
	while [ "$rest" ]; do
		word=${rest%%,*} rest=${rest#*,}
		[ -z "$word" ] || there "${word%%:*}" || take_out "$word"
	done
}
# What a module brought and the node lacks: no container would start with it.
take_out() {
	case ${bindable:+,$brought,} in *",$1,"*) ;; *) return ;; esac
	case ,$ls_list, in *",$1,"*) ;; *) return ;; esac
	ls_without "$brought" "$1"
	brought=$ls_answer
	ls_without "$ls_list" "$1"
	ls_list=$ls_answer appended=1
	explain "without the bind $1"
}
add_binds() {
	list_root
	appended='' markers='' brought='' before=''
	ls_know_list
	case $ls_list in *"$ls_nl"*) bindable= ;; *) bindable=1 ;; esac
	[ "$bindable" ] || explain "$ls_list_name has a line break and stays as it is"
	known=",$ls_list,$ls_beside,"
	ls_site_binds
	remember_binds
	if [ "$appended" ] && put "$ls_list_name" "$ls_list"; then
		explain "$ls_list_name=$ls_list"
		out=$out$markers
	fi
}

# ---- the wrapper, first on PATH: Slurm looks the command up after this
put_wrapper_first() {
	own=${0%/*}
	case $own in
	*/current/spank) own=${own%/current/spank}/releases/$ls_site_release/spank ;;
	/*) ;;
	*) own=$ls_site_root/releases/$ls_site_release/spank ;;
	esac
	case $own$users_path in
	*"$ls_nl"*) explain 'PATH has a line break and stays as it is' ;;
	*) case :$users_path: in *":$own/bin:"*) ;; *) put PATH "$own/bin${users_path:+:$users_path}" ;; esac ;;
	esac
}
# The container wrapper (Tykky) calls the runtime by its absolute path, past ours: on request, it is served here.
serve_tykky() {
	case ${ls_site_libraries:+${LUMISITE_TYKKY-}} in '' | 0 | no | off) return ;; esac
	libraries=$ls_site_libraries
	case $LUMISITE_TYKKY in *:*) ;; /*) libraries=$LUMISITE_TYKKY:$libraries ;; esac
	case :${LD_LIBRARY_PATH-}: in
	*":$libraries:"*) ;;
	*)
		put LD_LIBRARY_PATH "$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" &&
			explain "LD_LIBRARY_PATH begins with $libraries"
		;;
	esac
}

ls_start() {
	set +f
	ls_know_step
	set -f
	node=${SLURMD_NODENAME-} after=';' wanted=''
	case $node in '' | *[!A-Za-z0-9._-]*) node='this node' ;; esac
	if [ "$verbose" ]; then
		say "release $ls_site_release, stack $ls_stack, nodes: $ls_nodes, partition: $ls_partition, $ls_gpus nodes"
		[ "$ls_known_stack" ] || say "LUMISITE_STACK is not a stack of this release, which has $ls_site_stacks"
	fi
	case $ls_site_prefix in
	'') ;; # Modules of another kind bind, and there is no wrapper.
	*)
		add_binds
		put_wrapper_first
		serve_tykky
		;;
	esac
	ls_site_settings
	ls_site_harms
	[ -z "$verbose" ] || ls_site_left_alone
	put LUMISITE_DONE "$task"
	use_private
	# The record of what is ours, for the prolog of a step inside this one.
	case ${LUMISITE_EXPORTS-} in "$after") ;; *) put LUMISITE_EXPORTS "$after" ;; esac
	bind_task || [ -z "$verbose" ] || report cpus '' "$why" "no CPU mask: $why"
	flush
	exit 0
}
