#!/bin/sh
# node_common.sh OUTDIR ...: stands before scripts that record something of each node by their function `record`: where a
# record goes, who this is, and how long anybody waits for it. It is started as node.sh is.
exec 2>/dev/null
PATH=/usr/bin:/bin:/usr/sbin:/sbin LC_ALL=C
export PATH LC_ALL
out=$1
shift
number() { case $1 in '' | *[!0-9]*) echo 0 ;; *) echo "$1" ;; esac; }
quoted() { printf '"%s"' "$(printf %s "$1" | tr -c ' -~' '?' | sed 's/[\\"]/\\&/g')"; }
node=${SLURMD_NODENAME:-$(uname -n)} rank=$(number "${SLURM_PROCID-}")
identity() { # PART
  printf '"part": "%s", "host": %s, "rank": %s, "local_rank": %s' \
    "$1" "$(quoted "$node")" "$rank" "$(number "${SLURM_LOCALID-}")"
}
# leave SECONDS ARGUMENT...: what does not answer keeps a process of its own waiting, and nobody else for longer than that.
leave() {
  patience_s=$1
  shift
  mkdir -p "$out"
  { record "$@" >"$out/$rank.json.partial" && mv "$out/$rank.json.partial" "$out/$rank.json"; } </dev/null >/dev/null &
  while [ "$patience_s" != 0 ] && kill -0 $! && [ ! -f "$out/$rank.json" ]; do
    sleep "${pause:-0.1}"
    pause=1 patience_s=$((patience_s - 1))
  done
  exit 0
}
