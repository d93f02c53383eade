"""What Slurm says of a machine: `scontrol show config`, `partition` and `node`, as they print one line for each.

Sources: scontrol(1), slurm.conf(5) of Slurm 22.05 to 26.05.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding
from lumisite.site.scalars import is_file_name

#: Runs a command of Slurm and returns its output.
Run = Callable[[Sequence[str]], str]
#: A node in one of these states starts a job now, or soon.
_READY = ("IDLE", "MIXED")
#: How scontrol prints what is not set.
_NOTHING = ("(null)", "N/A", "")


@dataclass(frozen=True)
class SlurmNode:
    """A node as Slurm knows it; memory in MiB."""

    name: str
    keys: Mapping[str, str]

    def number(self, key: str) -> int:
        """Return a number that Slurm tells; 0 where it tells none."""
        text = self.keys.get(key, "")
        return int(text) if re.fullmatch(r"[0-9]{1,12}", text) else 0

    @property
    def gpus(self) -> tuple[str, int]:
        """The type and the number of its GPUs: `gpu:h100:4(S:0-1)`."""
        found = re.findall(r"(?:^|,)gpu(?::([\w.+-]+?))?:([0-9]{1,4})(?=[,(]|$)", self.keys.get("Gres", ""), re.ASCII)
        return (found[0][0], sum(int(count) for _, count in found)) if found else ("", 0)

    @property
    def memory_mib(self) -> int:
        """Memory that jobs can be given."""
        return max(0, self.number("RealMemory") - self.number("MemSpecLimit"))

    @property
    def ready(self) -> bool:
        """Whether it takes a job."""
        return re.fullmatch(rf"({'|'.join(_READY)})(\+PLANNED|\+CLOUD)*", self.keys.get("State", "")) is not None

    @property
    def build(self) -> tuple[object, ...]:
        """What is the same for nodes that are built alike; memory that differs by a few percent is."""
        shape = [self.number(key) for key in ("Sockets", "CoresPerSocket", "ThreadsPerCore")]
        return (*shape, *self.gpus, round(math.log(self.memory_mib or 1, 1.5)))


@dataclass(frozen=True)
class SlurmNodeKind:
    """Nodes that are built alike, by a name that says what sets them apart."""

    name: str
    nodes: tuple[SlurmNode, ...]


@dataclass(frozen=True)
class Cluster:
    """What Slurm says: its configuration, its partitions by name, and the kinds of its nodes."""

    config: Mapping[str, str]
    partitions: Mapping[str, Mapping[str, str]]
    kinds: tuple[SlurmNodeKind, ...]
    findings: tuple[Finding, ...] = ()


def read_cluster(run: Run, names: Sequence[str] = ()) -> Cluster:
    """Read from Slurm the partitions with these `names`, or all that users may submit to. Raises `ToolError`."""
    found = re.findall(r"^(\w+)\s+= (.*?)\s*$", run(["scontrol", "show", "config"]), re.MULTILINE | re.ASCII)
    config = {key: value for key, value in found if value not in _NOTHING}
    findings: list[Finding] = []
    partitions = {}
    for name, keys in _rows(run(["scontrol", "--oneliner", "show", "partition"]), "PartitionName", findings):
        if name in names or (not names and keys.get("RootOnly") != "YES" and keys.get("State", "UP") != "INACTIVE"):
            partitions[name] = keys
    nodes = []
    for name, keys in _rows(run(["scontrol", "--oneliner", "show", "node"]), "NodeName", findings):
        node = SlurmNode(name, keys)
        if node.number("CPUTot") and partitions.keys() & partitions_of(node):
            nodes.append(node)
    return Cluster(config, partitions, _kinds(nodes), tuple(findings))


def partitions_of(node: SlurmNode) -> set[str]:
    """Return the partitions that a node is in."""
    return set(node.keys.get("Partitions", "").split(","))


def _rows(text: str, first: str, findings: list[Finding]) -> list[tuple[str, dict[str, str]]]:
    """Read lines of `KEY=VALUE`; values may have spaces, and of a key that stands twice the first counts."""
    lines = text.split("\n")
    if lines[-1].strip():
        findings.append(make_finding("slurm-answer-cut", "scontrol", start=lines[-1][:40]))
    rows = []
    for line in lines[:-1]:
        keys = dict(reversed(re.findall(r"(?:^|(?<= ))([A-Za-z]\w*)=(.*?)(?=\s+[A-Za-z]\w*=|\s*$)", line, re.ASCII)))
        name = keys.get(first, "")
        if not line.startswith(f"{first}="):
            continue
        if is_name(name):
            rows.append((name, keys))
        else:
            findings.append(make_finding("slurm-name-unusable", name[:40], sort=first))
    return rows


def is_name(text: str) -> bool:
    """Return whether a text of the machine can be a name in the description."""
    return re.fullmatch(r"[\w.+@-]{1,100}", text, re.ASCII) is not None and is_file_name(text)


def _kinds(nodes: Sequence[SlurmNode]) -> tuple[SlurmNodeKind, ...]:
    """Group nodes, and name the groups by no more than what sets them apart."""
    groups: dict[tuple[object, ...], list[SlurmNode]] = {}
    for node in nodes:
        groups.setdefault(node.build, []).append(node)
    kinds = [SlurmNodeKind("", tuple(group)) for group in groups.values()]
    for step in range(4):
        names = [kind.name for kind in kinds]
        for at, kind in enumerate(kinds):
            if not step or names.count(kind.name) > 1:
                word = _words(kind.nodes[0], at)[step]
                kinds[at] = replace(kind, name="-".join(filter(None, (kind.name, word))))
    return tuple(kinds)


def _words(node: SlurmNode, number: int) -> tuple[str, ...]:
    """Return what may set a kind apart, the first first."""
    vendor, count = node.gpus
    cores = node.number("Sockets") * node.number("CoresPerSocket")
    memory = f"{round(node.memory_mib / 1024)}g"
    return vendor or ("gpu" if count else "cpu"), f"x{count}" if count else f"{cores}c", memory, str(number + 1)
