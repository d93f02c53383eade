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
# What is of this site alone stands at the end, below "the site's data".
# shellcheck shell=dash

# ---- 1 Be safe. bash can be told to export all variables and functions, or to end at some depth of
# calls; and it takes a function that the user has exported for a command, unless -p makes it only
# hand that on.
case $- in *a*) set +a && ls_options=a ;; *) ls_options='' ;; esac
case ${BASH_VERSION-} in
?*)
	for ls_word in '[' test printf read; do
		if eval "typeset -f $ls_word" >/dev/null 2>&1; then exec "$BASH" -p "$0" "$@"; fi
	done
	;;
esac
for ls_word in e f u; do
	case $- in *"$ls_word"*) ls_options=$ls_options$ls_word ;; esac
done
set +e +u -f
ls_depth=${FUNCNEST-}
case $ls_depth in ?*) unset FUNCNEST ;; esac
unset IFS

ls_start() {
	ls_know_task
	# ---- 2
	ls_find_runtime
	ls_read_policy
	case ${LUMISITE-},$ls_mode in
	off,* | OFF,* | no,* | 0,* | *,off | *,observe) ls_become "$@" ;;
	esac
	# ---- 3
	ls_find_image "$@"
	case $ls_state in
	unsure) ;;
	found)
		# ---- 4 to 7
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
	# ---- 8
	ls_become "$@"
}

# A value of the user's may have control characters: the line ends before the first.
ls_say() { printf 'lumisite: %s\n' "${1%%[![:print:]]*}" >&2; }
# By one task of the job; by one task of each node.
ls_warn() { case $ls_rank in 0) ls_say "$ls_path $1" ;; esac }
ls_warn_missing() {
	case $ls_local_id in
	0) ls_say "$1 not found on $ls_node: the container starts without it" ;;
	esac
}
ls_is_there() { [ -e "$1" ]; }

# ---- 2 The real program
# Sets $ls_real. It is looked for on PATH only if it is not where the site says, or if that led back
# here.
ls_find_runtime() {
	ls_site_runtime_of "${0##*/}"
	ls_real=$ls_site_runtime ls_mark=$$
	if [ "${LUMISITE_WRAPPER-}" = "$$" ] || ! [ -x "$ls_real" ]; then
		ls_find_on_path "${ls_site_runtime##*/}"
		ls_mark="$$ searched"
		if [ -z "$ls_real" ] || [ "${LUMISITE_WRAPPER-}" = "$ls_mark" ]; then
			ls_real=${ls_site_runtime##*/}
			ls_say "there is no $ls_real on this node, neither $ls_site_runtime nor on PATH"
			exit 127
		fi
	fi
	export LUMISITE_WRAPPER="$ls_mark"
}
ls_find_on_path() {
	ls_real=''
	IFS=:
	for ls_folder in ${PATH-}; do
		case $ls_folder in '' | "${0%/*}" | */spank/bin) continue ;; esac
		ls_real=$ls_folder/$1
		if [ -f "$ls_real" ] && [ -x "$ls_real" ]; then break; fi
		ls_real=''
	done
	unset IFS
}

# ---- 3 The command and the image
# Sets $ls_image to the word for the image, and $ls_state to found; to unsure for a word that is too
# long; else no container starts. An option of which it is not known that the next word is its
# value, has none.
ls_find_image() {
	ls_state=global ls_command='' ls_image='' ls_skip='' ls_writable=''
	for ls_word; do
		case $ls_skip in yes) ls_skip='' && continue ;; esac
		case $ls_state,$ls_word in
		global,--config | global,-c) ls_skip=yes ;;
		global,-*) ;;
		global,instance) ls_state=instance ;;
		global,exec | global,run | global,shell | global,test | instance,start | instance,run)
			ls_command=$ls_word ls_state=options
			;;
		options,--) ls_state=image ;;
		options,--writable) ls_writable=yes ;;
		options,--*) if ls_site_option "$ls_word"; then ls_skip=yes; fi ;;
		options,-?*) ls_read_letters "${ls_word#-}" ;;
		options,* | image,*) ls_image=$ls_word ls_state=found ;;
		*) ls_state=none ;;
		esac
		case $ls_state in none | unsure | found) break ;; esac
	done
	# In a writable image, a target of a bind that is not in it is fatal: cotainr builds that way.
	case $ls_state,$ls_writable in found,yes) ls_state=none ;; esac
	# No path is longer than 4096 bytes.
	if [ "${#ls_image}" -gt 4096 ]; then ls_state=unsure; fi
}
# One-letter options that stand together, such as eB/data: the value of the first that takes one is
# the rest of the word, or else the next word.
ls_read_letters() {
	if ls_is_long "$1"; then ls_state=unsure && return; fi
	ls_letters=$ls_site_letters
	case $ls_command in shell) ls_letters=${ls_letters}s ;; esac
	ls_flags=${1%%["$ls_letters"]*}
	case $ls_flags in *w*) ls_writable=yes ;; esac
	case $1 in "$ls_flags"["$ls_letters"]) ls_skip=yes ;; esac
}

