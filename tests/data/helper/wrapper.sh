# A site of one family, to run the wrapper by hand; `echo` stands for the runtime:
#   cat spank_helpers/{wrapper,common}.sh tests/data/helper/wrapper.sh >/tmp/wrapper
#   LUMISITE_VERBOSE=1 LUMISITE_DONE=0.0.0 sh /tmp/wrapper exec torch-rocm-6.2.4.sif
ls_site_root=/nowhere
ls_site_combinations='25.03-rocm6.2'
ls_site_runtime_of() {
	ls_site_prefix=SINGULARITY ls_site_runtime=/usr/bin/echo
}
ls_site_option() {
	case $1 in
	--bind) ;;
	*) return 1 ;;
	esac
}
ls_site_letters=B
ls_site_plan() {
	return 1
}
ls_site_plan_like() {
	return 1
}
ls_site_image() {
	return 1
}
ls_site_name() {
	case $1 in
	*/torch-*) ls_family=torch ;;
	*) return 1 ;;
	esac
}
ls_site_family() {
	case $1 in
	torch) ls_needs=' LUMISITE_BINDS_HOST ' ls_front=/opt/bin ls_has=yes ;;
	*) return 1 ;;
	esac
}
ls_site_markers=LUMISITE_BINDS_HOST
ls_site_binds() {
	ls_module_bind LUMISITE_BINDS_HOST /:/host / /host
}
ls_site_follow() {
	:
}
ls_site_settings() {
	ls_variable NCCL_NET
	ls_rule '' ' torch ' yes value 'AWS Libfabric'
	ls_rule '' '' '' leave
}
ls_start "$@"
