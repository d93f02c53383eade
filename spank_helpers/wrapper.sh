#!/bin/sh
# The wrapper of lumisite, as singularity and, by a link, as apptainer first on PATH: corrects the
# environment for the image in hand, then becomes the real program with the same arguments.
#   what it does:      LUMISITE_VERBOSE=1 singularity exec ...
#   off for one user:  export LUMISITE=off, or call the real program by its path
#   off for all:       lumisite policy @ROOT@ off
#   the same by hand:  echo 'off default' >@ROOT@/policy
#   one release back:  lumisite rollback @ROOT@
#   whose it is:       release @RELEASE@ of @SITE@
#   whom to ask:       @SUPPORT@
#                      @CONTACT@
#
# 1 Be safe: nothing of the user's shell acts here, and nothing of this shell in the container.
# 2 Find the real program. Become it at once where the user, or the policy, has switched us off.
# 3 Find the command and the image among the arguments.
# 4 Know the image: its file, its family, its release of @STACK@, whether the plugin is in it.
# 5 Binds: without those of modules that the image does not need, with those that it lacks.
# 6 Settings that depend on the image; a value of the user's stays.
# 7 Directories on PATH and on the library path in the container.
# 8 Become the real program.
#
# All names begin with ls_: a shell variable that the user happens to export would reach the
# container with a new value. A value of more than 8 KiB is left as it is, without a look inside.

# ---- 1 Be safe. bash can be told to export all variables and functions, or to end at some depth of
# calls; and it takes a function that the user has exported for a command, unless -p makes it only
# hand that on.
case $- in *a*) set +a && ls_export=-a ;; *) ls_export=+a ;; esac
case ${BASH_VERSION-} in
?*)
	for ls_word in '[' test printf read; do
		if eval "export -f $ls_word" 2>/dev/null; then exec "$BASH" -p "$0" "$@"; fi
	done
	;;
esac
ls_nesting=${FUNCNEST-}
case $ls_nesting in ?*) unset FUNCNEST ;; esac
ls_ifs=$IFS ls_glob=+f
case $- in *f*) ls_glob=-f ;; esac
set -f
ls_line_end='
'
ls_verbose=${LUMISITE_VERBOSE-}
case $ls_verbose in 0 | no | off) ls_verbose='' ;; esac

ls_start() {
	ls_find_runtime
	ls_read_policy
	case ${LUMISITE-},$ls_mode in
	off,* | OFF,* | no,* | 0,* | *,off | *,observe) ls_become "$@" ;;
	esac
	ls_find_image "$@"
	case $ls_state in
	unsure) ;;
	found)
		ls_know_step
		ls_know_file
		ls_know_image
		ls_correct_binds
		ls_correct_settings
		ls_extend_paths
		ls_store_list
		;;
	*) ls_without_binds ;;
	esac
	ls_become "$@"
}

# A value of the user's may have control characters: the line ends before the first.
ls_print() { printf '%s\n' "${1%%[![:print:]]*}" >&2 || :; }
ls_say() { ls_print "lumisite: $1"; }
# A key, its value, both in words, and `own` for what each task has for itself. Under =1 one task of
# a node says what all have in common, under =all each says all; =report is for programs.
ls_note() {
	case $ls_verbose,${SLURM_LOCALID-0},${4-} in
	,*) ;;
	report,*) ls_print "report $1 $2" ;;
	all,* | *,0, | *,own)
		ls_say "${SLURM_PROCID:+${SLURMD_NODENAME-this node} rank $SLURM_PROCID: }$3"
		;;
	esac
}
# By one task of the job; by one task of the node.
ls_warn() { case ${SLURM_PROCID-0} in 0) ls_say "$ls_path $1" ;; esac }
ls_miss() {
	case ${SLURM_LOCALID-0} in
	0) ls_say "$1 not found on ${SLURMD_NODENAME-this node}: the container starts without it" ;;
	esac
}
# Sets $ls_is_set to x where a variable is set, and $ls_old to its value.
ls_look_up() { ls_is_set='' ls_old='' && eval "ls_is_set=\${$1+x} ls_old=\${$1-}"; }
ls_is_long() { [ "${#1}" -gt 8192 ]; }
ls_is_there() { [ -e "$1" ]; }

