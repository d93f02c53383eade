# shellcheck shell=sh disable=SC2154,SC2034 # what job.sh assigns, behind this in one text, and what it reads
# node_state.sh: what job.sh records beside what a node has: who it is, what ranks may use, and who else uses it.
# Nothing here waits for longer than some seconds, and nothing that others wrote is more than text.
slurm=$(command -v scontrol)

strings() { head -n "${1-4096}" | tr -c '\n -~' '?' | sed 's/[\\"]/\\&/g; s/.*/"&"/; $!s/$/, /'; }
list() { # NAME COMMAND...: its lines
  printf ', "%s": [' "$1"
  shift
  "$@" | strings
  printf ']'
}

# ---- who it is

# The names that follow this node's in the job's list, in a circle: each name is asked for on some nodes, and not on all.
names_after() {
  timeout 5 "$slurm" show hostnames "${SLURM_STEP_NODELIST:-$SLURM_JOB_NODELIST}" | awk -v node="$node" -v most=16 '
    { name[NR] = $1; if ($1 == node) at = NR }
    END { if (at) for (i = 1; i < NR && i <= most; i++) print name[(at + i - 1) % NR + 1] }'
}
# What programs get for names: NAME ADDRESS..., a name alone for one that is not known. What is late is not there.
resolved() {
  # shellcheck disable=SC2016 # another shell expands it
  timeout 5 sh -c 'for name; do
    found=$(getent ahosts "$name" | awk "!seen[\$1]++ && !/^fe80:/ { printf \" %s\", \$1 }")
    echo "$name$found"
  done' sh "$@"
}
names() { # AFTER INTERFACE...
  command -v getent >/dev/null || return
  after=$1 each=$node others=
  shift
  for name; do each="$each $node-$name"; done
  # shellcheck disable=SC2086 # names of nodes and interfaces have no blanks
  mine=$(resolved $each)
  suffixes=$(printf '%s\n' "$mine" | awk -v own="$node-" 'NF > 1 && index($1, own) == 1 { print substr($1, length(own)) }')
  for name in $after; do
    others="$others $name"
    for suffix in $suffixes; do others="$others $name$suffix"; done
  done
  printf '%s\n' "$mine"
  # shellcheck disable=SC2086
  resolved $others
}
# Who answers at the addresses of the next node: ADDRESS MAC. A connection has the kernel ask, whatever comes of it.
answers() { # NODE NAME-LINES
  asked=$(printf '%s\n' "$2" | awk -v node="$1" '
    $1 == node || index($1, node "-") == 1 { for (i = 2; i <= NF; i++) if ($i !~ /^127\.|^::1$/) print $i }' |
    sort -u | head -n 8)
  for address in $asked; do
    # shellcheck disable=SC2016 # bash expands it
    timeout 1 bash -c ': >"/dev/tcp/$1/9"' bash "$address" </dev/null >/dev/null 3>&- &
  done
  wait
  for address in $asked; do
    # Any other state may be older than the machine that has the address now.
    ip neigh show to "$address" | awk '/ (REACHABLE|PERMANENT)/ { for (i = 2; i < NF; i++) if ($i == "lladdr") print $1, $(i + 1) }'
  done
}
addresses() { ip -o address show scope global | awk '{ sub(/\/.*/, "", $4); print $2, $4 }'; }
macs() { ip -o link show | sed -n 's/^[0-9]*: \([^:@]*\).* link\/[a-z0-9]* \([^ ]*\).*/\1 \2/p'; }
identity() { # INTERFACE...
  after=$(names_after)
  looked_up=$(names "$after" "$@")
  field uname "$(uname -n)" ''
  list addresses addresses
  list macs macs
  list names printf '%s\n' "$looked_up"
  # shellcheck disable=SC2086 # the first of them
  set -- $after
  list answers answers "${1-}" "$looked_up"
}

# ---- what ranks may use: NAME NUMBER..., sizes in kB as all and free, limits as soft and hard

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
resources() {
  sed -n 's/^MemTotal: *\([0-9]*\) .*/memory \1/p' /proc/meminfo
  for place in /dev/shm "${private:-/tmp}"; do
    timeout 5 df -Pk "$place" | awk -v name="$place" 'NR == 2 { print name, $(NF - 4), $(NF - 2) }'
  done
  set +f
  for place in /sys/kernel/mm/hugepages/*; do
    # What is beyond the pool comes and goes with programs.
    first_word "$place/nr_hugepages" || continue
    pool=$word
    first_word "$place/surplus_hugepages" || continue
    echo "${place##*/} $((pool - word))"
  done
  set -f
  tasks=$(least_tasks)
  echo "tasks $tasks $tasks"
  sed -n 's/^Max locked memory  */memlock /p; s/^Max open files  */nofile /p; s/^Max processes  */nproc /p
    s/^Max stack size  */stack /p' /proc/self/limits | awk '{ print $1, $2, $3 }'
}

