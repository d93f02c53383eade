#!/bin/sh
# Stands before the real runtime on PATH, as `singularity` and as `apptainer`: corrects the environment for the image in
# hand (docs/explanation/what-the-helper-does.md), then becomes the real one with the same arguments. `lumisite render`
# joins this file, policy.sh, image.sh and the site's data (all ls_site_*) to one, which calls ls_start at its end. It
# changes no shell option, which an exported SHELLOPTS would carry into the container. Each name begins with ls_: a shell
# variable that the user happens to export would reach the container with a new value.
unset -f '[' test printf readlink >/dev/null 2>&1 || :
ls_nl='
'
ls_own=''
case ${LUMISITE_VERBOSE-} in 0 | no | off) ls_verbose= ;; *) ls_verbose=${LUMISITE_VERBOSE-} ;; esac

# ---- what touches the node: `lumisite env` defines these anew
ls_there() { [ -e "$1" ]; }

# ---- output
ls_say() { printf '%s\n' "lumisite: $1" >&2 || :; }
# A key, its value, and both in words, as in the prolog.
ls_note() {
	case $ls_verbose,${SLURM_LOCALID-0},$ls_own in
	,*) ;;
	report,*) printf '%s\n' "report $1 $2" >&2 || : ;;
	all,* | *,0, | *,own) ls_say "${SLURM_PROCID:+${SLURMD_NODENAME-this node} rank $SLURM_PROCID: }$3" ;;
	esac
}
# By one task of the job.
ls_warn() { case ${SLURM_PROCID-0} in 0) ls_say "$ls_path $1" ;; esac }
ls_miss() {
	case ${SLURM_LOCALID-0} in 0) ls_say "$1 not found on ${SLURMD_NODENAME-this node}: the container starts without it" ;; esac
}

