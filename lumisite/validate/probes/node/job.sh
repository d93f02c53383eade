#!/bin/sh
# node.sh OUTDIR PRIVATE INTERFACE... -- PATTERN...: record what this node is; one task on each node, before anything else.
# It is started with its text (`sh -c`), since a node may lack the shared folder, and needs no module, network, container,
# Python or writable /tmp. It only says what it sees: judge.py compares the nodes.
exec 3>&2 2>/dev/null
PATH=/usr/bin:/bin:/usr/sbin:/sbin LC_ALL=C
export PATH LC_ALL
set -f
# What a user or module has programs load is no fault of a node.
unset LD_PRELOAD LD_AUDIT LD_LIBRARY_PATH
out=$1 private=$2
shift 2
# Before a file system is asked, which may keep it waiting.
now=$(date +%s) node=${SLURMD_NODENAME:-$(uname -n)}
number() { case $1 in '' | *[!0-9]*) echo 0 ;; *) echo "$1" ;; esac; }
text() { # as JSON, in `json`: a command substitution for each of hundreds would cost more than all else
  json=$1
  case $1 in *[!A-Za-z0-9/._+\ :-]*) json=$(printf %s "$1" | tr -c ' -~' '?' | sed 's/[\\"]/\\&/g') ;; esac
  json="\"$json\""
}
field() { text "$2" && printf '%s"%s": %s' "${3-, }" "$1" "$json"; }
# Lines as texts of a JSON list.
strings() { head -n 4096 | tr -c '\n -~' '?' | sed 's/[\\"]/\\&/g; s/.*/"&"/; $!s/$/, /'; }
first_word() { word='' && read -r word _ <"$1"; }

interfaces() { # NAME...
  comma=
  for name; do
    place=/sys/class/net/$name state='' speed='' mtu='' addresses=null counters=
    if [ -d "$place" ]; then
      first_word "$place/operstate" && state=$word
      # A link that is down has no speed, and says so with an error.
      first_word "$place/speed" && speed=$word
      first_word "$place/mtu" && mtu=$word
      for counter in statistics/rx_errors statistics/tx_errors carrier_changes; do
        first_word "$place/$counter" && counters="$counters${counters:+, }\"${counter#*/}\": $(number "$word")"
      done
      # A link-local address comes by itself and leads nowhere.
      if found=$(ip -o address show dev "$name" scope global); then
        text "$(printf '%s\n' "$found" | sed -n 's/.* inet6* \([^ ]*\) .*/\1/p' | tr '\n' ' ')"
        addresses=$json
      fi
    fi
    text "$name" && printf '%s%s: {' "$comma" "$json"
    field state "$state" ''
    field speed "$speed"
    field mtu "$mtu"
    printf ', "addresses": %s, "counters": {%s}}' "$addresses" "$counters"
    comma=', '
  done
}

