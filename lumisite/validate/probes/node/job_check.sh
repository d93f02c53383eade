#!/bin/sh
# node_check.sh OUTDIR PYTHON PYTHONPATH ARGUMENT...: record what `lumisite check --host --json` says on this node; one task
# on each node. Where the Python that started the run is not on the node, its own runs the same. judge_check.py reads it.
# node_common.sh stands before it.
# Seconds that the check may take, and until nobody waits: what does not answer cannot even be ended.
budget_s=40 patience_s=45
[ "$#" -gt 2 ] || exit 0
errors=${out:?}/${rank:?}.stderr
record() { # PYTHON PYTHONPATH ARGUMENT...
  given=$1 path=$2
  shift 2
  for python in "$given" python3; do
    code=0
    faults=$(PYTHONPATH=$path timeout -k 5 $budget_s "$python" "$@" 2>"$errors") || code=$?
    # 1 and 5 are faults that it found.
    case $code,$faults in [015],\[*) break ;; esac
    faults=null
    # Its time was over, as where a file system does not answer.
    [ "$code" != 124 ] || break
  done
  printf '{%s, "code": %s, "words": %s, "faults": %s}\n' "$(identity check)" "$code" \
    "$(quoted "$(tail -n 1 "$errors")")" "$faults"
  rm -f "$errors"
}

leave $patience_s "$@"
