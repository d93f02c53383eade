"""What sbatch and srun are asked for, by their options."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from lumisite.lint.script import ShellCommand
from lumisite.site.model import Site
from lumisite.site.nodes import NodeKind

#: Options that are flags: the word after any other one is its value (srun(1), sbatch(1) of Slurm 24.05).
_FLAGS = frozenset(
    re.findall(
        r"\S+",
        """
        contiguous disable-status exact exclusive hold ignore-pbs immediate interactive label multi-prog no-kill
        no-requeue overcommit overlap oversubscribe parsable preserve-env propagate pty quiet quit-on-interrupt
        requeue spread-job test-only unbuffered use-min-nodes verbose wait-all-nodes whole
        """,
    )
)
#: Options of sbatch and srun, as they are written out; plugins of a site may add others.
LONG_OPTIONS = _FLAGS | frozenset(
    re.findall(
        r"[^;\s]+",
        """
        account;acctg-freq;array;batch;bb;bbf;bcast;begin;chdir;cluster-constraint;clusters;comment;
        compress;constraint;container;container-id;core-spec;cores-per-socket;cpu-bind;cpu-freq;
        cpus-per-gpu;cpus-per-task;deadline;delay-boot;dependency;distribution;environment;error;
        exclude;export;export-file;extra;extra-node-info;get-user-env;gid;gpu-bind;gpu-freq;gpus;
        gpus-per-node;gpus-per-socket;gpus-per-task;gres;gres-flags;help;het-group;hint;input;job-name;
        jobid;kill-on-bad-exit;kill-on-invalid-dep;licenses;mail-type;mail-user;mcs-label;mem;mem-bind;
        mem-per-cpu;mem-per-gpu;mincpus;mpi;network;nice;nodefile;nodelist;nodes;ntasks;
        ntasks-per-core;ntasks-per-gpu;ntasks-per-node;ntasks-per-socket;oom-kill-step;open-mode;output;
        partition;prefer;priority;profile;qos;reboot;relative;reservation;resv-ports;segment;signal;
        slurmd-debug;sockets-per-node;stepmgr;switches;task-epilog;task-prolog;tasks-per-node;
        thread-spec;threads;threads-per-core;time;time-min;tmp;tres-bind;tres-per-task;uid;usage;
        version;wait;wckey;wrap;x11
        """,
    )
)
_SHORT = dict(
    re.findall(
        r"(\w)=(\S+)",
        """
        A=account B=extra-node-info C=constraint D=chdir G=gpus J=job-name N=nodes S=core-spec a=array
        c=cpus-per-task d=dependency e=error i=input m=distribution n=ntasks o=output p=partition q=qos r=relative
        t=time w=nodelist x=exclude
        """,
    )
)
_OTHER_NAMES = {"tasks-per-node": "ntasks-per-node", "cpu_bind": "cpu-bind"}


class Option(NamedTuple):
    """An option that Slurm gets; `value` is empty for a flag."""

    name: str
    value: str
    line: int


Options = Mapping[str, Option]


def read_options(words: Iterable[tuple[str, int]], *, stop: bool) -> dict[str, Option]:
    """Read options, given as words with their lines, up to the first other word (`stop`), where the program begins."""
    return {option.name: option for option in read_option_list(words, stop=stop)}


def read_option_list(words: Iterable[tuple[str, int]], *, stop: bool = False) -> list[Option]:
    """Read options as they are given, in their order; of one that is given twice the last one counts."""
    found: list[Option] = []
    rest = list(words)[::-1]
    while rest:
        word, line = rest.pop()
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            if not equals and name not in _FLAGS and rest and not rest[-1][0].startswith("-"):
                value = rest.pop()[0]
        elif re.match(r"-[A-Za-z]", word):
            name, value = _SHORT.get(word[1], word[1]), word[2:].removeprefix("=")
            if not value and word[1] in _SHORT and rest:
                value = rest.pop()[0]
        elif stop:
            break
        else:
            continue
        name = _OTHER_NAMES.get(name, name)
        found.append(Option(name, value, line))
    return found


class SrunStep(NamedTuple):
    """One srun: its own `options`, and `merged` those of `#SBATCH` too, where it has none of that name.

    `command` is the srun; none stands for the batch script, which runs as one task.
    """

    command: ShellCommand | None
    options: Options
    merged: Options

    def number(self, name: str) -> int | None:
        """Return a number that an option sets outright."""
        option = self.merged.get(name)
        return int(option.value) if option and re.fullmatch(r"\d{1,6}", option.value) else None

    @property
    def nodes(self) -> int | None:
        """How many nodes it has at least; None where the script does not say it in numbers, and for `1-4`."""
        option = self.merged.get("nodes")
        tasks, each = self.number("ntasks"), self.number("ntasks-per-node")
        if option is None:
            return -(-tasks // each) if tasks and each else None
        found = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", option.value)
        if found is None or (int(found[1]) == 1 and found[2] not in (None, "1")):
            return None
        return int(found[1]) if tasks is None else min(int(found[1]), tasks)  # Slurm starts no more nodes than tasks

    @property
    def tasks_per_node(self) -> int | None:
        """How many tasks a node gets; None where the script does not say it in numbers."""
        if "ntasks-per-node" in self.merged and ("ntasks" not in self.options or "ntasks-per-node" in self.options):
            return self.number("ntasks-per-node")
        tasks, nodes = self.number("ntasks"), self.number("nodes")
        if "ntasks" not in self.merged:
            return 1
        if tasks is None or ("nodes" in self.merged and not nodes):
            return None
        if nodes is None:
            return tasks if tasks <= 8 else None  # Slurm may spread them
        return -(-tasks // nodes)

    @property
    def gpus_per_node(self) -> int | None:
        """How many GPUs a node gives; None where the script does not say it in numbers."""
        for name, pattern in (("gpus-per-node", r"(?:[\w-]+:)?(\d{1,6})"), ("gres", r"gpu:(?:[\w-]+:)?(\d{1,6})")):
            option = self.merged.get(name)
            if option and (found := re.fullmatch(pattern, option.value)):
                return int(found[1])
        gpus, nodes = self.number("gpus"), self.number("nodes")
        return -(-gpus // nodes) if gpus and nodes else gpus

    @property
    def cores_per_node(self) -> tuple[Option | None, int]:
        """How many cores of a node it asks for, and the option that says so."""
        tasks, each = self.tasks_per_node, self.number("cpus-per-task") or 1
        gpus, by_gpu = self.gpus_per_node, self.number("cpus-per-gpu")
        if gpus and by_gpu:
            return self.merged["cpus-per-gpu"], gpus * by_gpu
        option = self.merged.get("cpus-per-task") or self.merged.get("ntasks-per-node") or self.merged.get("ntasks")
        return (option, tasks * each) if tasks else (None, 0)

    @property
    def requests_gpus(self) -> bool:
        """Whether any option is about GPUs."""
        gres = self.merged.get("gres")
        return any(name.startswith("gpu") for name in self.merged) or bool(gres and "gpu" in gres.value)

    def partitions(self, site: Site) -> tuple[str, ...]:
        """Return the partitions that are named, else those that its constraint and QoS lead to, as the site says."""
        option = self.merged.get("partition")
        names = option.value.split(",") if option else []
        if named := [name for name in names if re.fullmatch(r"[\w.-]+", name) and name.lower() != "partition"]:
            return tuple(named)
        keys = [key for key in ("constraint", "qos") if key in self.merged]
        requested = {key: set(re.split("[&|,]", self.merged[key].value)) for key in keys}
        found = []
        for name, partition in site.partitions.items():
            needed: dict[str, set[str]] = {"qos": set(partition.qos)}
            if partition.constraint:
                needed["constraint"] = {partition.constraint}
            fits = [values & requested.get(key, set()) for key, values in needed.items() if values]
            if fits and all(fits):
                found.append(name)
        return tuple(found)

    def node_kinds(self, site: Site) -> list[NodeKind]:
        """Return the node kinds that it may run on: where nothing tells, all with GPUs if it asks for some."""
        if names := self.partitions(site):
            return list(site.kinds_of(*names).values()) if site.partitions.keys() >= set(names) else []
        return [kind for kind in site.node_kinds.values() if kind.gpus] if self.requests_gpus else []


def read_count(text: str) -> int | None:
    """Return a number of nodes, tasks or threads; none for what is no number, or one that nothing has."""
    return int(text) if re.fullmatch(r"\d{1,6}", text) else None


def usable_cores(kind: NodeKind) -> int:
    """Return the number of cores of a node that jobs can get."""
    return sum(len(set(group.cores).difference(kind.reserved or ())) for group in kind.l3)
