"""What a site description says of nodes that are built alike (cores, GPUs, adapters), and of Slurm's partitions.

As in `model`, annotations are real types, and the classes go without `__eq__` and `__repr__`.
"""

from dataclasses import dataclass
from typing import Literal

from lumisite.site.decode import key
from lumisite.site.entries import Known, Stated
from lumisite.site.scalars import CpuList, Line, Name


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class CacheGroup:
    """Cores that share an L3 cache."""

    cores: CpuList = key("First hardware thread of each core, in kernel numbers: `0-7`.")
    siblings: CpuList | None = key("Second hardware threads, in the same order: `64-71`.", default=None)
    numa: int = key("The NUMA domain that holds it.")
    package: int | None = key("The package (socket) that holds it, where there are several.", default=None)
    cache: int | None = key(
        "Where one L3 cache serves several NUMA domains: a number of it, the same in the groups of each domain.",
        default=None,
    )


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class DescribedGpu:
    """A GPU as programs see it, which may be a part of a card."""

    l3: int | None = key("Index of the nearest entry of `l3`, if known.", default=None)
    numa: int = key("The nearest NUMA domain.")
    adapter: Name | None = key("Its nearest adapter of `fabric`.", default=None)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Nic:
    """A network adapter."""

    interface: Name = key("Name of the interface: `ib0`.")
    numa: int = key("The nearest NUMA domain.")
    confirmed: bool = key("`no` when no source confirms the place.", default=True)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class NodeKind(Known):
    """Nodes that are built alike."""

    memory_mib: int = key("Memory that jobs can be given, in MiB.")
    reserved: CpuList | None = key("Kernel CPU numbers that jobs never get: `0,8,16`.", default=None)
    cpu: Literal["core", "thread"] = key(
        "What Slurm counts as a CPU of `--cpus-per-task`: a core, or each of its hardware threads.", default="core"
    )
    l3: tuple[CacheGroup, ...] = key("The L3 groups, in the order of their index.")
    gpus: tuple[DescribedGpu, ...] = key("The GPUs, in the order in which programs count them.", default=())
    nics: tuple[Nic, ...] = key("The network adapters.", default=())
    adapters: tuple[Name, ...] | None = key(
        "Its adapters of the fabric, where they are not those of `fabric.adapters`.", default=None
    )


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Partition(Stated):
    """A Slurm partition."""

    node_kind: str = key("The node kind of its nodes.", names="node_kinds")
    whole_nodes: bool = key("Whether a job always gets whole nodes.")
    max_nodes: int | None = key("Most nodes for one job.", default=None)
    max_time: Line | None = key("Longest time for one job, as sbatch takes it: `2-00:00:00`.", default=None)
    memory_mib: int | None = key("Memory of a node for jobs, in MiB, if less than its node kind has.", default=None)
    constraint: Name | None = key("What users ask for with `--constraint` to get its nodes.", default=None)
    qos: tuple[Name, ...] = key(
        "What users ask for with `--qos` to get its nodes, any one of these: jobs of `validate` ask for the first.",
        default=(),
    )
