"""Slurm's options of sbatch and srun, and how a line with them is read.

Source: the tables of `slurm_cli_opt_t` in src/common/slurm_opt.c of Slurm 22.05.8, 24.05.8 and 26.05.3, all that any of
these has. Plugins of a site may add options.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

Argument = Literal["value", "optional", "none"]
Program = Literal["sbatch", "srun"]

_BOTH: tuple[Program, ...] = ("sbatch", "srun")
_TABLE: tuple[tuple[tuple[Program, ...], Argument, str], ...] = (
    (
        _BOTH,
        "value",
        """account acctg-freq autocomplete bb bbf begin chdir cluster cluster-constraint clusters comment constraint
        container container-id container-type context core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task
        deadline delay-boot dependency distribution error exclude export extra extra-node-info gpu-bind gpu-freq gpus
        gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint input job-name licenses mail-type mail-user
        mcs-label mem mem-bind mem-per-cpu mem-per-gpu mem-update mincpus network nodefile nodelist nodes ntasks
        ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket ntasks-per-tres open-mode output partition
        power prefer priority profile qos reservation resources segment signal sockets-per-node switches
        tasks-per-node thread-spec threads-per-core time time-min tmp tres-bind tres-per-task wckey""",
    ),
    (
        _BOTH,
        "none",
        """consolidate-segments contiguous help hold overcommit oversubscribe parsable quiet reboot spread-job
        spread-segments stepmgr test-only usage use-min-nodes verbose version""",
    ),
    (_BOTH, "optional", "exclusive nice no-kill oom-kill-step propagate resv-ports"),
    (("sbatch",), "value", "array batch export-file gid kill-on-invalid-dep uid wait-all-nodes wrap"),
    (("sbatch",), "none", "external get-user-env ignore-pbs no-requeue umask"),
    (("sbatch",), "optional", "requeue"),
    (
        ("srun",),
        "value",
        """accel-bind bcast-exclude cpu-bind cpu_bind epilog het-group ignore-signals jobid mpi msg-timeout pack-group
        prolog relative slurmd-debug task-epilog task-prolog threads treewidth""",
    ),
    (
        ("srun",),
        "none",
        """async debugger-test disable-status exact interactive label multi-prog no-allocate preserve-env
        quit-on-interrupt unbuffered wait-for-children whole""",
    ),
    (
        ("srun",),
        "optional",
        "bcast compress external-launcher immediate kill-on-bad-exit overlap pty send-libs x11",
    ),
    # `--wait` is a flag of sbatch and a number of seconds of srun.
    (("sbatch",), "none", "wait"),
    (("srun",), "value", "wait"),
)
#: What sbatch and srun know, each with whether a value follows.
OPTIONS: Mapping[Program, Mapping[str, Argument]] = {
    program: {name: argument for programs, argument, names in _TABLE if program in programs for name in names.split()}
    for program in _BOTH
}
_LETTERS = dict(
    re.findall(
        r"(\w)=(\S+)",
        """A=account B=extra-node-info C=constraint D=chdir E=preserve-env F=nodefile G=gpus H=hold I=immediate
        J=job-name K=kill-on-bad-exit L=licenses M=clusters N=nodes O=overcommit Q=quiet S=core-spec T=threads V=version
        W=wait X=disable-status Z=no-allocate a=array b=begin c=cpus-per-task d=dependency e=error h=help i=input
        k=no-kill
        l=label m=distribution n=ntasks o=output p=partition q=qos r=relative s=oversubscribe t=time u=unbuffered
        v=verbose w=nodelist x=exclude""",
    )
)
_OTHER_NAMES = {"tasks-per-node": "ntasks-per-node", "cpu_bind": "cpu-bind", "pack-group": "het-group"}

#: Options of which Slurm takes one at most on a line (the same file, "mutually exclusive").
EXCLUSIVE = (
    ("mem", "mem-per-cpu", "mem-per-gpu"),
    ("cpus-per-task", "cpus-per-gpu"),
    ("ntasks-per-node", "ntasks-per-gpu"),
    ("gpus-per-task", "ntasks-per-gpu"),
    ("exclusive", "oversubscribe"),
)
#: Options whose values are put together where they are given again.
ADDING = ("mail-type", "gres-flags")


class Option(NamedTuple):
    """An option as Slurm gets it: its name in full, or as it stands where Slurm has no such option."""

    name: str
    value: str
    line: int


def read_options(words: Iterable[tuple[str, int]], program: Program, *, stop: bool) -> list[Option]:
    """Read the options among words, each with its line, in their order.

    With `stop` the first word that is neither an option nor its value ends them: there the program begins.
    """
    found: list[Option] = []
    rest = list(words)[::-1]
    while rest:
        word, line = rest.pop()
        if word == "--":
            break
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            name = _in_full(name, program)
            takes = OPTIONS[program].get(name, "unknown")
            if not equals and rest and (takes == "value" or (takes == "unknown" and rest[-1][0][:1] != "-")):
                value = rest.pop()[0]
            found.append(Option(_OTHER_NAMES.get(name, name), value, line))
        elif re.match(r"-[A-Za-z]", word):
            _read_letters(word[1:], line, rest, program, found)
        elif stop:
            break
    return found


def _read_letters(letters: str, line: int, rest: list[tuple[str, int]], program: Program, found: list[Option]) -> None:
    """Read one-letter options that stand together; what follows one with a value is its value."""
    while letters:
        name = _LETTERS.get(letters[0], letters[0])
        argument = OPTIONS[program].get(name, "none")
        value, letters = ("", letters[1:]) if argument == "none" else (letters[1:].removeprefix("="), "")
        if argument == "value" and not value and rest:
            value = rest.pop()[0]
        found.append(Option(name, value, line))


def _in_full(name: str, program: Program) -> str:
    """Return the option that a name is the beginning of, as getopt_long(3) takes it, if there is only one."""
    begun = [known for known in OPTIONS[program] if name and known.startswith(name)]
    return begun[0] if len(begun) == 1 and name not in OPTIONS[program] else name


def is_option(name: str, program: Program) -> bool:
    """Return whether sbatch or srun take an option, written out or begun."""
    return bool(name) and any(known.startswith(name) for known in OPTIONS[program])