# A letter for each that holds: link, exists, directory, file, readable, writable, x may be entered or run, not of size zero.
looked_at() {
  is=
  [ ! -L "$1" ] || is=l
  # The dot has an automounter mount it.
  [ ! -d "$1" ] || [ -e "$1/." ]
  [ ! -e "$1" ] || is=${is}e
  [ ! -d "$1" ] || is=${is}d
  [ ! -f "$1" ] || is=${is}f
  [ ! -r "$1" ] || is=${is}r
  [ ! -w "$1" ] || is=${is}w
  [ ! -x "$1" ] || is=${is}x
  [ ! -s "$1" ] || is=${is}s
}
# What does not answer would keep this waiting for ever: all are asked beforehand, at once, and have ten seconds.
silent() { # PATTERN...
  asked=''
  for path; do
    # A program of its own has nothing open of what is read from here; a shell would keep its reader waiting.
    (exec ls -d "${path%/\**}/." >/dev/null 2>&1 3>&-) &
    asked="$asked $!:$path"
  done
  IFS=' '
  for pause in 0 0.1 0.2 0.7 2 3 4; do
    [ "$asked" ] || break
    sleep "$pause"
    waiting=
    for one in $asked; do
      { read -r state <"/proc/${one%%:*}/stat"; } || continue
      case $state in *') Z '*) ;; *) waiting="$waiting $one" ;; esac
    done
    asked=$waiting
  done
  echo "$asked "
}
shut_above() { # the first folder on the way that users may not enter
  shut='' above=''
  rest=${1#/}/
  while [ "$rest" ]; do
    above=$above/${rest%%/*} rest=${rest#*/}
    [ -d "$above" ] || break
    [ -x "$above" ] || { shut=$above && break; }
  done
}
# The mount points that links in a folder of the root file system lead to, by their text: no other one is looked at.
linked() {
  [ "$(stat -c %d "$1/.")" = "$(stat -c %d /)" ] || return
  find "$1/" -maxdepth 1 -type l -printf '%l\n' | awk -v "top=$1" '
    FNR == NR { point[$5]; next }
    {
      path = /^\// ? $0 : top "/" $0
      while (sub(/\/[^\/]+\/\.\.(\/|$)/, "/", path)) continue
      while (path != "" && !(path in point)) sub(/\/*[^\/]*$/, "", path)
      if (path != "" && !(path in seen)) { seen[path]; printf "%s ", path }
    }' /proc/self/mountinfo -
}
paths() { # PATTERN...
  comma=
  IFS=
  for pattern; do
    case $quiet in
    *":$pattern "*)
      text "$pattern" && printf '%s%s: {"is": "h"}' "$comma" "$json"
      comma=', '
      continue
      ;;
    esac
    set +f
    for path in $pattern; do
      set -f
      looked_at "$path"
      text "$path" && printf '%s%s: {"is": "%s"' "$comma" "$json" "$is"
      comma=', '
      case $is in
      *e*)
        case $pattern,$is in
        *'*',*) ;;
        *d*) field leads "$(readlink -f "$path")" && field links "$(linked "$path")" ;;
        *) field leads "$(readlink -f "$path")" ;;
        esac
        ;;
      *)
        shut_above "$path"
        [ "$shut" ] || shut_above "$(readlink -m "$path")"
        field leads "$(readlink "$path")"
        field shut "$shut"
        ;;
      esac
      printf '}'
    done
  done
  unset IFS
}

# Checksum and size of each library that a pattern finds: one of another release may have the same name and header.
checksums() { # PATTERN...
  IFS=
  for pattern; do
    case $pattern,$quiet in
    *,*":$pattern "*) ;;
    *.so*,*)
      set +f
      for path in $pattern; do [ ! -f "$path" ] || echo "$path"; done
      set -f
      ;;
    esac
  done | tr '\n' '\0' | timeout 10 xargs -0r cksum
  unset IFS
}

written() { # why nothing can be written into a folder, or nothing
  [ "$1" ] || return
  if file=$(mktemp "$1/.lumisite.XXXXXX"); then
    words=$({ printf x | cat >"$file"; } 2>&1) && words=
    rm -f "$file"
  else
    words=$(mktemp "$1/.lumisite.XXXXXX" 2>&1 >/dev/null)
  fi
  printf %s "${words##*: }"
}

least() { cat "$@" | sort -n | head -n 1; }
every() { cat "$@" | sort -u | tr '\n' ' '; }
# In % of one CPU: what the cgroups that this step is in allow (v2 and v1, sched-bwc of Linux 6.1).
allowed() {
  limit=unlimited
  while IFS=: read -r _ kind group; do
    case ,$kind, in ,,) top=/sys/fs/cgroup ;; *,cpu,*) top=/sys/fs/cgroup/cpu ;; *) continue ;; esac
    while :; do
      quota='' period=''
      { read -r quota period <"$top$group/cpu.max"; } ||
        { read -r quota <"$top$group/cpu.cfs_quota_us" && read -r period <"$top$group/cpu.cfs_period_us"; }
      # Without a limit the quota is max, or -1.
      case $quota in
      '' | *[!0-9]*) ;;
      *) [ "$((quota * 100 / period))" -ge "$limit" ] || limit=$((quota * 100 / period)) ;;
      esac
      case $group in '' | /) break ;; esac
      group=${group%/*}
    done
  done </proc/self/cgroup
  echo "$limit"
}
facts() {
  set +f
  cpu=/sys/devices/system/cpu
  field kernel "$(uname -r)" ''
  field cpus "$(cat $cpu/online)"
  # What Slurm gives, and where this may run.
  field cpus_given "${SLURM_CPUS_ON_NODE-}"
  field cpus_allowed "$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)"
  field cpu_limit_khz "$(least $cpu/cpu[0-9]*/cpufreq/scaling_max_freq $cpu/cpu[0-9]*/cpufreq/bios_limit)"
  field cpu_allowed "$(allowed)"
  field governor "$(every $cpu/cpu[0-9]*/cpufreq/scaling_governor)"
  set -f
}

# How many tasks the cgroups that this step is in may have together (v2 and v1).
least_tasks() {
  while IFS=: read -r _ kind group; do
    case ,$kind, in ,,) top=/sys/fs/cgroup ;; *,pids,*) top=/sys/fs/cgroup/pids ;; *) continue ;; esac
    while [ "${group#/}" ]; do
      cat "$top$group/pids.max"
      group=${group%/*}
    done
  done </proc/self/cgroup | awk '/^[0-9]+$/ && (least == "" || $1 < least) { least = $1 } END { print least == "" ? "unlimited" : least }'
}
# What ranks may use: NAME NUMBER..., sizes in kB as all and free, limits as soft and hard.
resources() {
  sed -n 's/^MemTotal: *\([0-9]*\) .*/memory \1/p' /proc/meminfo
  for place in /dev/shm "${private:-/tmp}"; do
    timeout 5 df -Pk "$place" | awk -v name="$place" 'NR == 2 { print name, $(NF - 4), $(NF - 2) }'
  done
  tasks=$(least_tasks)
  echo "tasks $tasks $tasks"
  sed -n 's/^Max locked memory  */memlock /p; s/^Max open files  */nofile /p; s/^Max processes  */nproc /p
    s/^Max stack size  */stack /p' /proc/self/limits | awk '{ print $1, $2, $3 }'
}

