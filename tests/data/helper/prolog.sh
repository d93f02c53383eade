# A site of one bind and one setting, to run the prolog by hand in a step (any machine does):
#   cd spank_helpers; cat prolog.sh common.sh caches.sh masks.sh ../tests/data/helper/prolog.sh >/tmp/prolog
#   SLURM_JOB_ID=1 SLURM_STEP_ID=0 LUMISITE_VERBOSE=1 sh /tmp/prolog
ls_site_root=/nowhere
ls_site_combinations='25.03-rocm6.2'
ls_site_prefix=SINGULARITY
site_release=try site_host_suffix=''
site_partition() {
	case $1 in
	gpu) kind=node kind_gpus=2 whole_cpus=4 ;;
	*) return 1 ;;
	esac
}
site_drivers=''
site_binds() {
	begin_module LUMISITE_BINDS_TASK
	bind required /:/host / /host
	end_module LUMISITE_BINDS_TASK
}
site_names=NCCL_DEBUG
site_settings() {
	setting NCCL_DEBUG WARN
}
site_caches() {
	:
}
site_directories() {
	directories=''
}
site_places() {
	:
}
site_cpus() {
	case $1 in
	node/1/1) fewest=4 lists=0-3 ;;
	node/2/1) fewest=2 lists='0-1 2-3' ;;
	*) return 1 ;;
	esac
}
start