# ---- 2 The real program: $ls_real. It is looked for on PATH only if it is not where the site says,
# or if that led back here.
ls_find_runtime() {
	ls_site_runtime_of "${0##*/}"
	ls_real=$ls_site_runtime ls_mark=$$
	if [ "${LUMISITE_WRAPPER-}" = "$$" ] || ! [ -x "$ls_real" ]; then
		ls_mark="$$ searched" ls_real=''
		IFS=:
		for ls_folder in ${PATH-}; do
			case $ls_folder in '' | "${0%/*}" | */spank/bin) continue ;; esac
			ls_real=$ls_folder/${ls_site_runtime##*/}
			if [ -f "$ls_real" ] && [ -x "$ls_real" ]; then break; fi
			ls_real=''
		done
		IFS=$ls_ifs
		if [ -z "$ls_real" ] || [ "${LUMISITE_WRAPPER-}" = "$ls_mark" ]; then
			ls_real=${ls_site_runtime##*/}
			ls_say "there is no $ls_real on this node, neither $ls_site_runtime nor on PATH"
			exit 127
		fi
	fi
	export LUMISITE_WRAPPER="$ls_mark"
}

# ---- 3 The command and the image: $ls_state is found, unsure for a word that is too long, or
# another for what starts no container; $ls_image is the word. An option of which it is not known
# that the next word is its value, has none.
ls_find_image() {
	ls_state=global ls_command='' ls_image='' ls_takes='' ls_writable=''
	for ls_word; do
		case $ls_takes in 1) ls_takes='' && continue ;; esac
		case $ls_state,$ls_word in
		global,--config | global,-c) ls_takes=1 ;;
		global,-*) ;;
		global,instance) ls_state=instance ;;
		global,exec | global,run | global,shell | global,test | instance,start | instance,run)
			ls_command=$ls_word ls_state=options
			;;
		options,--) ls_state=image ;;
		options,--writable) ls_writable=1 ;;
		options,--*) if ls_site_option "$ls_word"; then ls_takes=1; fi ;;
		options,-?*) ls_read_letters "${ls_word#-}" ;;
		options,* | image,*) ls_image=$ls_word ls_state=found ;;
		*) ls_state=other ;;
		esac
		case $ls_state in other | unsure | found) break ;; esac
	done
	# In a writable image, a target of a bind that is not in it is fatal: cotainr builds that way.
	case $ls_state$ls_writable in found1) ls_state=other ;; esac
	# No path is longer than 4096 bytes.
	if [ "${#ls_image}" -gt 4096 ]; then ls_state=unsure; fi
}
# One-letter options that stand together, such as eB/data: a value may follow in the same word.
ls_read_letters() {
	ls_rest=$1
	if ls_is_long "$1"; then ls_state=unsure ls_rest=''; fi
	while [ -n "$ls_rest" ]; do
		ls_letter=${ls_rest%"${ls_rest#?}"} ls_rest=${ls_rest#?}
		case $ls_letter,$ls_command in w,*) ls_writable=1 ;; s,shell) ls_takes=1 ;; esac
		if ls_site_option "-$ls_letter"; then ls_takes=1; fi
		case $ls_takes,$ls_rest in 1,?*) ls_takes='' ls_rest='' ;; esac
	done
}

