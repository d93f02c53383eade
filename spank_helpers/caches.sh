# ---- 6 Directories for caches that are the user's alone
# Sets $places, as far as a look tells: one folder in each of the site's places that will do, which
# is the helper's own, or not there yet.
find_places() {
	private='' caches_wanted='' places=''
	site_caches
	case $caches_wanted in ?*) site_places ;; esac
}
# A variable, and its directory below $private. That is empty at first, to find out whether some
# variable is free, and `none` where there is no place.
cache() {
	look_up "$1"
	whose=''
	case /$2/ in */"$local_id"/*) whose=own ;; esac
	case $private,$is_set in
	,) caches_wanted=1 ;;
	,x | none,) ;;
	*) setting "$1" "$private/$2" "$whose" ;;
	esac
}
# A place's path; or that path, the folder of the job below it, and the variable's name for people.
place() {
	parent=${1%/}
	case $# in
	3)
		if ! know_job_folder "$1" "$2"; then
			note no-place "$3" "no directory for caches in $3: it names no folder of yours in $1"
			return
		fi
		parent=$job_folder
		;;
	esac
	case $parent in *[!A-Za-z0-9/._+@=-]*) return ;; esac
	for candidate in "$parent/lumisite-$user" "$parent/lumisite-$user-$job"; do
		if may_be_private "$candidate"; then
			places="$places${places:+ }$candidate"
			return
		fi
	done
	no_directory_in "$parent"
}
no_directory_in() {
	note no-place "$1" "no directory for caches in $1: it is missing, full or not writable"
}
# In a folder with the sticky bit, or of the user's own, nobody else can exchange it.
may_be_private() {
	[ -k "${1%/*}" ] || [ -O "${1%/*}" ] || return
	if [ -e "$1" ] || [ -L "$1" ]; then is_private "$1"; else [ -w "${1%/*}" ]; fi
}
# The sticky bit is what the mkdir below gives: what stood there before, of another user or open to
# a group, has none.
is_private() { own_folder "$1" && [ -k "$1" ]; }
own_folder() { [ -d "$1" ] && ! [ -L "$1" ] && [ -O "$1" ]; }
# The path of a file system, and the folder as the job's variable names it. Sets $job_folder, if it
# is below that path and the user's own: a login file may have put anything into the variable.
know_job_folder() {
	job_folder=${2%/}
	! is_long "$2" || return
	case $job_folder/ in
	*[!A-Za-z0-9/._+@=-]* | *//* | */./* | */../*) return 1 ;;
	"${1%/}"/?*) own_folder "$job_folder" ;;
	*) return 1 ;;
	esac
}

# ---- for step 8
# Makes $private in the first place that takes it; `none` where none does, or where none is wanted.
make_private() {
	umask 077
	for private in $places; do
		make_directories && has_space && return
		no_directory_in "${private%/*}"
	done
	no_private
}
assume_private() {
	private=${places%% *}
	case $private in '') no_private ;; esac
}
no_private() {
	private=none
	case $caches_wanted,$local_id in
	1,0) say "$node has no place for private directories, so caches go where programs put them" ;;
	esac
	case $caches_wanted,${LUMISITE_PRIVATE+x} in 1,x) drop LUMISITE_PRIVATE ;; esac
}
make_directories() {
	[ -e "$private" ] || run mkdir -m 1700 "$private"
	is_private "$private" || return
	site_directories
	are_there && return
	make_them
	are_there
}
are_there() {
	for name in $directories; do own_folder "$private/$name" || return; done
}
make_them() {
	set --
	for name in $directories; do set -- "$@" "$private/$name"; done
	run mkdir -p "$@"
}
# Whether a block of data can still be written: a full disk may have room for directories. The file
# is left empty, so that the next task needs a block again. Nothing but a file is opened.
has_space() {
	file=$private/.space
	if [ -e "$file" ] || [ -L "$file" ]; then
		[ -f "$file" ] && ! [ -L "$file" ] || return
	fi
	printf '%4097s' '' >>"$file" && printf '' >"$file"
}
offer_caches() {
	case $private in none) ;; *) put LUMISITE_PRIVATE "$private" ;; esac
	site_caches
	put LUMISITE_EXPORTS "$exported"
}
