"""Judge who else uses a node: processes that use CPUs or GPUs and are not of the run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lumisite.findings.catalogue import make_finding
from lumisite.text import some
from lumisite.validate.probes.outcome import Located
from lumisite.validate.probes.probe import Record
from lumisite.validate.probes.records import count_in, texts

#: Users have greater numbers than the system's own (login.defs(5), UID_MIN), but for `nobody`.
FIRST_USER, NOBODY = 1000, 65534
#: What the system does itself counts from so many % of one CPU, after so many seconds of CPU time.
SYSTEM_PERCENT, SYSTEM_S = 80, 5
#: And from so much memory of GPUs, in bytes: a service that watches them has less.
SYSTEM_BYTES = 1 << 30
#: Processes that a finding names.
MOST_NAMED = 4


@dataclass(frozen=True)
class OtherProcess:
    """A process of a node: `amount` is in % of one CPU (`cpu`) or in bytes (`gpu`); `job` may be empty."""

    node: str
    kind: str
    amount: int
    pid: int
    seconds: int
    uid: int
    user: str
    job: str
    command: str

    @property
    def of_system(self) -> bool:
        """Whether it is no user's."""
        return self.uid < FIRST_USER or self.uid == NOBODY


def left_overs(records: Mapping[str, Record], *, whole_nodes: bool) -> Iterator[Located]:
    """Yield one finding for each user and command, on all nodes that have it.

    Where nodes are shared, what is of another job that runs there is not left over.
    """
    found = [process for node, record in records.items() for process in _processes(node, record)]
    running = {node: () if whole_nodes else texts(record, "running") for node, record in records.items()}
    alike: dict[str, set[str]] = defaultdict(set)
    for each in found:
        if each.of_system:
            alike[each.command].add(each.node)
    kept = [
        each
        for each in found
        if each.job not in running[each.node] and _counts(each, len(alike[each.command]), len(records))
    ]
    groups: dict[tuple[str, str], list[OtherProcess]] = defaultdict(list)
    for process in kept:
        groups[process.user, process.command].append(process)
    for (user, command), group in groups.items():
        named = list(dict.fromkeys(f"{each.node}: {each.pid}" for each in group))
        jobs = ", ".join(sorted({each.job for each in group} - {""}))
        cpu, gpu = (sum(each.amount for each in group if each.kind == kind) for kind in ("cpu", "gpu"))
        finding = make_finding(
            "process-left-over",
            command,
            user=user,
            cpu_percent=cpu or None,
            gpu_mib=gpu >> 20 if any(each.kind == "gpu" for each in group) else None,
            job=jobs or None,
            processes=some(named, MOST_NAMED, ", "),
        )
        yield from (Located(finding, node) for node in dict.fromkeys(each.node for each in group))


def _processes(node: str, record: Record) -> Iterator[OtherProcess]:
    for line in texts(record, "processes"):
        kind, *words = line.split(None, 7) or [""]
        counts = [count for each in words[:4] if (count := count_in(each)) is not None]
        if len(words) == 7 and len(counts) == 4:
            amount, pid, seconds, uid = counts
            user = words[3] if words[4] == "UNKNOWN" else words[4]
            yield OtherProcess(node, kind, amount, pid, seconds, uid, user, words[5].strip("-"), words[6])


def _counts(process: OtherProcess, alike: int, nodes: int) -> bool:
    """Return whether a process is left over. What most nodes' system does belongs to it, and one node says nothing.

    `alike` is the number of nodes whose system has one of that name.
    """
    if not process.of_system:
        return True
    if process.kind == "gpu":
        return process.amount >= SYSTEM_BYTES
    busy = process.amount >= SYSTEM_PERCENT and process.seconds >= SYSTEM_S
    return busy and 2 * alike <= nodes and nodes > 1
