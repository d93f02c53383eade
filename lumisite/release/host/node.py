"""A node that is checked: what is mounted there, which kinds it may be, and what users may reach.

Whether users may reach something is judged by its mode alone; what an access control list grants beyond that is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from lumisite.facts.slurm import SlurmConf, host_name, is_named, read_slurm_conf
from lumisite.findings.finding import Finding, Severity
from lumisite.machine.gpus import PCI_DRIVERS, PciGpu, gpus_of_node
from lumisite.machine.host import DiskTree, names_of_this_node, partition_of_this_job
from lumisite.machine.live_node import read_facts
from lumisite.machine.mounts import Mount, mounts_of
from lumisite.machine.tree import is_under, resolve
from lumisite.release.policy import PolicyLine
from lumisite.site.model import Site
from lumisite.site.node_recognition import Fingerprint, NodeFacts, fingerprint_of
from lumisite.site.scalars import TASK
from lumisite.vendors import drivers_of

READ, WRITE, ENTER = 0o4, 0o2, 0o1


@dataclass(frozen=True)
class HostFinding(Finding):
    """A finding on a node: what is wrong there, and only with this node unless its severity is FAULT.

    `at` is the real path at fault: of several findings with one cause, the first is reported. `needed_by` is what of
    the release or the site needs it.
    """

    at: str = ""
    needed_by: str = ""


@dataclass(frozen=True)
class Node:
    """A node, or a copy of its files, with what the site says of it.

    `platform` is what it should have been updated to (default: the current one), `policy` is that of the root.
    """

    site: Site
    host: DiskTree
    platform: str = ""
    policy: tuple[PolicyLine, ...] = ()

    @property
    def is_live(self) -> bool:
        """Whether it is the node that lumisite runs on."""
        return not self.host.name.strip("/")

    def exists(self, path: str) -> bool:
        """Return whether something is at a path, or where its links lead."""
        return resolve(self.host, path).entry is not None

    @cached_property
    def mounts(self) -> tuple[Mount, ...]:
        """Its mounts, none where they are not known."""
        return mounts_of(self.host)

    @cached_property
    def shared(self) -> tuple[str, ...]:
        """The paths of file systems that all nodes share."""
        return tuple(resolve(self.host, one.path).path for one in self.site.file_systems if one.kind == "shared")

    @cached_property
    def slurm_conf(self) -> SlurmConf | None:
        """Its slurm.conf, `None` where there is none."""
        return read_slurm_conf(self.host)

    # ---------------------------------------------------------------- which node it is

    @cached_property
    def facts(self) -> NodeFacts:
        """What its kernel says of CPUs and GPUs."""
        return read_facts(self.host, drivers_of(self.site))

    @property
    def drivers(self) -> tuple[str, ...]:
        """The drivers of the site's GPUs."""
        return tuple(drivers_of(self.site).get(self.site.gpu_vendor or "", ()))

    @cached_property
    def gpus(self) -> tuple[PciGpu, ...]:
        """Its GPUs that are on the bus or that a driver of the site's vendor has."""
        return tuple(gpu for gpu in gpus_of_node(self.host) if not gpu.driver or gpu.driver in self.drivers)

    @property
    def has_driver(self) -> bool:
        """Whether a driver of the site's GPUs is loaded."""
        return any(self.exists(f"{PCI_DRIVERS}/{name}") for name in self.drivers)

    @cached_property
    def gres(self) -> str | None:
        """What slurm.conf has of GPUs and the like on it; `None` where no line is for it."""
        entry = self.slurm_conf.node(host_name(self.host)) if self.slurm_conf else None
        return None if entry is None else entry.get("gres", "")

    @cached_property
    def is_compute(self) -> bool:
        """Whether it is a compute node: by a partition of slurm.conf, or by what the site says that they alone have."""
        nodes = [entry.get("nodes", "") for entry in self.slurm_conf.partitions] if self.slurm_conf else []
        in_partition = any(names.upper() == "ALL" or is_named(host_name(self.host), names) for names in nodes)
        if in_partition and self.gres is not None:
            return True
        return any(self.exists(bind.path) for bind in self.site.binds if bind.where == TASK)

    @cached_property
    def name(self) -> str:
        """What Slurm or the kernel calls a compute node; empty for another one, which Slurm could not drain."""
        slurm = names_of_this_node()[0] if self.is_live else ""
        return slurm or (host_name(self.host) if self.is_compute else "")

    @cached_property
    def kinds(self) -> dict[str, Fingerprint]:
        """The kinds that it may be, by the partition of this job or by its GPUs in Slurm; none of a login node.

        Where neither is known, a GPU or its driver decides, on a node with the CPUs of a kind with GPUs.
        """
        every = {name: fingerprint_of(self.site, name) for name in self.site.node_kinds}
        of_job = self.site.kinds_of(partition_of_this_job()) if self.is_live else {}
        if of_job:
            return {name: every[name] for name in of_job}
        if not self.is_compute or not (self.is_live or self.facts.present):
            return {}
        with_gpus = {name: kind for name, kind in every.items() if self.site.node_kinds[name].gpus}
        without = {name: kind for name, kind in every.items() if name not in with_gpus}
        if self.gres is not None:
            return (with_gpus if has_gpus(self.gres) else without) or every
        is_like_gpu_node = any(not list(kind.cpu_differences(self.facts)) for kind in with_gpus.values())
        return with_gpus if is_like_gpu_node and (self.gpus or self.has_driver) else every

    @cached_property
    def fitting(self) -> dict[str, Fingerprint]:
        """The kinds that it may be and whose CPUs it has."""
        return {name: kind for name, kind in self.kinds.items() if not list(kind.cpu_differences(self.facts))}

    # ---------------------------------------------------------------- what is wrong at a path

    def severity(self, path: str) -> Severity:
        """Return how bad something is at a path: on a shared file system it is wrong on all nodes."""
        return Severity.FAULT if any(is_under(path, folder) for folder in self.shared) else Severity.NODE

    def shut_out(self, path: str, real: str, rights: int, needed_by: str) -> HostFinding | None:
        """Return what keeps users from a path: the first folder on the way that they may not enter, or its own mode."""
        parts = real.split("/")
        folders = ["/".join(parts[:end]) for end in range(2, len(parts))]
        for at, needed in (*((folder, ENTER) for folder in folders), (real, rights)):
            mode = self.host.mode(at)
            if mode is None or mode & needed == needed:
                continue
            letters = "".join(letter for letter, bit in (("r", READ), ("w", WRITE), ("x", ENTER)) if needed & bit)
            text = f"{at} has mode {mode:04o}, which shuts users out; needed by {needed_by}"
            severity = Severity.NODE if at in self.shared else self.severity(at)
            advice = f"chmod o+{letters} {at}"
            return HostFinding("users-shut-out", severity, text, advice, path, at=at, needed_by=needed_by)
        return None


def has_gpus(gres: str) -> bool:
    """Return whether the `Gres` of a node in slurm.conf has GPUs.

    >>> has_gpus("gpu:mi250:8(S:0-3),nic:4"), has_gpus("gpu:0"), has_gpus("nic:4"), has_gpus("gpu")
    (True, False, False, True)
    """
    items = [item.partition("(")[0].split(":") for item in gres.lower().split(",")]
    return any(name == "gpu" and rest[-1:] != ["0"] for name, *rest in items)
