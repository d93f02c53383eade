#!/bin/bash
# environment_node.sh OUTDIR PATH...: record which file each path is on the node, and what the step gives its tasks there;
# one task on each node, outside the container.
out=$1
shift
quoted() { # a text as JSON
  local text=$1
  text=${text//\\/\\\\} text=${text//\"/\\\"}
  printf '"%s"' "${text//[[:cntrl:]]/?}"
}
number() { case $1 in '' | *[!0-9]*) printf 0 ;; *) printf %s "$1" ;; esac; }

paths() { # PATH...: device and number of the file, which are the same in a container that has it
  local path file comma=
  for path; do
    if file=$(stat -L -c %d:%i -- "$path" 2>/dev/null); then
      printf '%s%s: {"exists": true, "file": "%s"}' "$comma" "$(quoted "$path")" "$file"
    else
      printf '%s%s: {"exists": false}' "$comma" "$(quoted "$path")"
    fi
    comma=', '
  done
}

granted() { # NAME: [SOFT, HARD], and the KiB of shared memory
  local line
  while IFS= read -r line; do
    [[ ! $line =~ ^Max\ (locked\ memory|open\ files|processes|stack\ size)\ +([a-z0-9]+)\ +([a-z0-9]+) ]] ||
      printf '"%s": ["%s", "%s"], ' "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" "${BASH_REMATCH[3]}"
  done </proc/self/limits
  line=$(timeout 5 df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print $(NF - 4) }')
  printf '"shared memory": ["%s"]' "$line"
}

rank=$(number "${SLURM_PROCID-}")
mkdir -p "$out"
printf '{"part": "node", "host": %s, "rank": %s, "local_rank": %s, "paths": {%s}, "granted": {%s}}\n' \
  "$(quoted "${SLURMD_NODENAME:-$HOSTNAME}")" "$rank" "$(number "${SLURM_LOCALID-}")" "$(paths "$@")" "$(granted)" \
  >"$out/$rank.json.partial"
mv "$out/$rank.json.partial" "$out/$rank.json"
exit 0
