# ---- the policy: sets $ls_mode to on, observe or off
# ROOT/policy has lines `WORD partition NAME`, `WORD account NAME` and `WORD default`, as `lumisite
# policy` writes them. The first that fits the step gives the word; any other line, and what comes
# behind 64, is passed over. Without a line that fits: on for who has loaded the module, else off.
# Another word, or a file that cannot be read: off. A script that is not below a root, such as a
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

ls_find_word() {
	ls_lines=0
	while [ "$ls_lines" -lt 64 ] && read -r ls_mode ls_whom; do
		case $ls_whom in
		default | "partition ${SLURM_JOB_PARTITION:-/}" | "account ${SLURM_JOB_ACCOUNT:-/}") return ;;
		esac
		ls_lines=$((ls_lines + 1))
	done
	ls_mode=none
}
