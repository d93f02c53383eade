# A site of one bind and one setting, to run the prolog by hand in a step (any machine does):
#   cd spank_helpers; cat prolog.sh policy.sh masks.sh caches.sh ../tests/data/helper/prolog.sh >/tmp/prolog
#   SLURM_JOB_ID=1 SLURM_STEP_ID=0 LUMISITE_VERBOSE=1 sh /tmp/prolog
ls_site_prefix=SINGULARITY ls_site_list=use_list_of_singularity
ls_site_partition() {
	case $1 in
	gpu) kinds=node ls_gpus=gpu whole_nodes=1 ;;
	*) return 1 ;;
	esac
}
# Nothing is said of its nodes that could be compared: any machine is one.
ls_site_kinds() {
	kind node 2 ''
}
ls_site_drivers() {
	:
}
ls_site_release=try ls_site_stacks=25.03-rocm6.2
ls_site_host_suffix=''
ls_site_binds() {
	brought_by LUMISITE_BINDS_TASK "${LUMISITE_BINDS_TASK+x$LUMISITE_BINDS_TASK}"
	bind / /host /:/host x
}
ls_site_names=NCCL_DEBUG
ls_site_settings() {
	offer NCCL_DEBUG "${NCCL_DEBUG+x$NCCL_DEBUG}" WARN 0
}
ls_site_caches() {
	:
}
ls_site_directories() {
	"$@"
}
ls_site_places() {
	return 1
}
ls_site_cpus() {
	case $1 in
	node/1/1) count=4 lists=0-3 ;;
	node/2/1) count=2 lists='0-1 2-3' ;;
	*) return 1 ;;
	esac
}
ls_start "$@"