# ---- 4 The image
# Sets $ls_step, by which the site's data is chosen, as the prolog has found it out for this task:
# combination/nodes/gpus/kind of node, which is `outside` where there is no such task.
ls_know_step() {
	ls_know_combination
	ls_step=$ls_combination/unknown/cpu/outside
	case ${LUMISITE_DONE-} in "$ls_task") ls_step=${LUMISITE_STEP-} ;; esac
}
# Sets $ls_path to what was typed, from the root on, and $ls_file to where it leads: the file
# decides what an image is, not its name.
ls_know_file() {
	case $ls_image in
	/* | *://*) ls_path=$ls_image ;;
	*) ls_path=${PWD-}/${ls_image#./} ;;
	esac
	ls_file=$ls_path
	# Only where there is a link, a program is started.
	if ls_may_lead_elsewhere; then
		ls_target=$(
			unset LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT
			exec /usr/bin/readlink -f -- "$ls_path" 2>/dev/null
		)
		case $ls_target in /*) ls_file=$ls_target ;; esac
	fi
	# What stands before `..` is no part of the name.
	case $ls_path in */../*) ls_path=$ls_file ;; esac
}
ls_may_lead_elsewhere() {
	case $ls_path in
	/*/../* | /../* | /*//* | /*/./*) return 0 ;;
	/*) ls_parent=$ls_path ;;
	*) return 1 ;;
	esac
	while [ "$ls_parent" ]; do
		if [ -L "$ls_parent" ]; then return 0; fi
		ls_parent=${ls_parent%/*}
	done
	return 1
}
# Sets $ls_family, $ls_version and $ls_plugin, each empty where it is not known, and $ls_plan. Of a
# family, $ls_needs are the modules that it needs, $ls_has is whether it has the plugin. Of an image
# that was read, $ls_left_alone are variables left to it, and $ls_lacking is what keeps its plugin
# from loading.
ls_know_image() {
	ls_family='' ls_version='' ls_plugin='' ls_plan='' ls_planned='' ls_was_read=''
	ls_needs='' ls_front='' ls_libraries='' ls_has='' ls_left_alone='' ls_lacking=''
	# A plan that names the file itself comes first, then one of which a pattern fits, then the lock.
	if ls_site_family "${LUMISITE_FAMILY-}"; then
		ls_family=$LUMISITE_FAMILY
	elif ls_site_plan "$ls_file" || ls_site_plan "$ls_path"; then
		ls_was_read=yes
	elif ls_site_plan_like "$ls_path" || ls_site_plan_like "$ls_file"; then
		ls_was_read=''
	elif ls_site_image "$ls_file"; then
		ls_was_read=yes
	fi
	if [ -z "$ls_family" ]; then ls_site_name "$ls_file" || ls_site_name "$ls_path"; fi
	ls_site_family "$ls_family"
	# What was read in another file than this one, or in an earlier one of this name, does not count.
	if ls_is_other_file || [ "$ls_file" -nt "$0" ]; then ls_was_read=''; fi
	case $ls_was_read in '') ls_version='' ls_plugin=$ls_has ls_left_alone='' ls_lacking='' ;; esac
	ls_text=''
	if [ "$ls_version" ]; then
		ls_text=$((ls_version / 1000000)).$((ls_version / 1000 % 1000)).$((ls_version % 1000))
		ls_text=", @STACK@ ${ls_text%.0}"
	fi
	ls_note "$ls_path: family ${ls_family:-unknown}$ls_text"
}
# Whether the plan names another file than the image that is there.
ls_is_other_file() {
	[ "$ls_planned" ] && [ -e "$ls_path" ] && ! [ "$ls_path" -ef "$ls_planned" ]
}
# A plan is for one image. A link that leads elsewhere now, and a file that was written anew, can be
# told without a program.
ls_plan_fits() {
	if ls_is_other_file; then
		ls_warn "is not the file that $ls_plan was made for, so it gets what its family gets"
		return 1
	fi
	if [ "$ls_planned" ] && [ "$ls_path" -nt "$0" ]; then
		ls_warn "is newer than the release with its plan $ls_plan, which may be for another image"
	fi
	ls_note "plan $ls_plan"
}

# ---- 5 Binds
ls_correct_binds() {
	ls_know_list
	if ls_is_long "$ls_list$ls_other_binds"; then return; fi
	for ls_marker in $ls_site_markers; do ls_review_module "$ls_marker"; done
	case $ls_family in ?*) ls_site_binds ;; esac
	ls_site_follow "$ls_plan"
}
ls_store_list() {
	ls_look_up "$ls_list_name"
	case $ls_list in
	"$ls_value") ;;
	'') unset "$ls_list_name" ;;
	*) export "$ls_list_name=$ls_list" ;;
	esac
}
# build, pull, inspect and all that start no container: ours would only break them.
ls_without_binds() {
	ls_needs=none
	for ls_list_name in SINGULARITY_BINDPATH APPTAINER_BINDPATH; do
		ls_look_up "$ls_list_name"
		ls_list=$ls_value
		if ls_is_long "$ls_list"; then continue; fi
		for ls_marker in $ls_site_markers; do ls_review_module "$ls_marker"; done
		ls_store_list
	done
}
# The name of a variable that remembers which binds are a module's, or all tasks'. What the image
# does not need is taken out, and what is not there, such as a broken link in `/`, which the prolog
# does not touch: no container would start. An image that no family knows keeps the binds of all.
ls_review_module() {
	ls_look_up "$1"
	if ls_is_long "$ls_value"; then return; fi
	case $ls_needs in
	'') ls_keep=yes ;;
	none) ls_keep='' ;;
	*) case " LUMISITE_BINDS_TASK$ls_needs" in *" $1 "*) ls_keep=yes ;; *) ls_keep='' ;; esac ;;
	esac
	IFS=,
	for ls_bind in $ls_value; do
		if [ -z "$ls_keep" ]; then
			ls_remove "$ls_bind"
		elif ls_is_listed "$ls_bind" && ! ls_is_there "${ls_bind%%:*}"; then
			ls_warn_missing "${ls_bind%%:*}"
			ls_remove "$ls_bind"
		fi
	done
	unset IFS
}
ls_remove() { if ls_take_out "$1"; then ls_note "without the bind $1"; fi; }
# A bind, and its path and target where they are not the bind itself.
ls_add() {
	if ! ls_is_bound "${3:-$1}" && ls_is_there "${2:-$1}"; then
		ls_list=${ls_list:+$ls_list,}$1
		ls_note "with the bind $1"
	fi
}
# A module's variable, and a bind of the module's, for an image that needs it. Where modules are
# loaded, and not this one, it was unloaded on purpose.
ls_module_bind() {
	case $ls_needs in *" $1 "*) ;; *) return ;; esac
	if [ "${LUMISITE_STACK+loaded}" ] && ! ls_look_up "$1"; then return; fi
	shift
	ls_add "$@"
}
# A bind of a plan's own.
ls_plan_bind() { if ls_is_there "${2:-$1}"; then ls_add "$@"; else ls_warn_missing "${2:-$1}"; fi; }
# A module's variable, and a bind that the image must not have, if that module has brought it.
ls_plan_without() {
	ls_look_up "$1"
	case ,$ls_value, in *",$2,"*) ls_remove "$2" ;; esac
}

# ---- 6 Settings, in a task whose prolog has run
ls_correct_settings() {
	case $ls_step in */outside) return ;; esac
	# What the image sets itself, and what an entry leaves alone for the libfabric in it.
	for ls_name in $ls_left_alone; do
		if ls_is_ours "$ls_name"; then unset "$ls_name"; fi
	done
	ls_site_settings
	# Once on each node of a step of several.
	case $ls_local_id,$ls_step in 0,*/several/gpu/*) ls_warn_of_network ;; esac
}
# Why the plugin of the image cannot be loaded. A path is that of the libfabric that it looks for,
# which may have come back since somebody read the image.
ls_warn_of_network() {
	ls_text="$ls_path starts without the fast network:"
	case $ls_lacking in
	'') ;;
	/*)
		ls_text="$ls_text its plugin looks for $ls_lacking, which is not on $ls_node"
		ls_is_there "$ls_lacking" || ls_say "$ls_text"
		;;
	*) ls_say "$ls_text $ls_lacking" ;;
	esac
}
# A variable, whose rules follow. Sets $ls_free to yes where the user has not set it.
ls_variable() {
	ls_name=$1 ls_decided='' ls_free=yes
	if ls_look_up "$1" && ! ls_is_ours "$1"; then ls_free=no; fi
}
# An entry of the ledger: its conditions on the image, each of which may be empty (the release, the
# families in blanks, yes or no for the plugin); then what to do, and its value. The first entry
# that fits decides: a value of the user's stays; else the container gets what the entry gives, or
# is without the variable where it is not certain that the entry fits, as the release or the plugin
# of the image is not known. An entry to leave it to the image does not count in doubt.
ls_rule() {
	case $ls_decided in yes) return ;; esac
	ls_fits=yes ls_certain=yes
	case $1,$ls_version in
	,*) ;;
	*,) ls_certain=no ;;
	*) [ "$(($1))" = 1 ] || ls_fits=no ;;
	esac
	case $2,$ls_family in
	,*) ;;
	*,) ls_certain=no ;;
	*) case $2 in *" $ls_family "*) ;; *) ls_fits=no ;; esac ;;
	esac
	case $3,$ls_plugin in
	,* | yes,yes | no,no) ;;
	*,) ls_certain=no ;;
	*) ls_fits=no ;;
	esac
	case $ls_fits,$ls_certain,$4 in no,* | yes,no,leave) return ;; esac
	ls_decided=yes
	case $ls_free,$ls_certain,$4 in
	yes,no,* | yes,yes,leave) unset "$ls_name" ;;
	yes,yes,value) ls_set "$5" && ls_note "$ls_name=$5" ;;
	yes,yes,directory) ls_set_directory "$5" ;;
	no,*,value) ls_note_kept "$ls_name" "$ls_value" ;;
	*,yes,unset) case " ${LUMISITE_KEEP-} " in *" $ls_name "*) ;; *) unset "$ls_name" ;; esac ;;
	esac
}
ls_set() {
	case " $ls_left_alone " in *" $ls_name "*) return 1 ;; esac
	export "$ls_name=$1"
}
# Below the private directory, if the prolog has made one; each task may have its own.
ls_set_directory() {
	case ${LUMISITE_PRIVATE-} in '') return ;; esac
	ls_set "$LUMISITE_PRIVATE/$1" && ls_note_own "$ls_name=$LUMISITE_PRIVATE/$1"
}

# ---- 7 Paths in the container
ls_extend_paths() {
	case ${LUMISITE_VENV-} in ?*) ls_add_venv ;; esac
	ls_extend PREPEND_PATH "$ls_front"
	ls_extend LD_LIBRARY_PATH "$ls_libraries"
}
# A venv in a squashfs file: FILE[:/PATH], or auto for IMAGE.sqsh beside IMAGE.sif.
ls_add_venv() {
	ls_venv=${LUMISITE_VENV%%:*} ls_target=/user-software
	case $LUMISITE_VENV in *:*) ls_target=${LUMISITE_VENV#*:} ;; esac
	case $ls_venv in auto) ls_venv=${ls_path%.sif}.sqsh ;; /*) ;; *) ls_venv=${PWD-}/$ls_venv ;; esac
	case $ls_target in /?*) ;; *) ls_venv='' ;; esac
	case $ls_venv$ls_target in *[,:\"[:cntrl:]]*) ls_venv='' ;; esac
	if [ -f "$ls_venv" ] && ! ls_is_long "$ls_list$LUMISITE_VENV"; then
		ls_front=$ls_target/bin${ls_front:+:$ls_front}
		ls_add "$ls_venv:$ls_target:image-src=/" "$ls_venv" "$ls_target"
	elif [ "$LUMISITE_VENV" != auto ] && [ "$ls_local_id" = 0 ]; then
		ls_say 'LUMISITE_VENV is no FILE or FILE:/PATH of a file that is there'
	fi
}
# Directories go behind what the user has in a variable of the container, once.
ls_extend() {
	ls_name=${ls_site_prefix}ENV_$1
	ls_look_up "$ls_name"
	case $2,:$ls_value: in ,* | *":$2:"*) return ;; esac
	export "$ls_name=${ls_value:+$ls_value:}$2"
	ls_note "$ls_name=${ls_value:+$ls_value:}$2"
}

# ---- 8 The real program
ls_become() {
	case $- in *p*) set +p ;; esac
	set +f
	case $ls_options in ?*) set "-$ls_options" ;; esac
	case $ls_depth in ?*) export FUNCNEST="$ls_depth" ;; esac
	exec "$ls_real" "$@"
}
