#!/bin/sh
# node_check.sh OUTDIR PYTHON PYTHONPATH ARGUMENT...: record what `lumisite check --host --json` says on this node; one task
# on each node. Where the Python that started the run is not on the node, its own runs the same. judge_check.py reads it.
# It is started as node.sh is.
exec 2>/dev/null
PATH=/usr/bin:/bin:/usr/sbin:/sbin LC_ALL=C
export PATH LC_ALL
# Seconds that the check may take, and until nobody waits: what does not answer cannot even be ended.
budget_s=40 patience_s=45
out=$1
[ "$#" -gt 3 ] || exit 0
number() { case $1 in '' | *[!0-9]*) echo 0 ;; *) echo "$1" ;; esac; }
node=${SLURMD_NODENAME:-$(uname -n)} rank=$(number "${SLURM_PROCID-}")
quoted() { printf '"%s"' "$(printf %s "$1" | tr -c ' -~' '?' | sed 's/[\\"]/\\&/g')"; }
record() { # PYTHON PYTHONPATH ARGUMENT...
  given=$1 path=$2
  shift 2
  for python in "$given" python3; do
    code=0
    faults=$(PYTHONPATH=$path timeout -k 5 $budget_s "$python" "$@" 2>"$out/$rank.stderr") || code=$?
    # 1 and 5 are faults that it found.
    case $code,$faults in [015],\[*) break ;; esac
    faults=null
    # Its time was over, as where a file system does not answer.
    [ "$code" != 124 ] || break
  done
  printf '{"part": "check", "host": %s, "rank": %s, "local_rank": %s, "code": %s, "words": %s, "faults": %s}\n' \
    "$(quoted "$node")" "$rank" "$(number "${SLURM_LOCALID-}")" "$code" \
    "$(quoted "$(tail -n 1 "$out/$rank.stderr")")" "$faults"
  rm -f "$out/$rank.stderr"
}

mkdir -p "$out"
shift
{ record "$@" >"$out/$rank.json.partial" && mv "$out/$rank.json.partial" "$out/$rank.json"; } </dev/null >/dev/null &
while [ "$patience_s" != 0 ] && kill -0 $! && [ ! -f "$out/$rank.json" ]; do
  sleep "${pause:-0.1}"
  pause=1 patience_s=$((patience_s - 1))
done
exit 0
