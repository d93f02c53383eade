# ---- what touches the node: the policy, which has the admin's word for this step, on, observe or off
# ROOT/policy has lines `WORD partition NAME`, `WORD account NAME` and `WORD default`, as `lumisite policy` writes them. The
# first of them that fits the step gives ls_mode its word; any other line is passed over, and so is what comes behind 64.
# Without a file, or a line that fits: on for who has loaded the module, else off. Another word than the three, or a file
# that cannot be read: off. A script that is not below a root, such as a copy that Slurm hands out, follows the policy of
# the site's root; where that has none, somebody runs a tree that was never deployed, and has chosen to.
ls_read_policy() {
	ls_mode=''
	case $0 in
	*/current/spank/*) ls_policy=${0%/current/spank/*}/policy ;;
	*/releases/*) ls_policy=${0%/releases/*}/policy ;;
	*)
		ls_policy=${ls_site_root-}/policy
		if [ ! -e "$ls_policy" ]; then ls_mode=on; fi
		;;
	esac
	if [ -f "$ls_policy" ] && [ -r "$ls_policy" ]; then
		ls_find_word <"$ls_policy"
	elif [ -e "$ls_policy" ]; then
		ls_mode=off
	fi
	case $ls_mode,${LUMISITE_STACK+module} in
	on,* | observe,*) ;;
	,module) ls_mode=on ;;
	*) ls_mode=off ;;
	esac
}

ls_find_word() {
	ls_lines=0
	while [ "$ls_lines" -lt 64 ] && read -r ls_mode ls_for; do
		case $ls_for in
		default | "partition ${SLURM_JOB_PARTITION:-/}" | "account ${SLURM_JOB_ACCOUNT:-/}") return 0 ;;
		esac
		ls_lines=$((ls_lines + 1))
	done
	ls_mode=''
}
