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
    ip neigh show to "$address" | awk '{ for (i = 2; i < NF; i++) if ($i == "lladdr") print $1, $(i + 1) }'
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
