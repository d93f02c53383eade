#!/bin/sh
# node_files.sh OUTDIR FOLDER FILE...: record checksums of blocks of each file, and of all files below the folder; one task
# on each node. Every node of a job looks at the same blocks in the same order, which is spread over the file, until it has
# looked at enough or the time is over. judge_files.py compares the nodes. node_common.sh
# stands before it.
set -f
# Bytes of a block; blocks of one file, and files below the folder, at most; seconds for all, and until nobody waits.
block=4194304 most_blocks=512 most_files=2000 budget_s=10 patience_s=20
job=$(number "${SLURM_JOB_ID-}")
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
  printf '{%s, "block": %s, "files": {' "$(identity files)" "$block"
  found=$(find -L "$1/" -type f | head -n $most_files | sort)
  shift
  IFS='
'
  for path in $found; do file "$path"; done
  unset IFS
  for path; do file "$path"; done
  printf '}}\n'
}

leave $patience_s "$@"
