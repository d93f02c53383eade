"""The options of sbatch and srun in a job script."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

#: Options of sbatch and srun that take a value, which may be the next word (srun(1), sbatch(1) of Slurm 24.05).
VALUED = frozenset(
    re.split(
        r"\s+",
        """account array chdir comment constraint core-spec cores-per-socket cpu-bind cpu-freq cpus-per-gpu
        cpus-per-task dependency distribution error exclude export gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket
        gpus-per-task gres gres-flags het-group hint input job-name jobid kill-on-bad-exit mail-type mail-user mem
        mem-bind mem-per-cpu mem-per-gpu mpi network nodelist nodes ntasks ntasks-per-core ntasks-per-gpu
        ntasks-per-node open-mode output pack-group partition qos relative reservation signal sockets-per-node
        task-epilog task-prolog tasks-per-node threads-per-core time wait wckey wrap""",
    )
)
SHORT = {
    "A": "account",
    "B": "extra-node-info",
    "C": "constraint",
    "D": "chdir",
    "G": "gpus",
    "J": "job-name",
    "N": "nodes",
    "S": "core-spec",
    "a": "array",
    "c": "cpus-per-task",
    "d": "dependency",
    "e": "error",
    "i": "input",
    "m": "distribution",
    "n": "ntasks",
    "o": "output",
    "p": "partition",
    "q": "qos",
    "r": "relative",
    "t": "time",
    "w": "nodelist",
    "x": "exclude",
}


@dataclass(frozen=True)
class Option:
    """An option that Slurm gets; `value` is empty for a flag."""

    name: str
    value: str
    line: int


def read_options(words: Iterable[tuple[str, int]], *, stop: bool) -> dict[str, Option]:
    """Read options, given as words with their lines, up to the first other word (`stop`), where the program begins."""
    found: dict[str, Option] = {}
    rest = list(words)
    while rest:
        word, line = rest.pop(0)
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            if not equals and name in VALUED and rest and not rest[0][0].startswith("-"):
                value = rest.pop(0)[0]
        elif re.match(r"-[A-Za-z]", word):
            name, value = SHORT.get(word[1], word[1]), word[2:].removeprefix("=")
            if not value and word[1] in SHORT and rest:
                value = rest.pop(0)[0]
        elif stop:
            break
        else:
            continue
        name = {"tasks-per-node": "ntasks-per-node", "pack-group": "het-group"}.get(name, name)
        found[name] = Option(name, value, line)
    return found
