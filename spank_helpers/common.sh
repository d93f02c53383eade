# ---- what prolog and wrapper have in common; each has its own ls_say. Names begin with ls_ because
# a variable of the user's that the wrapper uses would reach the container changed.

# Sets $ls_number to $1 if that is one, else to $2: arithmetic on anything else would end the shell.
ls_to_number() {
	case $1 in
	'' | 0?* | *[!0-9]* | ???????????*) ls_number=$2 ;;
	*) ls_number=$1 ;;
	esac
}
ls_is_long() { [ "${#1}" -gt 8192 ]; }
# Whether a variable is set; sets $ls_value to its value.
ls_look_up() {
	ls_value='' ls_is_set=''
	eval "ls_value=\${$1-} ls_is_set=\${$1+yes}"
	[ "$ls_is_set" ]
}
# Whether a variable has a value that the prolog has given it; those never contain `;`.
ls_is_ours() {
	ls_look_up "$1" || return
	if ls_is_long "$ls_value${LUMISITE_EXPORTS-}"; then return 1; fi
	case $ls_value in *';'*) return 1 ;; esac
	case ${LUMISITE_EXPORTS-} in *";$1=$ls_value;"*) ;; *) return 1 ;; esac
}

# Sets what is known of the task: $ls_job, $ls_step_id, $ls_rank, $ls_local_id (its number on its
# node), $ls_node (the node's name), $ls_task (its name), $ls_who (what its lines begin with); and
# $ls_verbose.
ls_know_task() {
	ls_to_number "${SLURM_JOB_ID-}" 0 && ls_job=$ls_number
	ls_to_number "${SLURM_STEP_ID-}" 0 && ls_step_id=$ls_number
	ls_to_number "${SLURM_PROCID-}" 0 && ls_rank=$ls_number
	ls_to_number "${SLURM_LOCALID-}" 0 && ls_local_id=$ls_number
	ls_task=$ls_job.$ls_step_id.$ls_rank
	ls_node=${SLURMD_NODENAME-}
	case $ls_node in '' | *[!A-Za-z0-9._-]*) ls_node='this node' ;; esac
	ls_who=${SLURM_PROCID:+"$ls_node rank $ls_rank: "}
	ls_verbose=${LUMISITE_VERBOSE-}
	case $ls_verbose in 0 | no | off) ls_verbose='' ;; esac
}
# Sets $ls_combination to that of the loaded module, else to the first, which is the default.
ls_know_combination() {
	ls_combination=''
	for ls_name in $ls_site_combinations; do
		case $ls_combination,$ls_name in
		,* | *,"${LUMISITE_STACK-}") ls_combination=$ls_name ;;
		esac
	done
}

# Under LUMISITE_VERBOSE=1 the first task of a node says what all have in common, and each what is
# its own; under =all each says all.
ls_note() {
	case $ls_verbose,$ls_local_id in
	,*) ;;
	all,* | *,0) ls_say "$ls_who$1" ;;
	esac
}
ls_note_own() { case $ls_verbose in ?*) ls_say "$ls_who$1" ;; esac }
# The name of a variable and its value, which stays.
ls_note_kept() {
	ls_text=$1=$2
	if [ "${#2}" -gt 200 ]; then ls_text=$1; fi
	case $2 in *[![:print:]]*) ls_text=$1 ;; esac
	ls_note "$ls_text not changed: it was set before lumisite ran"
}

