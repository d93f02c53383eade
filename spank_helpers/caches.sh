# ---- 6 Directories for caches that are the user's alone
# Sets $caches to the variables that are free, each with its directory; and, if there are some,
# $places to the folders to try, in order.
find_places() {
	caches='' places=''
	site_caches
	case $caches in ?*) site_places ;; esac
}
# A variable, and its directory below the private one.
cache() { if is_free "$1"; then caches="$caches$1=$2 "; fi; }
# A folder that all users of the node may write to. Another user may have taken the usual name.
place() {
	ls_to_number "${SLURM_JOB_UID-}" "job$ls_job"
	name=$1/lumisite-$ls_number
	if [ -e "$name" ] || [ -L "$name" ]; then is_private "$name" || name=$name-$ls_job; fi
	places="$places${places:+ }$name"
}
# The sticky bit is what the mkdir below gives: what stood there before, of another user or open to
# a group, has none.
is_private() { [ -d "$1" ] && ! [ -L "$1" ] && [ -O "$1" ] && [ -k "$1" ]; }

# ---- for step 8
# Sets $private to the first place that has all directories, empty where none has.
make_private() {
	umask 077
	site_directories
	for private in $places; do
		make_directories && has_space && return
		ls_note "no directory for caches in ${private%/*}: it is missing, full or not writable"
	done
	private=''
}
# In a folder with the sticky bit, or of the user's own, nobody else can exchange ours; and in ours,
# nobody else can make anything.
make_directories() {
	[ -k "${private%/*}" ] || [ -O "${private%/*}" ] || return
	[ -e "$private" ] || run mkdir -m 1700 "$private"
	is_private "$private" || return
	set --
	for name in $directories; do
		[ -d "$private/$name" ] || set -- "$@" "$private/$name"
	done
	[ "$#" = 0 ] || run mkdir -p "$@"
}
# Whether a block of data can still be written: a full disk may have room for directories. The file
# is left empty, so that the next task needs a block again. Nothing but a file is opened.
has_space() {
	file=$private/.space
	if [ -L "$file" ] || { [ -e "$file" ] && ! [ -f "$file" ]; }; then return 1; fi
	printf '%4097s' '' >>"$file" && printf '' >"$file"
}
set_caches() {
	case $private,${caches:+wanted},$ls_local_id in
	,wanted,0)
		ls_say "$ls_node has no place for private directories, so caches go where programs put them"
		;;
	esac
	case $private in
	'') if ls_look_up LUMISITE_PRIVATE; then drop LUMISITE_PRIVATE; fi ;;
	*)
		put LUMISITE_PRIVATE "$private"
		for pair in $caches; do setting "${pair%%=*}" "$private/${pair#*=}"; done
		;;
	esac
}