# ---- the real program; it is looked for on PATH only if it is not where the site says, or if that led back here
ls_know_runtime() {
	ls_program=${ls_site_runtime##*/} ls_real=$ls_site_runtime ls_rest=${PATH-}: ls_mark=$$
	if [ "${LUMISITE_WRAPPER-}" = "$$" ] || [ ! -x "$ls_real" ]; then
		ls_mark="$$ searched" ls_real=''
		[ "${LUMISITE_WRAPPER-}" != "$ls_mark" ] || ls_rest=
		while [ -n "$ls_rest" ] && [ -z "$ls_real" ]; do
			ls_folder=${ls_rest%%:*} ls_rest=${ls_rest#*:}
			case $ls_folder in '' | "${0%/*}" | */spank/bin) continue ;; esac
			if [ -f "$ls_folder/$ls_program" ] && [ -x "$ls_folder/$ls_program" ]; then ls_real=$ls_folder/$ls_program; fi
		done
		if [ -z "$ls_real" ]; then
			ls_say "there is no $ls_program on this node, neither $ls_site_runtime nor on PATH"
			exit 127
		fi
	fi
	export LUMISITE_WRAPPER="$ls_mark"
}
# What the prolog has found out about this task's step, for the site's rules.
ls_know_step() {
	ls_in_step='' ls_stack=${ls_site_stacks%% *} ls_nodes=unknown ls_gpus=cpu ls_partition=other ls_kind=''
	case " $ls_site_stacks " in *" ${LUMISITE_STACK:-none} "*) ls_stack=$LUMISITE_STACK ;; esac
	if [ "${LUMISITE_DONE-}" = "${SLURM_JOB_ID-}.${SLURM_STEP_ID-}.${SLURM_PROCID-}" ]; then
		ls_in_step=1 ls_rest=${LUMISITE_STEP-}/////
		ls_stack=${ls_rest%%/*} ls_rest=${ls_rest#*/}
		ls_nodes=${ls_rest%%/*} ls_rest=${ls_rest#*/}
		ls_gpus=${ls_rest%%/*} ls_rest=${ls_rest#*/}
		ls_partition=${ls_rest%%/*} ls_rest=${ls_rest#*/}
		ls_kind=${ls_rest%%/*}
	fi
}

# ---- the list of binds
ls_use_list_of_singularity() {
	ls_list=${SINGULARITY_BINDPATH-} ls_list_name=SINGULARITY_BINDPATH ls_beside=${SINGULARITY_BIND-}
}
# Apptainer drops SINGULARITY_BINDPATH where APPTAINER_BINDPATH differs from it: what a user has there stays in use.
ls_use_list_of_apptainer() {
	ls_use_list_of_singularity
	ls_beside=${APPTAINER_BIND-}
	if [ -n "${APPTAINER_BINDPATH-}" ] || [ -z "$ls_list" ]; then
		ls_list=${APPTAINER_BINDPATH-} ls_list_name=APPTAINER_BINDPATH
	fi
}
ls_store() {
	eval "ls_old=\${$ls_list_name-}"
	case $ls_list in
	"$ls_old") ;;
	'') unset "$ls_list_name" ;;
	*) export "$ls_list_name=$ls_list" ;;
	esac
}
ls_take_out() {
	case ,$ls_list, in *",$1,"*) ;; *) return 0 ;; esac
	ls_list=,$ls_list,
	ls_list=${ls_list%%",$1,"*},${ls_list#*",$1,"}
	ls_list=${ls_list#,} ls_list=${ls_list%,}
	ls_note no-bind "$1" "without the bind $1"
}
# Path, target, bind.
ls_add() {
	case ,$ls_list,$ls_beside, in *",$2,"* | *":$2,"* | *":$2:"*) return 0 ;; esac
	if ls_there "$1"; then
		ls_list=${ls_list:+$ls_list,}$3
		ls_note bind "$3" "with the bind $3"
	fi
}
# A variable that remembers whose binds are in the list, its value behind an `x` or nothing. What the image does not need
# goes, and what is not there, such as a broken link in `/`, which the prolog does not touch: no container would start.
ls_review() {
	case $ls_state,$ls_family,$1,$ls_needs in
	found,,* | found,*,LUMISITE_BINDS_TASK,* | found,*" $1 "*) ls_keep=1 ;;
	*) ls_keep= ;;
	esac
	ls_left=${2#x},
	while [ -n "$ls_left" ]; do
		ls_bind=${ls_left%%,*} ls_left=${ls_left#*,}
		case ,$ls_list, in *",${ls_bind:-,},"*) ;; *) continue ;; esac
		if [ -n "$ls_keep" ]; then
			if ls_there "${ls_bind%%:*}"; then continue; fi
			ls_miss "${ls_bind%%:*}"
		fi
		ls_take_out "$ls_bind"
	done
}
# Whether the image needs these binds; a module that was there and is not any more has been unloaded on purpose.
ls_needed() {
	case $ls_needs in *" $1 "*) ;; *) return 1 ;; esac
	[ -z "${LUMISITE_STACK+x}" ] || [ -n "$2" ]
}

# A reviewed plan is for this one image, on top of what its family's modules give. A link that leads elsewhere now, and a
# file that was written anew: both can be told without a program.
ls_plan_fits() {
	if [ -n "$ls_planned" ] && [ -e "$ls_path" ]; then
		if ! [ "$ls_path" -ef "$ls_planned" ]; then
			ls_warn "is not the file that $ls_plan was made for, so it gets what its family gets"
			return 1
		fi
		if [ "$ls_path" -nt "$0" ]; then
			ls_warn "is newer than the release with its plan $ls_plan, which may be for another image"
		fi
	fi
	ls_note plan "$ls_plan" "plan $ls_plan"
}
# Out of the list where a module brought it: the value of the variable that remembers its binds, and a bind.
ls_take_out_planned() { case ,$1, in *",$2,"*) ls_take_out "$2" ;; esac }
ls_add_planned() { if ls_there "$1"; then ls_add "$@"; else ls_miss "$1"; fi; }

# ---- settings, as in the prolog: a name, its value behind an `x` or nothing, the site's value, and its entry's number
# Whether the helper itself has set this value. Its own values never contain `;`.
ls_mine() {
	case $2 in *';'* | *"$ls_nl"*) return 1 ;; esac
	case ${LUMISITE_EXPORTS-} in *";$1=$2;"*) ;; *) return 1 ;; esac
}
ls_offer() {
	if [ -n "$2" ] && ! ls_mine "$1" "${2#x}"; then return 0; fi
	case " $ls_left_alone" in *" $1 "*) return 0 ;; esac
	export "$1=$3"
	ls_note setting "$1 $4" "$1=$3"
}
# What the image sets itself, and what an entry leaves alone for the libfabric in it: names of the site's, in blanks.
ls_leave_to_image() {
	ls_rest=$ls_left_alone
	while [ -n "$ls_rest" ]; do
		eval "ls_leave ${ls_rest%% *} \"\${${ls_rest%% *}+x\$${ls_rest%% *}}\""
		ls_rest=${ls_rest#* }
	done
}
ls_leave() { if [ -n "$2" ] && ls_mine "$1" "${2#x}"; then unset "$1"; fi; }
ls_withdraw() {
	case " ${LUMISITE_KEEP-} " in *" $1 "*) return 0 ;; esac
	unset "$1"
}
ls_cache_directory() {
	case /$3/ in */"$ls_local_id"/*) ls_own=own ;; esac
	if [ -n "${LUMISITE_PRIVATE-}" ]; then ls_offer "$1" "$2" "$LUMISITE_PRIVATE/$3" "$4"; fi
	ls_own=''
}
# A variable, and its rules: the first that fits decides, as in the ledger.
ls_variable() { ls_name=$1 ls_value=$2 ls_decided=; }
# A condition of the image's @STACK@, families in blanks, yes or no for its plugin, `read` where a guess about the image
# could hang or abort it (each may be empty); what to do, the value, the entry. What is not known is not guessed, and an
# exception that leaves the variable alone is one only where it is known to hold.
ls_rule() {
	case $ls_decided,$4,$ls_basis in 1,* | ,read,name) return 0 ;; esac
	ls_open=''
	case $1,$ls_version in
	,*) ;;
	*,) ls_open=1 ;;
	*) if [ "$(($1))" = 0 ]; then return 0; fi ;;
	esac
	case $2,$ls_family, in
	,*) ;;
	*,,) ls_open=1 ;;
	*" $ls_family "*,*) ;;
	*) return 0 ;;
	esac
	case $3,$ls_plugin in
	,* | yes,yes | no,no) ;;
	*,) ls_open=1 ;;
	*) return 0 ;;
	esac
	case $ls_open,$5 in 1,leave) return 0 ;; esac
	ls_decided=1
	if [ -n "$ls_open" ]; then ls_leave "$ls_name" "$ls_value"; else "ls_$5" "$ls_name" "$ls_value" "$6" "$7"; fi
}

# ---- what is put in front, or behind what the user has
# A venv in a squashfs file: FILE[:PATH], or auto for the file beside the image that is called like it.
ls_add_venv() {
	ls_file=${LUMISITE_VENV%%:*} ls_target=/user-software
	case $LUMISITE_VENV in *:*) ls_target=${LUMISITE_VENV#*:} ;; esac
	case $ls_file in auto) ls_file=${ls_path%.sif}.sqsh ;; /*) ;; *) ls_file=${PWD-}/$ls_file ;; esac
	case $ls_file$ls_target in *[,:\"]* | *"$ls_nl"*) ls_file= ;; esac
	if [ -f "$ls_file" ]; then
		ls_add "$ls_file" "$ls_target" "$ls_file:$ls_target:image-src=/"
		ls_front=$ls_target/bin${ls_front:+:$ls_front}
	elif [ "$LUMISITE_VENV" != auto ]; then
		ls_say 'LUMISITE_VENV is no FILE or FILE:PATH of a file that is there'
	fi
}
# Directories go behind what the user has in a variable of the container, once.
ls_extend() {
	ls_name=${ls_site_prefix}ENV_$1
	eval "ls_old=\${$ls_name-}"
	case $2,:$ls_old: in ,* | *":$2:"*) return 0 ;; esac
	export "$ls_name=${ls_old:+$ls_old:}$2"
	ls_note extended "$ls_name" "$ls_name=${ls_old:+$ls_old:}$2"
}

ls_correct() {
	ls_know_file
	ls_know_family
	ls_rest=${ls_version:+$((ls_version / 1000000)).$((ls_version / 1000 % 1000)).$((ls_version % 1000))}
	ls_rest=${ls_rest%.0}
	ls_note image "$ls_basis/$ls_family/$ls_rest/$ls_plugin" "$ls_path: family ${ls_family:-unknown}${ls_rest:+, @STACK@ $ls_rest}"
	ls_site_brought ls_review
	if [ -n "$ls_family" ]; then ls_site_binds; fi
	ls_site_follow "$ls_plan"
	if [ -n "$ls_in_step" ]; then
		ls_local_id=0
		case ${SLURM_LOCALID-} in '' | *[!0-9]*) ;; *) ls_local_id=$SLURM_LOCALID ;; esac
		ls_leave_to_image
		ls_site_settings
		# Once on each node, and not where the folder has come back since somebody read the image.
		case $ls_lacking,$ls_nodes,$ls_gpus,$ls_local_id in
		/*,several,gpu,0) ls_there "$ls_lacking" || ls_say "$ls_path starts without the fast network: its plugin looks for $ls_lacking, which is not on ${SLURMD_NODENAME-this node}" ;;
		esac
	fi
	if [ -n "${LUMISITE_VENV-}" ]; then ls_add_venv; fi
	ls_extend PREPEND_PATH "$ls_front"
	ls_extend LD_LIBRARY_PATH "$ls_libraries"
}

# As if lumisite were not there: without the wrapper's folder on PATH, nothing leads back here.
ls_step_aside() {
	ls_list='' ls_rest=${PATH-}:
	case $ls_rest in
	*/spank/bin:*)
		while [ -n "$ls_rest" ]; do
			ls_folder=${ls_rest%%:*} ls_rest=${ls_rest#*:}
			case $ls_folder in */spank/bin) ;; *) ls_list=$ls_list:$ls_folder ;; esac
		done
		PATH=${ls_list#:}
		;;
	esac
	unset LUMISITE_WRAPPER
	exec "$ls_real" "$@"
}
ls_start() {
	ls_site_runtime_of "${0##*/}"
	ls_know_runtime
	ls_read_policy
	case ${LUMISITE-},$ls_mode in
	off,* | OFF,* | no,* | 0,* | *,off | *,observe) ls_step_aside "$@" ;;
	esac
	ls_know_image "$@"
	ls_know_step
	case $ls_state in
	unsure) ls_note unsure "$ls_word" 'an option that is not known: nothing is corrected' ;;
	found)
		"$ls_site_list"
		ls_correct
		ls_store
		;;
	*)
		# build, pull, inspect and all that start no container: ours would only break them, the user's own stay.
		ls_family='' ls_needs=''
		for ls_list_name in SINGULARITY_BINDPATH APPTAINER_BINDPATH; do
			eval "ls_list=\${$ls_list_name-}"
			ls_site_brought ls_review
			ls_store
		done
		;;
	esac
	exec "$ls_real" "$@"
}
