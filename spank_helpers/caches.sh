# ---- 6 Directories for caches that are the user's alone
# Sets $caches to the variables that are free, each with its directory; and, if there are some,
# $places to the folders that a look lets pass, which are the helper's own, or not there yet.
find_places() {
	caches='' places=''
	site_caches
	case $caches in ?*) site_places ;; esac
}
# A variable, and its directory below the private one.
cache() { if is_free "$1"; then caches="$caches$1=$2 "; fi; }
# A folder that all users of the node may write to.
place() {
	parent=${1%/}
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

# ---- for step 8
# Makes $private in the first place that takes it; it is empty where none does, or none is wanted.
make_private() {
	umask 077
	for private in $places; do
		make_directories && has_space && return
		no_directory_in "${private%/*}"
	done
	private=''
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
	case $private,${caches:+wanted},$local_id in
	,wanted,0)
		say "$node has no place for private directories, so caches go where programs put them"
		;;
	esac
	case $private,${LUMISITE_PRIVATE+x} in
	,x) drop LUMISITE_PRIVATE ;;
	,) ;;
	*)
		put LUMISITE_PRIVATE "$private"
		for pair in $caches; do setting "${pair%%=*}" "$private/${pair#*=}"; done
		;;
	esac
	put LUMISITE_EXPORTS "$exported"
}
