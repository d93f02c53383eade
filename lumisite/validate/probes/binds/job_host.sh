#!/bin/sh
# binds_host.sh OUTDIR PATH...: record what of the paths the node itself has; one task on each node, outside the container.
# Compute nodes need no Python. The record says, file by file, what binds.py should see inside.
out=$1
shift
number() { case $1 in '' | *[!0-9]*) echo 0 ;; *) echo "$1" ;; esac; }
rank=$(number "${SLURM_PROCID-}")
mkdir -p "$out"
{
  printf '{"part": "host", "host": "%s", "rank": %s, "local_rank": %s, "paths": {' \
    "${SLURMD_NODENAME:-$(uname -n)}" "$rank" "$(number "${SLURM_LOCALID-}")"
  comma=
  for path; do
    # A path of a site description has no character that JSON would have escaped but these two.
    name=$(printf '%s' "$path" | sed 's/[\\"]/\\&/g')
    if file=$(stat -L -c %d:%i -- "$path" 2>/dev/null); then
      printf '%s"%s": {"exists": true, "file": "%s"}' "$comma" "$name" "$file"
    else
      printf '%s"%s": {"exists": false}' "$comma" "$name"
    fi
    comma=', '
  done
  printf '}}\n'
} >"$out/$rank.json.partial"
mv "$out/$rank.json.partial" "$out/$rank.json"
exit 0
