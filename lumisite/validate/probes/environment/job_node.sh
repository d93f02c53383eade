#!/bin/bash
# environment_node.sh OUTDIR MODULEPATH VARIABLE=VALUE... -- NAME/VERSION... -- PATH...: load and unload modules one by one
# in a login shell of a compute node, and record what each left behind, and which file each path is; one task on each
# node, outside the container. The variables are a user's own, set before the load, which an unload must restore.
# What the step gives its tasks, before a login shell sets other limits: NAME: [SOFT, HARD], and the KiB of shared memory.
granted() {
  local line
  while IFS= read -r line; do
    [[ ! $line =~ ^Max\ (locked\ memory|open\ files|processes|stack\ size)\ +([a-z0-9]+)\ +([a-z0-9]+) ]] ||
      printf '"%s": ["%s", "%s"], ' "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" "${BASH_REMATCH[3]}"
  done </proc/self/limits
  line=$(timeout 5 df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print $(NF - 4) }')
  printf '"shared memory": ["%s"]' "$line"
}
if [ "${LUMISITE_PROBE-}" != clean ]; then
  # As after a fresh login: the job script's own modules would hide what these do.
  keep=()
  for name in HOME USER LOGNAME LANG TMPDIR SLURM_PROCID SLURM_LOCALID SLURM_JOB_ID SLURM_STEP_ID SLURMD_NODENAME; do
    [ -z "${!name+x}" ] || keep+=("$name=${!name}")
  done
  # `env` itself would load what these say.
  unset LD_PRELOAD LD_AUDIT LD_LIBRARY_PATH BASH_ENV ENV
  exec env -i "${keep[@]}" LUMISITE_GRANTED="$(granted)" TERM=dumb LMOD_PAGER=none PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin LUMISITE_PROBE=clean \
    bash -l "$0" "$@"
fi

quoted() { # a text as JSON
  local text=$1
  text=${text//\\/\\\\} text=${text//\"/\\\"} text=${text//$'\n'/\\n} text=${text//$'\t'/\\t} text=${text//$'\r'/\\r}
  printf '"%s"' "${text//[[:cntrl:]]/?}"
}

declare -A before after
snapshot() { # into the array of that name: every exported variable and function, without what module systems note for themselves
  local -n into=$1
  local line
  into=()
  # shellcheck disable=SC2034  # `into` is another name of the caller's array
  while IFS= read -r -d '' line; do
    case $line in
    _=* | SHLVL=* | PWD=* | OLDPWD=* | LOADEDMODULES=* | _LMFILES_=* | _ModuleTable*=* | __LMOD_* | LMOD_*=* | __MODULES_*) ;;
    *) into[${line%%=*}]=${line#*=} ;;
    esac
  done < <(env -0)
}

changes() { # what differs between the arrays, as JSON
  local name comma=
  for name in "${!before[@]}"; do
    if [ -z "${after[$name]+x}" ]; then
      printf '%s%s: {"before": %s, "after": null}' "$comma" "$(quoted "$name")" "$(quoted "${before[$name]}")"
      comma=', '
    elif [ "${before[$name]}" != "${after[$name]}" ]; then
      printf '%s%s: {"before": %s, "after": %s}' "$comma" "$(quoted "$name")" "$(quoted "${before[$name]}")" \
        "$(quoted "${after[$name]}")"
      comma=', '
    fi
  done
  for name in "${!after[@]}"; do
    if [ -z "${before[$name]+x}" ]; then
      printf '%s%s: {"before": null, "after": %s}' "$comma" "$(quoted "$name")" "$(quoted "${after[$name]}")"
      comma=', '
    fi
  done
}

shut_above() { # PATH: the first folder on the way, or on the way that a link leads, that this user may not enter
  local path above rest
  for path in "$1" "$(readlink -m -- "$1" 2>/dev/null)"; do
    above='' rest=${path#/}/
    while [ -n "$rest" ]; do
      above=$above/${rest%%/*} rest=${rest#*/}
      [ -d "$above" ] || break
      [ -x "$above" ] || { printf %s "$above" && return; }
    done
  done
}

paths() { # PATH...: device and number of the file, which are the same in a container that has it
  local path file comma=
  for path; do
    if file=$(stat -L -c %d:%i -- "$path" 2>/dev/null); then
      printf '%s%s: {"exists": true, "file": "%s"}' "$comma" "$(quoted "$path")" "$file"
    else
      printf '%s%s: {"exists": false, "shut": %s}' "$comma" "$(quoted "$path")" "$(quoted "$(shut_above "$path")")"
    fi
    comma=', '
  done
}

number() { case $1 in '' | *[!0-9]*) printf 0 ;; *) printf %s "$1" ;; esac; }

is_loaded() { case :${LOADEDMODULES-}: in *":$1:"*) printf true ;; *) printf false ;; esac; }

out=$1 path=$2
shift 2
while [ "$#" != 0 ] && [ "$1" != -- ]; do
  export "${1?}"
  shift
done
shift
names=()
while [ "$#" != 0 ] && [ "$1" != -- ]; do
  names+=("$1")
  shift
done
shift
rank=$(number "${SLURM_PROCID-}") output=$out/$rank.output has_lmod=false
type module >/dev/null 2>&1 && has_lmod=true
mkdir -p "$out"
{
  printf '{"part": "node", "host": %s, "rank": %s, "local_rank": %s, "has_lmod": %s, "lmod": %s, "paths": {%s}, "granted": {%s}, "modules": {' \
    "$(quoted "${SLURMD_NODENAME:-$HOSTNAME}")" "$rank" "$(number "${SLURM_LOCALID-}")" "$has_lmod" "$(quoted "${LMOD_VERSION-}")" \
    "$(paths "$@")" "$LUMISITE_GRANTED"
  comma=
  for name in "${names[@]}"; do
    printf '%s%s: ' "$comma" "$(quoted "$name")"
    comma=', '
    [ "$has_lmod" = true ] || { printf '{}'; continue; }
    module use "$path" >/dev/null 2>&1
    snapshot before
    module load "$name" >"$output" 2>&1
    loaded=$? loaded_words=$(<"$output") there=$(is_loaded "$name")
    snapshot after
    printf '{"load": %s, "loaded": %s, "said": %s, "changes": {%s}' "$loaded" "$there" "$(quoted "$loaded_words")" "$(changes)"
    module unload "$name" >"$output" 2>&1
    unloaded=$?
    snapshot after
    printf ', "unload": %s, "still_loaded": %s, "unload_said": %s, "left": {%s}}' "$unloaded" "$(is_loaded "$name")" \
      "$(quoted "$(<"$output")")" "$(changes)"
    # What one leaves behind must not be blamed on the next.
    for left in "${!after[@]}"; do [ -n "${before[$left]+x}" ] || unset "$left"; done
    for left in "${!before[@]}"; do case $left in *[!A-Za-z0-9_]*) ;; *) export "$left=${before[$left]}" ;; esac; done
    module purge >/dev/null 2>&1
    for left in "${!before[@]}"; do case $left in *[!A-Za-z0-9_]*) ;; *) export "$left=${before[$left]}" ;; esac; done
  done
  printf '}}\n'
} >"$out/$rank.json.partial"
rm -f "$output"
mv "$out/$rank.json.partial" "$out/$rank.json"
exit 0
