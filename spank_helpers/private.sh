# Where a user's caches go on a node, and what of them stays. The functions of prolog.sh are there.

# ---- what asks or touches the node: `lumisite env` defines these anew, as it does those of prolog.sh
# dash, bash and busybox all have -O and -k.
# shellcheck disable=SC3067
own_folder() { [ -d "$1" ] && [ ! -L "$1" ] && [ -O "$1" ]; }
# Path: $private is a directory of the user's own that begins like it, with all that the site wants in it.
# shellcheck disable=SC3065,SC3067
make_private() {
	[ -k "${1%/*}" ] || [ -O "${1%/*}" ] || return 1
	user_id
	choose_private "$1" "$answer" || return 1
	ls_site_directories made && return 0
	ls_site_directories make_directories
	ls_site_directories made
}
# Most MiB that stay, or nothing. The first task of each job on a node looks here; `.tidied` names the job.
tidy() {
	case $ls_local_id/$job in 0/0) return 0 ;; 0/*) ;; *) return 0 ;; esac
	umask 077
	[ -z "$1" ] || note_step
	last=
	[ ! -f "$private/.tidied" ] || [ -L "$private/.tidied" ] || read -r last <"$private/.tidied"
	case $last in "$job") return 0 ;; esac
	flush
	printf '%s\n' "$job" >"$private/.tidied" || return 0
	know_others
	prune "$1"
}

# ---- the folder that the site makes for each job
# Path of its file system, the folder as the job's variables name it: $folder, if it is below that path and the user's
# own. A variable may hold anything, such as a shared file system's path from a login file.
know_job_folder() {
	folder=${2%/}
	case $folder/ in
	*[!A-Za-z0-9/._+@=-]* | *//* | */./* | */../*) return 1 ;;
	"${1%/}"/?*) own_folder "$folder" ;;
	*) return 1 ;;
	esac
}
# The same, and why: programs in the container use it too.
bind_job_folder() {
	if know_job_folder "$1" "$2"; then bind "$folder" "$folder" "$folder" '' '' "$3"; fi
}

# ---- the places, in the site's order
# Path, the folder of the job in it, its name in the description.
take_job_folder() {
	know_job_folder "$1" "$2" && make_private "$folder/lumisite" && return 0
	explain "no private directory in $3: it names no folder of yours below $1, or none that can be written"
	return 1
}
# Path, most MiB that stay from one job to the next, or nothing.
take_place() {
	if make_private "${1%/}/lumisite"; then
		tidy "$2"
		return 0
	fi
	explain "no private directory in $1: it is not there, is full or not to be written, or the name is taken"
	return 1
}
use_private() {
	[ "$wanted" ] || return
	if ls_site_places; then
		case ${LUMISITE_PRIVATE-} in "$private") ;; *) put LUMISITE_PRIVATE "$private" ;; esac
		each_wanted offer_directory
	else
		[ "$ls_local_id" != 0 ] && [ -z "$verbose" ] ||
			say "$node has no place for private directories, so caches go where programs put them:$wanted"
		[ -z "${LUMISITE_PRIVATE+x}" ] || out="${out}unset LUMISITE_PRIVATE$ls_nl"
		each_wanted leave_directory
	fi
}
offer_directory() { offer "$1" "$2" "$private/$3" 'a directory of your own on this node'; }
leave_directory() { leave "$1" "$2" '' "$node has no place for private directories"; }
# Function: gets each variable, its value behind an `x` or nothing, and its directory.
each_wanted() {
	one=$1
	# shellcheck disable=SC2086  # names and directories of the site in turn, neither with a blank
	set -- $wanted
	while [ "$#" -gt 1 ]; do
		eval "$one $1 \"\${$1+x\$$1}\" \"\$2\""
		shift 2
	done
}

# ---- how directories are made
# The user id, from the kernel: the environment may say anything.
user_id() {
	while read -r word value rest; do
		case $word in Uid:)
			number "$value" ''
			[ -z "$answer" ] || return 0
			;;
		esac
	done </proc/self/status
	answer=job$job
}
# A directory is taken only if it is our own, no link, and has the sticky bit that the mkdir below gives it: one that
# stood there before, of another user or open to a group, has not.
# shellcheck disable=SC3065
choose_private() {
	case $1 in *[!A-Za-z0-9/._+@=-]* | '') return 1 ;; esac
	for private in "$1-$2" "$1-$2-$job"; do
		if own_folder "$private"; then
			[ -k "$private" ] && return 0
		elif [ ! -e "$private" ] && [ ! -L "$private" ]; then
			return 0
		fi
	done
	return 1
}
# shellcheck disable=SC3065
made() {
	own_folder "$private" && [ -k "$private" ] || return 1
	for name; do own_folder "$private/$name" || return 1; done
}
# One program for all. The parents of what is named get their mode from the umask (700), the named ones 1700.
# shellcheck disable=SC2174
make_directories() {
	for name; do
		set -- "$@" "$private/$name/.lumisite"
		shift
	done
	flush
	umask 077
	LD_PRELOAD='' LD_LIBRARY_PATH='' LD_AUDIT='' mkdir -p -m 1700 "$private" "$@" >/dev/null
}

# ---- what stays
# What nothing has read or written for two weeks goes. Where there is a limit and more stays, what is older than half of
# that goes, and so on, but nothing that was used within the last hour, or while another step of the user runs here.
prune() {
	minutes=20160
	prune_older || return 0
	while [ "$1" ] && [ "$kib" -gt "$(($1 * 1024))" ] && [ "$minutes" -ge 120 ] && [ -z "$others" ]; do
		minutes=$((minutes / 2))
		prune_older || return 0
	done
	if [ "$1" ] && [ "$kib" -gt "$(($1 * 1024))" ]; then
		explain "$((kib / 1024)) MiB of caches stay in $private, where $1 MiB are the limit: they are in use or new"
	fi
}
# $kib is how much is left. A time limit, as there may be millions of files. Nothing reads their names.
# shellcheck disable=SC3045
prune_older() {
	kib=$(
		ulimit -c 0
		ulimit -t 2
		LD_PRELOAD='' LD_LIBRARY_PATH='' LD_AUDIT='' /usr/bin/find "$private" -xdev -mindepth 1 -type f \
			\( -amin "+$minutes" -mmin "+$minutes" -delete -o -printf '%k+' \)
	)
	case $kib in *[!0-9+]*) return 1 ;; esac
	kib=$((${kib}0))
}
# A file for the process of each step's first task: what still runs may use what has lain here for long.
note_step() {
	number "${SLURM_TASK_PID-}" ''
	[ -z "$answer" ] || printf '' >"$private/.step-$answer"
}
# $others is the process of another step that runs here, or nothing.
# shellcheck disable=SC3067
know_others() {
	number "${SLURM_TASK_PID-}" ''
	own=$answer others=''
	set +f
	for word in "$private"/.step-*; do
		number "${word##*-}" "$own"
		case $answer in "$own") ;; *) [ ! -O "/proc/$answer" ] || others=$answer ;; esac
	done
	set -f
}
