"""An environment of the container wrapper (Tykky) in miniature: what `conda-containerize` leaves, with the twin's image.

Kept of the real one: a script for each program in `bin`, which reads `common.sh` beside it and executes the program
inside `container.sif`, by the runtime's absolute path; host directories bound on top of the user's SINGULARITY_BIND and
CW_EXTRA_BIND_MOUNTS; the user's LD_LIBRARY_PATH passed on. Left out: the squashfs file of the environment, since the
twin's image has torch itself; and so the host's /usr and /etc, which would hide the image's, are not bound.
"""

from __future__ import annotations

from pathlib import Path

COMMON = """\
# Every program of the environment reads this.
_dirs=(/scratch /project /projappl /flash /appl /users /tmp /run)
for _dir in "${_dirs[@]}"; do
  if [ -d "$_dir" ]; then SINGULARITY_BIND=${SINGULARITY_BIND:+$SINGULARITY_BIND,}$_dir; fi
done
SINGULARITY_BIND=$SINGULARITY_BIND${CW_EXTRA_BIND_MOUNTS:+,$CW_EXTRA_BIND_MOUNTS}
export SINGULARITY_BIND
export SINGULARITYENV_LD_LIBRARY_PATH=${SINGULARITYENV_LD_LIBRARY_PATH:+$SINGULARITYENV_LD_LIBRARY_PATH:}$LD_LIBRARY_PATH
if [ -f "$_own/../_extra_envs.sh" ]; then . "$_own/../_extra_envs.sh"; fi
"""
PROGRAM = """\
#!/bin/bash
_own=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$_own/../common.sh"
if [ -n "$SINGULARITY_NAME" ]; then exec /usr/bin/PROGRAM "$@"; fi
exec /usr/bin/singularity --silent exec "$_own/../container.sif" /usr/bin/PROGRAM "$@"
"""


def write_environment(folder: Path, image: str, *, extra: str = "") -> None:
    """Write an environment; `image` is where nodes see its container, `extra` lines of sh for all of its programs."""
    (folder / "bin").mkdir(parents=True)
    (folder / "common.sh").write_text(COMMON)
    (folder / "container.sif").symlink_to(image)
    if extra:
        (folder / "_extra_envs.sh").write_text(extra)
    for name in ("python", "python3", "torchrun"):
        script = folder / "bin" / name
        script.write_text(PROGRAM.replace("PROGRAM", "torchrun" if name == "torchrun" else "python3"))
        script.chmod(0o755)
