# ---- the journal: what the first task of a step on a node decided, in one line for each part of the helper
# A key, and a value, which is never one of the user's.
ls_record() {
	if [ -z "$ls_journal" ]; then return 0; fi
	case $2 in *[!!-~]*) ls_journal="$ls_journal $1=?" ;; *) ls_journal="$ls_journal $1=$2" ;; esac
}
ls_run() { PATH=/usr/bin:/bin LD_PRELOAD='' LD_LIBRARY_PATH='' LD_AUDIT='' "$@" 2>/dev/null; }
# The part of the helper, and whom LUMISITE_VERBOSE is for.
ls_begin_journal() {
	case ${SLURM_STEP_ID:--},${SLURM_LOCALID:-0},$ls_site_journal,$2 in
	-* | *,0,*,report | *,0,none,) return 0 ;;
	*,0,*) ;;
	*) return 0 ;;
	esac
	ls_began=$(ls_run date +%s%N) || :
	ls_journal="part=$1 release=$ls_site_release mode=$ls_mode rule=$ls_rule"
	ls_record job "${SLURM_JOB_ID-}"
	ls_record step "$SLURM_STEP_ID"
	ls_record rank "${SLURM_PROCID-}"
	ls_record node "${SLURMD_NODENAME-}"
}
# A system log that does not answer delays no task: the line is lost then.
ls_end_journal() {
	if [ -z "$ls_journal" ]; then return 0; fi
	ls_word=$(ls_run date +%s%N) || :
	case $ls_began$ls_word in *[!0-9]*) ls_word='?' ;; *) ls_word=$(((ls_word - ls_began) / 1000)) ;; esac
	ls_record us "$ls_word"
	if [ "$ls_site_journal" = syslog ]; then ls_run timeout 0.005 logger -t lumisite -- "$ls_journal" >/dev/null || :; fi
}
