#!/bin/sh
# node_files.sh OUTDIR FOLDER FILE...: record checksums of blocks of each file, and of all files below the folder; one task
# on each node. Every node of a job looks at the same blocks in the same order, which is spread over the file, until it has
# looked at enough or the time is over. judge_files.py compares the nodes. It is started as node.sh is.
exec 2>/dev/null
PATH=/usr/bin:/bin:/usr/sbin:/sbin LC_ALL=C
export PATH LC_ALL
set -f
# Bytes of a block; blocks of one file, and files below the folder, at most; seconds for all, and until nobody waits.
block=4194304 most_blocks=512 most_files=2000 budget_s=10 patience_s=20
out=$1
shift
number() { case $1 in '' | *[!0-9]*) echo 0 ;; *) echo "$1" ;; esac; }
node=${SLURMD_NODENAME:-$(uname -n)} rank=$(number "${SLURM_PROCID-}") job=$(number "${SLURM_JOB_ID-}")
quoted() { printf '"%s"' "$(printf %s "$1" | tr -c ' -~' '?' | sed 's/[\\"]/\\&/g')"; }
# $step is about the golden part of $1, and has no factor in common with it: steps of that length reach all, evenly.
choose_step() {
  step=$(($1 * 618 / 1000))
  while :; do
    a=$1 b=$step
    while [ "$b" != 0 ]; do c=$((a % b)) a=$b b=$c; done
    [ "$a" != 1 ] || break
    step=$((step + 1))
  done
}
digest() {
  sum=$(dd if="$1" bs=$block skip="$2" count=1 | cksum)
  printf '%s:%s ' "$2" "${sum% *}"
}
# The last block, and then the others from the job's own first on: what one job does not look at, the next ones do.
digests() { # FILE BLOCKS
  digest "$1" "$(($2 - 1))"
  others=$(($2 - 1)) number=1
  [ "$others" != 0 ] || return
  choose_step "$others"
  first=$((job % others * (most_blocks - 1) % others))
  while [ "$number" -lt "$2" ] && [ "$number" -lt "$most_blocks" ] && [ "$(date +%s)" -lt "$end" ]; do
    digest "$1" "$(((first + number - 1) % others * step % others))"
    number=$((number + 1))
  done
}
file() { # PATH
  [ -f "$1" ] || return
  size=$(number "$(stat -L -c %s "$1")")
  printf '%s%s: {"size": %s, "blocks": "' "$comma" "$(quoted "$1")" "$size"
  [ "$size" = 0 ] || [ ! -r "$1" ] || digests "$1" $(((size + block - 1) / block))
  printf '"}'
  comma=', '
}
record() { # FOLDER FILE...
  end=$(($(date +%s) + budget_s)) comma=
  printf '{"part": "files", "host": %s, "rank": %s, "local_rank": %s, ' \
    "$(quoted "$node")" "$rank" "$(number "${SLURM_LOCALID-}")"
  printf '"block": %s, "files": {' "$block"
  found=$(find -L "$1/" -type f | head -n $most_files | sort)
  shift
  IFS='
'
  for path in $found; do file "$path"; done
  unset IFS
  for path; do file "$path"; done
  printf '}}\n'
}

# What does not answer keeps a process of its own waiting, and nobody else.
mkdir -p "$out"
{ record "$@" >"$out/$rank.json.partial" && mv "$out/$rank.json.partial" "$out/$rank.json"; } </dev/null >/dev/null &
while [ "$patience_s" != 0 ] && kill -0 $! && [ ! -f "$out/$rank.json" ]; do
  sleep "${pause:-0.1}"
  pause=1 patience_s=$((patience_s - 1))
done
exit 0
