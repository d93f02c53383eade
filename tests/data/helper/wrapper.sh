# A site of one family, to run the wrapper by hand; `echo` stands for the runtime:
#   cat spank_helpers/{wrapper,policy,image}.sh tests/data/helper/wrapper.sh >/tmp/wrapper
#   LUMISITE_VERBOSE=1 LUMISITE_DONE=.. sh /tmp/wrapper exec torch-rocm-6.2.4.sif
ls_site_release=try ls_site_stacks=25.03-rocm6.2
ls_site_runtime_of() {
	ls_site_prefix=SINGULARITY ls_site_list=ls_use_list_of_singularity ls_site_runtime=/usr/bin/echo
}
ls_site_action() {
	case $1 in
	exec) : ;;
	*) return 1 ;;
	esac
}
ls_site_global_option() {
	return 1
}
ls_site_option() {
	case $1 in
	--bind) ls_takes=1 ;;
	--nv) ls_takes='' ;;
	*) return 1 ;;
	esac
}
ls_site_letters=e ls_site_valued_letters=B
ls_site_plan() {
	return 1
}
ls_site_image() {
	return 1
}
ls_site_folder() {
	case $1 in
	*/torch-*) : ;;
	*) return 1 ;;
	esac
}
ls_site_name() {
	case $1 in
	*/torch-*) ls_family=torch ;;
	*) return 1 ;;
	esac
}
ls_site_family() {
	case $1 in
	torch) ls_needs=' LUMISITE_BINDS_HOST ' ls_front=/opt/bin ls_has=yes ls_after='*-rocm-' ;;
	*) return 1 ;;
	esac
}
ls_site_brought() {
	"$1" LUMISITE_BINDS_HOST "${LUMISITE_BINDS_HOST+x$LUMISITE_BINDS_HOST}"
}
ls_site_binds() {
	if ls_needed LUMISITE_BINDS_HOST "${LUMISITE_BINDS_HOST+x$LUMISITE_BINDS_HOST}"; then
		ls_add / /host /:/host
	fi
}
ls_site_follow() {
	:
}
ls_site_settings() {
	ls_variable NCCL_NET "${NCCL_NET+x$NCCL_NET}"
	ls_rule 'ls_version >= 6002000' ' torch ' yes read offer 'AWS Libfabric' 0
	ls_rule '' '' '' '' leave '' ''
}
ls_start "$@"
