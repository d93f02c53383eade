# ---- what touches the node: the policy, in one file beside `current` that `lumisite policy` writes
# ls_mode becomes off, observe or act, by the first rule whose conditions all fit; ls_rule is that rule's line. Where the
# file is missing, damaged or not readable: act if the user has loaded the module, else off. A script that is not below a
# root, such as a copy that Slurm hands out, follows the policy of the site's root; where that has none, somebody runs a
# tree that was never deployed, and has chosen to.
ls_read_policy() {
	ls_mode='' ls_rule=missing ls_damaged=1
	case $0 in
	*/current/spank/*) ls_policy=${0%/current/spank/*}/policy ;;
	*/releases/*) ls_policy=${0%/releases/*}/policy ;;
	*)
		ls_policy=${ls_site_root-}/policy
		if [ ! -e "$ls_policy" ]; then ls_mode=act ls_rule=none; fi
		;;
	esac
	if [ -f "$ls_policy" ] && [ -r "$ls_policy" ]; then
		ls_read_rules <"$ls_policy"
		if [ -n "$ls_damaged" ]; then ls_mode='' ls_rule=damaged; fi
	fi
	case $ls_mode,${LUMISITE_STACK+module} in ,) ls_mode=off ;; ,*) ls_mode=act ;; esac
	case $ls_mode,${LUMISITE-} in act,observe) ls_mode=observe ls_rule=user ;; esac
}

ls_read_rules() {
	ls_number=0
	while read -r ls_verb ls_conditions; do
		ls_number=$((ls_number + 1))
		case $ls_number,$ls_verb,$ls_conditions in
		1,lumisite-policy,1 | *,written,*) continue ;;
		1,*) return 0 ;;
		*,end,)
			ls_damaged=''
			return 0
			;;
		*,off,* | *,observe,* | *,act,*) ;;
		*) return 0 ;;
		esac
		for ls_condition in $ls_conditions; do
			ls_fits=''
			ls_compare "${ls_condition%%=*}" "${ls_condition#*=}"
			case $ls_fits in yes) ;; no) continue 2 ;; *) return 0 ;; esac
		done
		if [ -z "$ls_mode" ]; then ls_mode=$ls_verb ls_rule=$ls_number; fi
	done
}
# Sets ls_fits to yes or no, or leaves it empty for a condition that is not known. Numbers of jobs that follow each other
# are spread evenly: job x 0.6180339 without its whole part, by lumisite/release/policy.py as well.
ls_compare() {
	ls_fits=no
	case $1 in
	partition) case ,$2, in *",${SLURM_JOB_PARTITION:-,},"*) ls_fits=yes ;; esac ;;
	account) case ,$2, in *",${SLURM_JOB_ACCOUNT:-,},"*) ls_fits=yes ;; esac ;;
	group)
		# A shell reads a file one byte at a time, and this one no further than it must.
		while read -r ls_name ls_groups; do
			case $ls_name in Gid: | Groups:) ;; *) continue ;; esac
			for ls_group in $ls_groups; do case ,$2, in *",$ls_group,"*) ls_fits=yes ;; esac done
			case $ls_name in Groups:) break ;; esac
		done </proc/self/status
		;;
	share)
		case $2 in '' | 0* | *[!0-9]* | ????*) ls_fits= && return ;; esac
		case ${SLURM_JOB_ID-} in '' | 0* | *[!0-9]* | ???????????*) return ;; esac
		[ "$((SLURM_JOB_ID * 6180339 % 10000000 / 100000))" -ge "$2" ] || ls_fits=yes
		;;
	*) ls_fits= ;;
	esac
}
