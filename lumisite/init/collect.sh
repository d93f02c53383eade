# shellcheck shell=sh disable=SC2154
# What a node prints of itself, for `lumisite init`: POSIX sh, since a compute node may have no Python.
# Lines are `F PATH` (a file; its lines follow, each behind |), `L PATH<tab>TARGET` (a link), `D PATH` (something that is
# there), and at last END. What cannot be read is left out. Arguments are more paths to look for.
# Lines before these name what vendors have: $modules of the kernel, $classes of adapters, $stated files, $trees.
exec 2>/dev/null </dev/null
export LC_ALL=C TZ=UTC PATH="$PATH:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

# First lines: no process for each, of which a node with many CPUs would need thousands.
one() {
  for file in "$@"; do
    [ -f "$file" ] || continue
    line=
    IFS= read -r line <"$file"
    [ -n "$line" ] && printf 'F %s\n|%s\n' "$file" "$line"
  done
}
all() {
  for file in "$@"; do
    [ -f "$file" ] && printf 'F %s\n' "$file" && sed 's/^/|/' <"$file"
  done
}
# What a command prints.
output() {
  printf 'F /output/%s\n' "$1"
  shift
  timeout 20 "$@" | sed -e 's/^/|/' -e 100q
}
# A folder, which may stand behind links: where it really is, in $real.
leads() {
  [ -d "$1" ] && real=$(cd -P "$1" && pwd -P) || return 1
  [ "$real" = "$1" ] || printf 'L %s\t%s\n' "$1" "$real"
  printf 'D %s\n' "$real"
}
# A device of a class: its own files, then those of the hardware behind it.
device() {
  leads "$1" || return
  here=$real
  shift
  for name in "$@"; do one "$here/$name"; done
  leads "$here/device" || return
  behind=$real
  one "$behind/numa_node" "$behind/local_cpulist"
  leads "$behind/driver"
}

one /proc/sys/kernel/hostname /proc/sys/kernel/osrelease /proc/meminfo
all /etc/os-release /usr/lib/os-release /proc/net/route /proc/self/mountinfo
one /sys/devices/system/cpu/online
for cpu in /sys/devices/system/cpu/cpu[0-9]*; do
  one "$cpu/topology/core_cpus_list" "$cpu/topology/thread_siblings_list" "$cpu/topology/physical_package_id"
  for cache in "$cpu"/cache/index*; do one "$cache/level" "$cache/shared_cpu_list"; done
done
one /sys/devices/system/node/node[0-9]*/cpulist
for module in $modules; do one "/sys/module/$module/version" "/sys/module/$module/srcversion"; done
for net in /sys/class/net/*; do
  here=
  device "$net" operstate speed mtu
  for below in "$here"/lower_*; do leads "$below"; done
done
for class in $classes; do
  for adapter in "$class"/*; do device "$adapter" ports/1/link_layer ports/1/state; done
done
# shellcheck disable=SC2086 # a list of patterns
all $stated
for pci in /sys/bus/pci/devices/*; do
  class=
  read -r class <"$pci/class"
  case $class in
    0x03* | 0x12*)
      leads "$pci"
      one "$real/class" "$real/vendor" "$real/local_cpulist" "$real/numa_node"
      ;;
  esac
done

leads /
for tree in $trees; do
  leads "$tree" || continue
  # Something in it: packages that are removed leave empty folders behind.
  for below in "$real"/*; do
    [ -e "$below" ] && printf 'D %s\n' "$below"
    break
  done
done
for link in /*; do [ -L "$link" ] && leads "$link"; done
for path in /usr/share/lmod /usr/share/modules /usr/share/Modules "$@"; do [ -e "$path" ] && printf 'D %s\n' "$path"; done
for variable in LMOD_VERSION MODULES_CMD HOME; do output "$variable" printenv "$variable"; done
for program in apptainer singularity podman-hpc; do
  path=$(command -v "$program") && printf 'F /output/%s path\n|%s\n' "$program" "$path" && output "$program" "$path" --version
done
# Options of srun by its plug-ins.
all /etc/slurm/plugstack.conf /etc/slurm/plugstack.conf.d/* /etc/slurm-llnl/plugstack.conf.d/*
output 'srun --help' sh -c "srun --help | sed -n 's/^ *\\(--[a-z-]*\\)=.*/\\1/p' | grep '^--container-image$'"
command -v enroot >/dev/null && output enroot enroot version

# The same folder on two nodes is the same file system where number and time of change are the same.
points() {
  printf 'F /output/%s\n' "$1"
  while read -r _ _ _ _ point _; do
    case $point in
      / | /proc/* | /sys/* | /dev/* | /run/* | /boot/* | *\\*) ;;
      *) timeout 5 stat -c "|$2 %n" "$point" ;;
    esac
  done </proc/self/mountinfo
}
points stat '%i %z %F'
points rights %A
printf 'END\n'