# ---- 4 The image
# Sets $ls_step, by which the site's data is chosen, as the prolog has found it out for this task:
# combination/nodes/gpus/kind of node, which is `outside` where there is no such task.
ls_know_step() {
	ls_step=${ls_site_stacks%% *}
	for ls_word in $ls_site_stacks; do
		case $ls_word in "${LUMISITE_STACK-}") ls_step=$ls_word ;; esac
	done
	ls_step=$ls_step/unknown/cpu/outside
	if [ "${LUMISITE_DONE-}" = "${SLURM_JOB_ID-}.${SLURM_STEP_ID-}.${SLURM_PROCID-}" ]; then
		ls_step=${LUMISITE_STEP-}
	fi
}
# $ls_path is what was typed, from the root on; $ls_file is where it leads: the file decides what an
# image is, not its name.
ls_know_file() {
	case $ls_image in
	/* | *://*) ls_path=$ls_image ;;
	*) ls_path=${PWD-}/${ls_image#./} ;;
	esac
	ls_file=$ls_path ls_rest=$ls_path
	# Only where there is a link, a program is started.
	case $ls_path in
	/*/../* | /../* | /*//* | /*/./*) ;;
	/*) while [ -n "$ls_rest" ] && ! [ -L "$ls_rest" ]; do ls_rest=${ls_rest%/*}; done ;;
	*) ls_rest='' ;;
	esac
	if [ -n "$ls_rest" ]; then
		ls_rest=$(
			unset LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT
			exec /usr/bin/readlink -f -- "$ls_path" 2>/dev/null
		) || ls_rest=''
	fi
	case $ls_rest in /*) ls_file=$ls_rest ;; esac
	# What stands before `..` is no part of the name.
	case $ls_path in */../*) ls_path=$ls_file ;; esac
}
# Sets $ls_family, $ls_version and $ls_plugin, each empty where it is not known, and $ls_plan;
# $ls_basis is content where this very file was read, else name. Of a family, $ls_needs are the
# modules that it needs, $ls_has is whether it has the plugin. Of an image that was read,
# $ls_left_alone are variables left to it, and $ls_lacking is what keeps its plugin from loading.
ls_know_image() {
	ls_family='' ls_version='' ls_plugin='' ls_plan='' ls_planned='' ls_basis=name
	ls_needs='' ls_front='' ls_libraries='' ls_has='' ls_left_alone='' ls_lacking=''
	# A plan that names the file itself comes first, then one of which a pattern fits, then the lock.
	if ls_site_family "${LUMISITE_FAMILY-}"; then
		ls_family=$LUMISITE_FAMILY
	elif ls_site_plan "$ls_file" || ls_site_plan "$ls_path"; then
		ls_basis=content
	elif ls_site_plan_like "$ls_path" || ls_site_plan_like "$ls_file"; then
		:
	elif ls_site_image "$ls_file"; then
		ls_basis=content
	fi
	if [ -z "$ls_family" ]; then ls_site_name "$ls_file" || ls_site_name "$ls_path" || :; fi
	ls_site_family "$ls_family" || :
	# What was read in another file than this one, or in an earlier one of this name, does not count.
	if ls_is_other_file || [ "$ls_file" -nt "$0" ]; then ls_basis=name; fi
	case $ls_basis in name) ls_version='' ls_plugin=$ls_has ls_left_alone='' ls_lacking='' ;; esac
	ls_rest=''
	if [ -n "$ls_version" ]; then
		ls_rest=$((ls_version / 1000000)).$((ls_version / 1000 % 1000)).$((ls_version % 1000))
		ls_rest=${ls_rest%.0}
	fi
	ls_note image "$ls_basis/$ls_family/$ls_rest/$ls_plugin" \
		"$ls_path: family ${ls_family:-unknown}${ls_rest:+, @STACK@ $ls_rest}"
}
# Whether the plan names another file than the image that is there.
ls_is_other_file() {
	[ -n "$ls_planned" ] && [ -e "$ls_path" ] && ! [ "$ls_path" -ef "$ls_planned" ]
}
# A plan is for one image. A link that leads elsewhere now, and a file that was written anew, can be
# told without a program.
ls_plan_fits() {
	if ls_is_other_file; then
		ls_warn "is not the file that $ls_plan was made for, so it gets what its family gets"
		return 1
	fi
	if [ -n "$ls_planned" ] && [ "$ls_path" -nt "$0" ]; then
		ls_warn "is newer than the release with its plan $ls_plan, which may be for another image"
	fi
	ls_note plan "$ls_plan" "plan $ls_plan"
}

# ---- 5 Binds, in $ls_list
ls_correct_binds() {
	ls_know_list
	if ls_is_long "$ls_list$ls_beside"; then return 0; fi
	for ls_marker in $ls_site_markers; do ls_review "$ls_marker"; done
	case $ls_family in ?*) ls_site_binds ;; esac
	ls_site_follow "$ls_plan"
}
# Apptainer drops SINGULARITY_BINDPATH where APPTAINER_BINDPATH differs from it: what a user has
# there stays in use. $ls_beside are binds that stay as they are.
ls_know_list() {
	ls_list_name=SINGULARITY_BINDPATH ls_list=${SINGULARITY_BINDPATH-} ls_beside=${SINGULARITY_BIND-}
	case $ls_site_prefix in SINGULARITY) return 0 ;; esac
	ls_beside=${APPTAINER_BIND-}
	case ${APPTAINER_BINDPATH:+theirs}${ls_list:+list} in
	list) ;;
	*) ls_list_name=APPTAINER_BINDPATH ls_list=${APPTAINER_BINDPATH-} ;;
	esac
}
ls_store_list() {
	ls_look_up "$ls_list_name"
	case $ls_list in
	"$ls_old") ;;
	'') unset "$ls_list_name" ;;
	*) export "$ls_list_name=$ls_list" ;;
	esac
}
# build, pull, inspect and all that start no container: ours would only break them.
ls_without_binds() {
	ls_family='' ls_needs=''
	for ls_list_name in SINGULARITY_BINDPATH APPTAINER_BINDPATH; do
		ls_look_up "$ls_list_name"
		ls_list=$ls_old
		if ls_is_long "$ls_list"; then continue; fi
		for ls_marker in $ls_site_markers; do ls_review "$ls_marker"; done
		ls_store_list
	done
}
# The name of a variable that remembers which binds are a module's. What the image does not need
# goes, and what is not there, such as a broken link in `/`, which the prolog does not touch: no
# container would start. An image that no family knows keeps the binds of all modules.
ls_review() {
	case $ls_state,$ls_family,$1,$ls_needs in
	found,,* | found,*,LUMISITE_BINDS_TASK,* | found,*" $1 "*) ls_keep=1 ;;
	*) ls_keep='' ;;
	esac
	ls_look_up "$1"
	if ls_is_long "$ls_old"; then return 0; fi
	IFS=,
	for ls_bind in $ls_old; do
		if [ -n "$ls_keep" ] && ls_is_there "${ls_bind%%:*}"; then continue; fi
		case ,$ls_list, in *",${ls_bind:-,},"*) ;; *) continue ;; esac
		case $ls_keep in 1) ls_miss "${ls_bind%%:*}" ;; esac
		ls_take_out "$ls_bind"
	done
	IFS=$ls_ifs
}
ls_take_out() {
	case ,$ls_list, in *",$1,"*) ;; *) return 0 ;; esac
	ls_list=,$ls_list,
	ls_list=${ls_list%%",$1,"*},${ls_list#*",$1,"}
	ls_list=${ls_list#,} ls_list=${ls_list%,}
	ls_note no-bind "$1" "without the bind $1"
}
# A bind, and its path and target where they are not the bind itself.
ls_add() {
	ls_target=${3:-$1}
	case ,$ls_list,$ls_beside, in
	*",$ls_target,"* | *":$ls_target,"* | *":$ls_target:"*) return 0 ;;
	esac
	if ls_is_there "${2:-$1}"; then
		ls_list=${ls_list:+$ls_list,}$1
		ls_note bind "$1" "with the bind $1"
	fi
}
# A module's variable, and a bind of it: where the image needs the module, and that was not unloaded
# on purpose, as one was whose variable is gone.
ls_module_bind() {
	ls_look_up "$1"
	case $ls_needs,${LUMISITE_STACK+loaded}$ls_is_set in
	*" $1 "*,loaded) ;;
	*" $1 "*) shift && ls_add "$@" ;;
	esac
}
# Of a plan: its own bind; a bind to take out, where the module of that variable has brought it.
ls_plan_bind() {
	if ls_is_there "${2:-$1}"; then ls_add "$@"; else ls_miss "${2:-$1}"; fi
}
ls_plan_without() {
	ls_look_up "$1"
	case ,$ls_old, in *",$2,"*) ls_take_out "$2" ;; esac
}

# ---- 6 Settings, in a task whose prolog has run
ls_correct_settings() {
	case $ls_step in */outside) return 0 ;; esac
	ls_local_id=${SLURM_LOCALID-}
	case $ls_local_id in '' | *[!0-9]* | ?????*) ls_local_id=0 ;; esac
	# What the image sets itself, and what an entry leaves alone for the libfabric in it.
	for ls_left in $ls_left_alone; do
		ls_variable "$ls_left"
		case $ls_free in 1) unset "$ls_left" ;; esac
	done
	ls_site_settings
	# Once on each node: why the plugin cannot be loaded, or the path of the libfabric that it looks
	# for, which may have come back since somebody read the image.
	ls_text="$ls_path starts without the fast network:"
	case $ls_lacking,$ls_step,$ls_local_id in
	/*,*/several/gpu/*,0)
		ls_text="$ls_text its plugin looks for $ls_lacking, which is not on"
		ls_is_there "$ls_lacking" || ls_say "$ls_text ${SLURMD_NODENAME-this node}"
		;;
	?*,*/several/gpu/*,0) ls_say "$ls_text $ls_lacking" ;;
	esac
}
# A variable, whose rules follow. $ls_free is 1 where it is not set, or where the prolog has set it.
ls_variable() {
	ls_name=$1 ls_decided='' ls_free=''
	ls_look_up "$1"
	case $ls_is_set in '') ls_free=1 && return 0 ;; esac
	if ls_is_long "$ls_old${LUMISITE_EXPORTS-}"; then return 0; fi
	case $ls_old in *';'* | *"$ls_line_end"*) return 0 ;; esac
	case ${LUMISITE_EXPORTS-} in *";$1=$ls_old;"*) ls_free=1 ;; esac
}
# Conditions, each of which may be empty: of the release, families in blanks, yes or no for the
# plugin; then what to do, and its value. The first that fits decides, as in the ledger. What is
# not known is not guessed, and an exception that leaves the variable alone is one only where it is
# known to hold. A value of the user's stays.
ls_rule() {
	case $ls_decided in 1) return 0 ;; esac
	ls_open=''
	case $1,$ls_version in
	,*) ;;
	*,) ls_open=1 ;;
	*) if [ "$(($1))" = 0 ]; then return 0; fi ;;
	esac
	case $2,$ls_family, in
	,* | *" $ls_family "*,?*) ;;
	*,,) ls_open=1 ;;
	*) return 0 ;;
	esac
	case $3,$ls_plugin in
	,* | yes,yes | no,no) ;;
	*,) ls_open=1 ;;
	*) return 0 ;;
	esac
	case $ls_open,$4 in 1,leave) return 0 ;; esac
	ls_decided=1
	case ${ls_open:+leave}$4,$ls_free in
	value,1) ls_set "$5" ;;
	*value,) ls_keep_value ;;
	directory,1) case ${LUMISITE_PRIVATE-} in ?*) ls_set "$LUMISITE_PRIVATE/$5" ;; esac ;;
	unset,*) case " ${LUMISITE_KEEP-} " in *" $ls_name "*) ;; *) unset "$ls_name" ;; esac ;;
	leave*,1) unset "$ls_name" ;;
	esac
}
ls_set() {
	case " $ls_left_alone" in *" $ls_name "*) return 0 ;; esac
	export "$ls_name=$1"
	case /$1/ in */"$ls_local_id"/*) ls_own=own ;; *) ls_own='' ;; esac
	ls_note setting "$ls_name" "$ls_name=$1" "$ls_own"
}

ls_keep_value() {
	case $ls_old in *[![:print:]]*) ls_old='' ;; esac
	ls_rest=$ls_name${ls_old:+=$ls_old}
	if [ "${#ls_old}" -gt 200 ]; then ls_rest=$ls_name; fi
	ls_note kept "$ls_rest" "$ls_rest not changed: it was set before lumisite ran"
}

# ---- 7 Paths in the container
ls_extend_paths() {
	case ${LUMISITE_VENV-} in ?*) ls_add_venv ;; esac
	ls_extend PREPEND_PATH "$ls_front"
	ls_extend LD_LIBRARY_PATH "$ls_libraries"
}
# A venv in a squashfs file: FILE[:PATH], or auto for IMAGE.sqsh beside IMAGE.sif.
ls_add_venv() {
	ls_venv=${LUMISITE_VENV%%:*} ls_target=/user-software
	case $LUMISITE_VENV in *:*) ls_target=${LUMISITE_VENV#*:} ;; esac
	case $ls_venv in auto) ls_venv=${ls_path%.sif}.sqsh ;; /*) ;; *) ls_venv=${PWD-}/$ls_venv ;; esac
	case $ls_venv$ls_target in *[,:\"]* | *"$ls_line_end"*) ls_venv='' ;; esac
	if [ -f "$ls_venv" ]; then
		ls_front=$ls_target/bin${ls_front:+:$ls_front}
		ls_add "$ls_venv:$ls_target:image-src=/" "$ls_venv" "$ls_target"
	elif [ "$LUMISITE_VENV" != auto ]; then
		ls_say 'LUMISITE_VENV is no FILE or FILE:PATH of a file that is there'
	fi
}
# Directories go behind what the user has in a variable of the container, once.
ls_extend() {
	ls_name=${ls_site_prefix}ENV_$1
	ls_look_up "$ls_name"
	case $2,:$ls_old: in ,* | *":$2:"*) return 0 ;; esac
	export "$ls_name=${ls_old:+$ls_old:}$2"
	ls_note extended "$ls_name" "$ls_name=${ls_old:+$ls_old:}$2"
}

# ---- 8 The real program
ls_become() {
	case $- in *p*) set +p ;; esac
	set "$ls_glob" "$ls_export"
	case $ls_nesting in ?*) export FUNCNEST="$ls_nesting" ;; esac
	exec "$ls_real" "$@"
}
