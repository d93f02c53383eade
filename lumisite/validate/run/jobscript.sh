# shellcheck shell=bash disable=SC2154,SC2016 # what the lines before it assign, and what another shell expands
# What the script of every job begins with, behind the lines that say `job` (its folder), `gpu_prefixes` (how names of
# variables of the GPUs' libraries begin), `lost` (how srun tells of a step that Slurm lost), and `away` (how it tells of
# a node or a daemon that does not answer).
# Every step leaves its exit code and the time in FOLDER/exit.
# The site's login files alone: what a user's own set does not reach what is measured.
# shellcheck source=/dev/null
[ ! -r /etc/profile ] || . /etc/profile
mark() { printf '%s\n' "$2" >"$1.partial" && mv "$1.partial" "$1"; }
finish() {
  mark "$job/done" "$SLURM_JOB_ID $1 $(date +%s.%N)"
  exit 0
}
# Run a command once on each node.
each_node() {
  timeout 60 srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 \
    --kill-on-bad-exit=0 "$@" </dev/null
}
# capture PYTHON PYTHONPATH ARGUMENTS...: the node as it is, without the module. Where this node lacks the Python that
# started the run, its own reads the same files. Where neither can there is no capture, and facts.stderr says why.
capture() {
  python=$1 path=$2
  shift 2
  [ ! -e "$job/facts.json" ] || return 0
  for python in "$python" python3; do
    PYTHONPATH=$path timeout 60 "$python" "$@" >"$job/facts.json.partial" 2>>"$job/facts.stderr" </dev/null &&
      mv "$job/facts.json.partial" "$job/facts.json" && break
    # 124: its time was over, as where a file system does not answer.
    [ "$?" != 124 ] || break
  done
}
# What a login shell with this home has, a line for each variable.
login_environment() { env -i HOME="$1" USER="$USER" PATH="$PATH" timeout 30 bash -lc env </dev/null 2>/dev/null | LC_ALL=C sort; }
# A user's settings of these would change what is measured.
measured='^(SLURM|SBATCH|SRUN|NCCL|FI|GLOO|MASTER|SINGULARITY|APPTAINER|SINGULARITYENV|APPTAINERENV|MPICH|PMI|OMP|LD)_'
measured="$measured|^(PYTHON|LUMISITE)|^($gpu_prefixes)"
# Lines NAME=VALUE of what the user's own login files set and this job leaves out.
left_out() {
  LC_ALL=C comm -13 <(login_environment /) <(login_environment "$HOME") | grep -E "$measured" >"$job/left-out"
}
# Whether a node takes no steps any more, and what srun says of it. Where one dies, the step's ranks on the others fail
# first, and Slurm itself finds out only after SlurmdTimeout.
node_away() { each_node true 2>&1 >/dev/null | grep -E "$away"; }
# judged FOLDER: wait a little for what is made of these steps. Where that shows that a later one cannot work, the folder
# of that one has a file `skip`.
judged() {
  for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do
    [ ! -e "$job/$1/judged" ] || return 0
    sleep 0.25
  done
}
# end_if_skipped FOLDER...: where none of these steps can run, as this very node is bad, nothing that they need is loaded.
end_if_skipped() {
  for name; do
    [ -e "$job/$name/skip" ] || return 0
  done
  for name; do
    mark "$job/$name/exit" "skipped $(date +%s.%N)"
  done
  finish 0
}
# step FOLDER LIMIT_S COMMAND...: what Slurm lost says nothing of the system. It is run again, and at last ends the job.
step() {
  name=$1 limit=$2 folder=$job/$1
  shift 2
  [ ! -e "$folder/exit" ] || return 0
  if [ -e "$folder/skip" ]; then
    mark "$folder/exit" "skipped $(date +%s.%N)"
    return 0
  fi
  for left in 10 20 30 30 no; do
    rm -rf "$folder/records"
    mkdir -p "$folder/records"
    date +%s.%N >"$folder/began"
    timeout --kill-after=10 "$limit" "$@" >"$folder/stdout" 2>"$folder/stderr" </dev/null
    code=$?
    [ "$code" != 0 ] || break
    # Slurm that has just come back may keep srun waiting until its time is over, without a word.
    if ! grep -Eq "$lost" "$folder/stderr" && ! node_away >>"$folder/stderr"; then
      [ "$left" != 10 ] && [ ! "$(ls "$folder/records")" ] || break
    fi
    [ "$left" != no ] || finish "lost:$name"
    sleep "$left"
  done
  [ "$code" = 0 ] || failed=yes
  mark "$folder/exit" "$code $(date +%s.%N)"
}
# judged_if_failed FOLDER: wait for the judge only where one of these steps has failed.
judged_if_failed() {
  [ ! "$failed" ] || judged "$1"
  failed=
}
failed=