# ---- who else uses it

# PID START CPU WANTED of each process, in ticks: WANTED has the time too that it waited for a CPU among many. START tells
# two apart that have had the same number. Threads of the kernel are its own.
ticks() {
  set +f
  { grep -H . /proc/[0-9]*/schedstat; cat /proc/[0-9]*/stat; } | awk -v hz="$hz" '
    /^\/proc/ { split($1, path, "/"); waited[path[3]] = $2 * hz / 1e9; next }
    {
      pid = $1
      sub(/^.*\) /, "")
      # Large numbers would be rounded without a format.
      used = $12 + $13
      if (NF > 20 && pid > 2 && $2 != 2) printf "%d %s %.0f %.0f\n", pid, $20, used, used + waited[pid]
    }'
  set -f
}
begin_sample() { hz=$(getconf CLK_TCK || echo 100) && read -r began _ </proc/uptime && sample=$(ticks); }
# AMOUNT PID SECONDS: what it wanted in % of one CPU since the sample, a second at least, and the CPU time of all its life.
busy() {
  pause=$(awk -v began="$began" '{ left = began + 1 - $1; if (left > 0) print left }' /proc/uptime)
  [ ! "$pause" ] || sleep "$pause"
  read -r ended _ </proc/uptime
  { printf '%s\n\n' "$sample" && ticks; } | awk -v passed="$ended $began" -v hz="$hz" '
    BEGIN { split(passed, uptime); ticks = hz * (uptime[1] - uptime[2]) }
    !NF { again = 1; next }
    !again { had[$1, $2] = $4; next }
    ($1, $2) in had {
      percent = 100 * ($4 - had[$1, $2]) / ticks
      if (percent >= 10 && $3 >= hz) printf "%d %d %d\n", percent, $1, $3 / hz
    }' | sort -rn | head -n 64
}
# BYTES PID: of GPU memory, as the vendors' own programs or files say.
on_gpus() {
  timeout 10 sh -c "${LUMISITE_GPU_USERS-}" | awk '/^[0-9]+ [0-9]+$/ { bytes[$1] += $2 } END { for (pid in bytes) printf "%.0f %d\n", bytes[pid], pid }'
}
job_of() { # PID: by its cgroup, its variables, or the slurmstepd above it; nothing where it is of no job
  job='' service='' at=$1
  while read -r line; do
    case $line in
    */job_[0-9]*) job=${line##*/job_} job=${job%%/*} ;;
    *slurm* | */user.slice/*) ;;
    *.service | *.service/*) service=yes ;;
    esac
  done <"/proc/$1/cgroup"
  case $job in *[!0-9]*) job= ;; esac
  [ "$job" ] || job=$(tr '\0' '\n' <"/proc/$1/environ" | sed -n 's/^SLURM_JOB_ID=\([0-9]*\)$/\1/p' | head -n 1)
  while [ ! "$job" ] && [ "${at:-1}" -gt 1 ]; do
    job=$(tr '\0' '\n' <"/proc/$at/cmdline" | sed -n '1s/^slurmstepd: \[\([0-9]*\).*/\1/p')
    at=$(sed -n 's/^PPid:[^0-9]*//p' "/proc/$at/status")
  done
}
used_by_others() { # KIND COMMAND: KIND AMOUNT PID SECONDS UID USER JOB NAME, where the process is of another job or none
  "$2" | while read -r amount pid seconds; do
    job_of "$pid"
    [ "$job" != "${SLURM_JOB_ID:-none}" ] || continue
    # A process that has ended meanwhile has no owner.
    uid=$(stat -c %u "/proc/$pid") && [ "$uid" ] || continue
    # Names may come from a server: one that does not answer is asked once.
    [ "$uid" = "${known-}" ] || user=$uid known=$uid
    [ "$user" != "$uid" ] || [ "${slow-}" ] || user=$(timeout 3 stat -c %U "/proc/$pid") || slow=yes user=$uid
    IFS= read -r name <"/proc/$pid/comm" || continue
    # A service is the system's, whatever user it runs as.
    [ ! "$service" ] || uid=0
    printf '%s\n' "$1 $amount $pid ${seconds:-0} $uid ${user:-$uid} ${job:--} $name"
  done
}
running() { # the jobs that have a step on the node
  set +f
  grep -aho '^slurmstepd: \[[0-9]*' /proc/[0-9]*/cmdline | sed 's/.*\[//' | sort -u
  set -f
}
processes() {
  used_by_others cpu busy
  used_by_others gpu on_gpus
}