# ---- the list of binds
# Sets $ls_list to the list, $ls_list_name to its variable, and $ls_other_binds to the user's binds
# in another one. Apptainer's own list is APPTAINER_BINDPATH, and Singularity's where that is empty.
ls_know_list() {
	ls_list_name=${ls_site_prefix}_BINDPATH
	if [ -z "${APPTAINER_BINDPATH-}" ] && [ "${SINGULARITY_BINDPATH-}" ]; then
		ls_list_name=SINGULARITY_BINDPATH
	fi
	ls_look_up "${ls_site_prefix}_BIND"
	ls_other_binds=$ls_value
	ls_look_up "$ls_list_name"
	ls_list=$ls_value
}
# Whether something is bound to a path in the container.
ls_is_bound() {
	case ,$ls_list,$ls_other_binds, in
	*",$1,"* | *":$1,"* | *":$1:"*) ;;
	*) return 1 ;;
	esac
}
# Whether a bind is in the list.
ls_is_listed() { case ${1:+,$ls_list,} in *",$1,"*) ;; *) return 1 ;; esac }
ls_take_out() {
	ls_is_listed "$1" || return
	ls_list=,$ls_list,
	ls_list=${ls_list%%",$1,"*},${ls_list#*",$1,"}
	ls_list=${ls_list#,}
	ls_list=${ls_list%,}
}

# ---- the policy
# Sets $ls_mode to on, observe or off. ROOT/policy has lines `WORD partition NAME`, `WORD account
# NAME` and `WORD default`, as `lumisite policy` writes them; the first counts that fits the step. A
# script that is not below a root, such as a copy that Slurm hands out, follows the policy of the
# site's root; where that has none, somebody runs a tree that was never deployed, and has chosen to.
ls_read_policy() {
	ls_mode=none
	case $0 in
	*/current/spank/*) ls_policy=${0%/current/spank/*}/policy ;;
	*/releases/*) ls_policy=${0%/releases/*}/policy ;;
	*)
		ls_policy=$ls_site_root/policy
		if ! [ -e "$ls_policy" ]; then ls_mode=on; fi
		;;
	esac
	if [ -f "$ls_policy" ] && [ -r "$ls_policy" ]; then
		ls_read_lines <"$ls_policy"
	elif [ -e "$ls_policy" ]; then
		ls_mode=off
	fi
	# Where no line is for the step, it is on for who has loaded the module.
	case $ls_mode,${LUMISITE_STACK+loaded} in
	on,* | none,loaded) ls_mode=on ;;
	observe,*) ;;
	*) ls_mode=off ;;
	esac
}
# Sets $ls_mode to the word of the line that fits, to none where all lines are for others. It is off
# from a line of another form on, behind 64 lines, and without a line; blank lines and those that
# begin with `#` are none.
ls_read_lines() {
	ls_mode=off ls_line=0
	# No more than this is taken for a line, where the shell's `read` has such a limit: dash's has not.
	ls_limit='-n 4096'
	eval "read -r $ls_limit ls_text" </dev/null 2>/dev/null
	case $? in 1) ;; *) ls_limit='' ;; esac
	while eval "read -r $ls_limit ls_text" || [ "$ls_text" ]; do
		ls_line=$((ls_line + 1))
		case $ls_line in 65) ls_mode=off && return ;; esac
		ls_split_line
		case "$ls_word $ls_scope $ls_name $ls_rest" in
		' '* | '#'*) ;;
		?*' default  ') ls_mode=$ls_word && return ;;
		?*" partition ${SLURM_JOB_PARTITION:-/} ") ls_mode=$ls_word && return ;;
		?*" account ${SLURM_JOB_ACCOUNT:-/} ") ls_mode=$ls_word && return ;;
		?*' partition '?*' ' | ?*' account '?*' ') ls_mode=none ;;
		*) ls_mode=off && return ;;
		esac
	done
}
# Sets $ls_word, $ls_scope, $ls_name and $ls_rest to the words of $ls_text; the last to one of more.
ls_split_line() {
	ls_word='' ls_scope='' ls_name='' ls_rest='' ls_words=0
	for ls_rest in $ls_text; do
		ls_words=$((ls_words + 1))
		case $ls_words in
		1) ls_word=$ls_rest ;;
		2) ls_scope=$ls_rest ;;
		3) ls_name=$ls_rest ;;
		*) return ;;
		esac
	done
	ls_rest=''
}
