# ---- the policy: sets $ls_mode to on, observe or off
# ROOT/policy has lines `WORD partition NAME`, `WORD account NAME` and `WORD default`, as `lumisite
# policy` writes them. The first that fits the step gives the word. A line of another form, another
# word, more than 64 lines, none at all, or a file that cannot be read: off. Where all lines are for
# others: on for who has loaded the module, else off. A script that is not below a root, such as a
# copy that Slurm hands out, follows the policy of the site's root; where that has none, somebody
# runs a tree that was never deployed, and has chosen to.
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
		ls_find_word <"$ls_policy"
	elif [ -e "$ls_policy" ]; then
		ls_mode=off
	fi
	case $ls_mode,${LUMISITE_STACK+module} in
	on,* | none,module) ls_mode=on ;;
	observe,*) ;;
	*) ls_mode=off ;;
	esac
}

# No line is read beyond 256 bytes, where the shell's `read` has a limit, which dash's has not.
ls_find_word() {
	ls_lines=0 ls_limit='-n 256'
	eval "read -r $ls_limit ls_line" </dev/null 2>/dev/null
	case $? in 1) ;; *) ls_limit='' ;; esac
	while eval "read -r $ls_limit ls_line" || [ "$ls_line" ]; do
		ls_lines=$((ls_lines + 1)) ls_mode='' ls_scope='' ls_name='' ls_words=0
		[ "$ls_lines" -lt 65 ] || break
		for ls_word in $ls_line; do
			ls_words=$((ls_words + 1))
			case $ls_words in
			1) ls_mode=$ls_word ;;
			2) ls_scope=$ls_word ;;
			3) ls_name=$ls_word ;;
			4) break ;;
			esac
		done
		case $ls_words,$ls_scope,$ls_name in
		2,default,) return ;;
		"3,partition,${SLURM_JOB_PARTITION:-/}" | "3,account,${SLURM_JOB_ACCOUNT:-/}") return ;;
		3,partition,* | 3,account,*) ;;
		*) ls_lines=65 && break ;;
		esac
	done
	case $ls_lines in 0 | 65) ls_mode=off ;; *) ls_mode=none ;; esac
}
