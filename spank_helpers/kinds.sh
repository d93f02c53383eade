# ---- which of its partition's node kinds a node is, by what its kernel tells of the whole node, whatever cgroup asks.
# docs/explanation/cpu-masks.md says what is compared; lumisite/site/kinds.py compares the same for `check --host`.
# A file: its first line, or nothing, in ls_answer.
ls_line() {
	ls_answer=
	if [ -r "$1" ]; then read -r ls_answer <"$1" || :; fi
}
# Its CPUs, its NUMA domains with CPUs, and the GPUs that drivers have.
ls_know_node() {
	ls_line /sys/devices/system/cpu/present
	ls_present=$ls_answer
	ls_line /sys/devices/system/cpu/online
	ls_online=$ls_answer
	ls_line /sys/devices/system/node/has_cpu
	ls_domains=$ls_answer ls_node_gpus='' ls_node_buses=''
	ls_site_gpus
}
# NUMA domain, CPU: offline ones count as well.
ls_in_domain() { [ -e "/sys/devices/system/node/node$1/cpu$2" ]; }
# Vendor, its drivers. A driver's folder has more than devices, so that the pattern always fits something.
ls_count_gpus() {
	ls_word=$1 ls_count=0
	shift
	for ls_driver; do
		[ -d "/sys/bus/pci/drivers/$ls_driver" ] || continue
		for ls_place in "/sys/bus/pci/drivers/$ls_driver"/*; do
			case ${ls_place##*/} in *:*:*.*) ls_count=$((ls_count + 1)) ls_node_buses="$ls_node_buses ${ls_place##*/}" ;; esac
		done
	done
	case $ls_count in 0) ;; *) ls_node_gpus="${ls_node_gpus:+$ls_node_gpus and }$ls_count $ls_word" ;; esac
}
ls_differ() { ls_differs="$ls_differs${ls_differs:+; }$1"; }
# A kind: whether the node is one. What is not described of it is not compared.
ls_is_kind() {
	ls_differs='' ls_kind_cpus='' ls_kind_domains='' ls_kind_places='' ls_kind_has='' ls_kind_buses='' ls_kind_gpus=0
	ls_site_kind "$1"
	case $ls_kind_cpus in
	'' | "$ls_present" | "$ls_online") ;;
	*) ls_differ "CPUs ${ls_present:-unknown}, expected $ls_kind_cpus" ;;
	esac
	case $ls_kind_domains in
	'' | "$ls_domains") ;;
	*) ls_differ "NUMA domains ${ls_domains:-unknown}, expected $ls_kind_domains" ;;
	esac
	for ls_place in $ls_kind_places; do
		case $ls_differs in ?*) break ;; esac
		ls_in_domain "${ls_place#*@}" "${ls_place%@*}" ||
			ls_differ "CPU ${ls_place%@*} outside NUMA domain ${ls_place#*@}"
	done
	case $ls_kind_has in
	'' | "${ls_node_gpus:-none}")
		case " or $ls_kind_buses or " in
		' or  or ' | *" or ${ls_node_buses# } or "*) ;;
		*) ls_differ "GPUs at$ls_node_buses, expected $ls_kind_buses" ;;
		esac
		;;
	*) ls_differ "GPUs ${ls_node_gpus:-none}${ls_node_buses:+ at$ls_node_buses}, expected $ls_kind_has" ;;
	esac
	case $ls_differs in '') ;; *) return 1 ;; esac
}
# Of `ls_kinds`, those of the partition, the one that the node is: ls_kind, or nothing and in ls_misfit why.
ls_find_kind() {
	ls_fitting='' ls_misfit=''
	ls_know_node
	for ls_name in $ls_kinds; do
		if ls_is_kind "$ls_name"; then
			ls_fitting="$ls_fitting $ls_name"
		else
			ls_misfit="$ls_misfit${ls_misfit:+, }$ls_name ($ls_differs)"
		fi
	done
	ls_kind_gpus=0
	case $ls_fitting in
	'') ls_misfit="this node is none of the kinds of partition $ls_partition, $ls_misfit: \`lumisite check --host\` on it says more" ;;
	' '*' '*) ls_misfit="this node may be any of$ls_fitting: what tells them apart is to be described" ;;
	*)
		ls_misfit='' ls_kind=${ls_fitting# }
		ls_site_kind "$ls_kind"
		;;
	esac
}
