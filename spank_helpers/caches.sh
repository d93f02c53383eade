# shellcheck disable=SC3065,SC3067  # dash, bash and busybox have -O and -k
# ---- directories for caches that are the user's alone, in the first of the site's places that will do

# ---- what touches the node
own_folder() { [ -d "$1" ] && [ ! -L "$1" ] && [ -O "$1" ]; }
# $private is the user's own and has the sticky bit that the mkdir below gives it: what stood there before, of another
# user or open to a group, has not.
make_private() {
	[ -k "${1%/*}" ] || [ -O "${1%/*}" ] || return 1
	case $1 in *[!A-Za-z0-9/._+@=-]*) return 1 ;; esac
	for private in "$1-$user" "$1-$user-$job"; do
		ls_site_directories made && return 0
		if [ -e "$private" ] || [ -L "$private" ]; then
			own_folder "$private" && [ -k "$private" ] || continue
		fi
		make_all
		return
	done
	return 1
}

# Path of a file system, the folder as the job's variables name it: $folder, if it is below that path and the user's own.
# A variable may hold anything, such as a shared file system's path from a login file.
know_job_folder() {
	folder=${2%/}
	case $folder/ in
	*[!A-Za-z0-9/._+@=-]* | *//* | */./* | */../*) return 1 ;;
	"${1%/}"/?*) own_folder "$folder" ;;
	*) return 1 ;;
	esac
}
# Programs in the container use it too.
bind_job_folder() { know_job_folder "$1" "$2" && bind "$folder" "$folder" "$folder" ''; }
take_job_folder() {
	know_job_folder "$1" "$2" && make_private "$folder/lumisite" && return 0
	note no-place "$3" "no directory for caches in $3: it names no folder of yours in $1"
	return 1
}
take_place() {
	make_private "${1%/}/lumisite" && return 0
	note no-place "$1" "no directory for caches in $1: it is missing, full or not writable"
	return 1
}
find_private() {
	case $private in none) return 1 ;; ?*) return 0 ;; esac
	if ls_site_places; then
		put LUMISITE_PRIVATE "$private"
		return 0
	fi
	private=none
	[ "$ls_local_id" != 0 ] || say "$node has no place for private directories, so caches go where programs put them"
	[ -z "${LUMISITE_PRIVATE+x}" ] || drop LUMISITE_PRIVATE
	return 1
}
cache_directory() {
	case /$3/ in */"$ls_local_id"/*) own=own ;; esac
	if [ "$2" ] || find_private; then offer "$1" "$2" "$private/$3" "$4"; fi
	own=
}
make_all() {
	# Where it only observes: as far as it can be seen.
	case $ls_mode in
	observe)
		[ -w "${private%/*}" ]
		return
		;;
	esac
	ls_site_directories make_directories
	ls_site_directories made
}
made() {
	own_folder "$private" && [ -k "$private" ] || return 1
	for name; do own_folder "$private/$name" || return 1; done
}
# The parents of what is named get their mode from the umask (700), the named ones 1700.
# shellcheck disable=SC2174
make_directories() {
	for name; do
		set -- "$@" "$private/$name/.lumisite"
		shift
	done
	umask 077
	LD_PRELOAD='' LD_LIBRARY_PATH='' LD_AUDIT='' mkdir -p -m 1700 "$private" "$@" >/dev/null
}
