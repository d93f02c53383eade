# What the prolog and the wrapper both find out about the step. Each name begins with ls_: in the wrapper, a shell
# variable that the user happens to export would reach the container with a new value.
ls_nl='
'
# ls_stack, ls_nodes, ls_gpus, ls_partition and ls_kind are what the site's rules ask for.
ls_know_step() {
	ls_stack=${ls_site_stacks%%,*} ls_known_stack=1
	case ${LUMISITE_STACK-} in
	'') ;;
	*,*) ls_known_stack= ;;
	*)
		case ", $ls_site_stacks, " in
		*", $LUMISITE_STACK, "*) ls_stack=$LUMISITE_STACK ;;
		*) ls_known_stack= ;;
		esac
		;;
	esac
	ls_nodes=unknown
	case ${SLURM_STEP_NUM_NODES:-${SLURM_NNODES-}} in
	1) ls_nodes=one ;;
	'' | 0* | *[!0-9]*) ;;
	*) ls_nodes=several ;;
	esac
	ls_kind='' ls_kind_gpus=0 ls_kinds='' ls_misfit='' ls_whole_nodes='' ls_gpus=''
	if ls_site_partition "${SLURM_JOB_PARTITION-}"; then
		ls_partition=$SLURM_JOB_PARTITION
		ls_find_kind
	else
		ls_partition=other
	fi
	# Whether the node has GPUs: as all kinds of the partition, else as its own kind, else as Slurm has granted some.
	case $ls_gpus,$ls_kind in
	,) case ${SLURM_STEP_GPUS-}${SLURM_JOB_GPUS-} in '') ls_gpus=cpu ;; *) ls_gpus=gpu ;; esac ;;
	,*) case $ls_kind_gpus in 0) ls_gpus=cpu ;; *) ls_gpus=gpu ;; esac ;;
	esac
	case ${LUMISITE_EXPORTS-} in
	*"$ls_nl"*) ls_before= ;;
	*) ls_before=${LUMISITE_EXPORTS-} ;;
	esac
}
# The list of binds, its name, and what is bound beside it. Apptainer drops SINGULARITY_BINDPATH where APPTAINER_BINDPATH
# differs from it: what a user has there stays in use.
ls_know_list() {
	ls_list=${SINGULARITY_BINDPATH-} ls_list_name=SINGULARITY_BINDPATH ls_beside=${SINGULARITY_BIND-}
	case $ls_site_prefix in
	APPTAINER)
		ls_beside=${APPTAINER_BIND-}
		if [ -n "${APPTAINER_BINDPATH-}" ] || [ -z "$ls_list" ]; then
			ls_list=${APPTAINER_BINDPATH-} ls_list_name=APPTAINER_BINDPATH
		fi
		;;
	esac
}
# A list, an entry of it: ls_answer is the list without the entry.
ls_without() {
	ls_answer=,$1,
	ls_answer=${ls_answer%%",$2,"*},${ls_answer#*",$2,"}
	ls_answer=${ls_answer#,} ls_answer=${ls_answer%,}
}
# Name, value: whether the helper itself has set this value. Its own values never contain `;`.
ls_mine() {
	case $2 in *';'*) return 1 ;; esac
	case $ls_before in *";$1=$2;"*) return 0 ;; esac
	return 1
}
