# shellcheck shell=bash disable=SC2154,SC2016 # what job.sh assigns, and what another shell expands
# A job with slots, which do the same one after the other. A slot ends where one of its steps does not end well.
wrong=
skip() {
  mkdir -p "$job/$1"
  [ -e "$job/$1/exit" ] || mark "$job/$1/exit" "skipped $(date +%s.%N)"
}
in_slot() {
  if [ "$wrong" ]; then
    skip "$1"
    return 0
  fi
  step "$@"
  read -r code _ <"$job/$1/exit"
  [ "$code" = 0 ] || wrong=$1
}
# As step, where the slot went wrong: what comes after counts only if plain ranks meet then, and nothing is left of it.
check() {
  if [ ! "$wrong" ]; then
    skip "$1"
    return 0
  fi
  [ -e "$job/$1/exit" ] || left_by "$wrong"
  wrong=
  in_slot "$@"
  [ ! "$wrong" ] || finish "unclean:$wrong"
}
# What steps of this job have left on its nodes, as lines of STEP<tab>NODE<tab>COMMAND.
left_by() {
  each_node sh -c 'for process in /proc/[0-9]*; do
    grep -qzx "SLURM_JOB_ID=$SLURM_JOB_ID" "$process/environ" || continue
    grep -qz "^SLURM_STEP_ID=[0-9]" "$process/environ" || continue
    ! grep -qzx "SLURM_STEP_ID=$SLURM_STEP_ID" "$process/environ" || continue
    printf "%s\t%s\t%.200s\n" "$1" "$SLURMD_NODENAME" "$(tr "\0" " " <"$process/cmdline")"
  done' sh "$1" >>"$job/left" 2>/dev/null || :
}