record() {
  field host "$node" '{'
  printf ', "rank": %s, "local_rank": %s, ' "$rank" "$(number "${SLURM_LOCALID-}")"
  # When the job started is the controller's time, by which two nodes can be told apart.
  printf '"now": %s, "started": %s, ' "$now" "$(number "${SLURM_JOB_START_TIME-}")"
  names=
  while [ "$#" != 0 ] && [ "$1" != -- ]; do names="$names $1" && shift; done
  shift
  quiet=$(silent "$@")
  # shellcheck disable=SC2086  # names of interfaces have no blanks
  printf '"interfaces": {%s}, "paths": {%s}, ' "$(interfaces $names)" "$(paths "$@")"
  printf '"mounts": [%s], ' "$(strings </proc/self/mountinfo)"
  printf '"checksums": [%s], ' "$(checksums "$@" | strings)"
  field private "$(written "$private")" ''
  printf ', "facts": {%s}' "$(facts)"
  field shm "$(written /dev/shm)"
  printf ', "resources": [%s]}\n' "$(resources | strings)"
}

rank=$(number "${SLURM_PROCID-}")
words=$({ mkdir -p "$out" && record "$@" >"$out/$rank.json.partial" && mv "$out/$rank.json.partial" "$out/$rank.json"; } 2>&1)
[ ! -f "$out/$rank.json" ] || exit 0
away=
while [ "$#" != 0 ] && [ "$1" != -- ]; do shift; done
for path; do case $path in -- | *'*') ;; *) [ -e "$path" ] || away="$away	$path" ;; esac done
printf 'lost\t%s\t%s\t%s%s\n' "$node" "$out" "${words##*: }" "$away" >&3
exit 1
