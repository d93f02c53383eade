"""What the allocation and each srun of a script ask for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from lumisite.lint.script import ShellCommand
from lumisite.lint.slurm_options import Option
from lumisite.site.model import Site
from lumisite.site.nodes import NodeKind, Partition

_GPUS = re.compile(r"(?:gpu:)?(?:[A-Za-z][\w-]*:)?(\d{1,6})")


def read_count(text: str) -> int | None:
    """Return a number of nodes, tasks or threads; `None` for what is no number, or one that nothing has."""
    return int(text) if re.fullmatch(r"\d{1,6}", text) else None


@dataclass(frozen=True)
class SrunStep:
    """One srun, or the allocation (without a `command`), which runs the script itself as one task.

    `own` are its options in their order, `options` the last of each name, those of `#SBATCH` lines among them.
    """

    site: Site
    command: ShellCommand | None
    own: Sequence[Option]
    options: Mapping[str, Option]

    def value(self, name: str) -> str:
        """Return the value of an option; empty where it is not given."""
        return self.options[name].value if name in self.options else ""

    def number(self, name: str) -> int | None:
        """Return a number that an option gives in digits."""
        return read_count(self.value(name))

    def first(self, *names: str) -> Option | None:
        """Return the first of some options that is given."""
        return next((self.options[name] for name in names if name in self.options), None)

    def has_own(self, name: str) -> bool:
        """Return whether the step itself has an option."""
        return any(option.name == name for option in self.own)

    @property
    def nodes(self) -> int | None:
        """How many nodes it has at least; `None` where the script does not say it in digits, and for `1-4`."""
        tasks, each = self.number("ntasks"), self.number("ntasks-per-node")
        if "nodes" not in self.options:
            return -(-tasks // each) if tasks and each else None
        found = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", self.value("nodes"))
        if found is None or (int(found[1]) == 1 and found[2] not in (None, "1")):
            return None
        return int(found[1]) if tasks is None else min(int(found[1]), tasks)  # Slurm starts no more nodes than tasks

    @property
    def tasks_per_node(self) -> int | None:
        """How many tasks a node gets; `None` where the script does not say it in digits."""
        if "ntasks-per-node" in self.options and (not self.has_own("ntasks") or self.has_own("ntasks-per-node")):
            return self.number("ntasks-per-node")
        if "ntasks" not in self.options:
            return 1
        tasks, nodes = self.number("ntasks"), self.number("nodes")
        if tasks is None or ("nodes" in self.options and not nodes):
            return None
        if nodes is None:
            return tasks if tasks == 1 else None  # Slurm may spread them
        return -(-tasks // nodes)

    @property
    def gpus(self) -> tuple[Option, int] | None:
        """The option that says how many GPUs a node gives, and how many they are."""
        for name in ("gpus-per-node", "gres", "gpus", "gpus-per-task"):
            found = _GPUS.fullmatch(self.value(name))
            if found is None or (name == "gres" and not self.value(name).startswith("gpu:")):
                continue
            count = int(found[1])
            if name == "gpus":
                count = -(-count // (self.number("nodes") or 1))
            if name == "gpus-per-task":
                count *= self.tasks_per_node or 1
            return self.options[name], count
        return None

    @property
    def gpus_per_node(self) -> int | None:
        """How many GPUs a node gives; `None` where the script does not say it in digits."""
        return self.gpus[1] if self.gpus else None

    @property
    def cpus_per_node(self) -> tuple[Option | None, int]:
        """How many CPUs of a node it asks for, in Slurm's unit, and the option that says so."""
        if self.gpus_per_node and (by_gpu := self.number("cpus-per-gpu")):
            return self.options["cpus-per-gpu"], self.gpus_per_node * by_gpu
        option = self.first("cpus-per-task", "ntasks-per-node", "ntasks")
        tasks = self.tasks_per_node
        return (option, tasks * (self.number("cpus-per-task") or 1)) if tasks else (None, 0)

    @cached_property
    def partition_names(self) -> tuple[str, ...]:
        """The partitions that are named outright."""
        names = self.value("partition").split(",")
        return tuple(name for name in names if re.fullmatch(r"[\w.-]+", name) and name.lower() != "partition")

    @cached_property
    def partitions(self) -> tuple[Partition, ...]:
        """What the site says of these partitions; nothing where it does not know them all."""
        known = [self.site.partitions.get(name) for name in self.partition_names]
        return tuple(partition for partition in known if partition) if None not in known else ()

    @property
    def kinds(self) -> list[NodeKind]:
        """The node kinds that it may run on; none where no partition says so."""
        return list(self.site.kinds_of(*self.partition_names).values()) if self.partitions else []

    @property
    def shares_nodes(self) -> bool:
        """Whether other jobs may be on its nodes."""
        whole = all(partition.whole_nodes for partition in self.partitions)
        cpus = max((usable_cpus(kind, self) for kind in self.kinds), default=0)
        return bool(self.partitions) and not (whole or "exclusive" in self.options or 0 < cpus <= self.cpus_per_node[1])


def usable_cores(kind: NodeKind) -> int:
    """Return the number of cores of a node that jobs can get."""
    return sum(len(set(group.cores).difference(kind.reserved or ())) for group in kind.l3)


def usable_cpus(kind: NodeKind, step: SrunStep) -> int:
    """Return how many CPUs of a node jobs can get, in the unit in which Slurm counts them there."""
    hint, per_core = step.value("hint"), step.value("threads-per-core")
    threads = sum(len(set(group.siblings or ()).difference(kind.reserved or ())) for group in kind.l3)
    both = hint == "multithread" or per_core == "2"
    one = hint == "nomultithread" or per_core == "1"
    return usable_cores(kind) + (threads if both or (kind.cpu == "thread" and not one) else 0)
