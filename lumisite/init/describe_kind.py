"""A node kind as the description has it: of a node that answered, or as Slurm knows it."""

from __future__ import annotations

from collections.abc import Sequence

from lumisite.errors import LumisiteError
from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding
from lumisite.init.node import FoundFabric, Node, adapter_near
from lumisite.init.slurm import SlurmNode, SlurmNodeKind
from lumisite.machine.live import read_topology
from lumisite.machine.topology import Core
from lumisite.site.cpus import format_cpu_list, parse_number_list

#: An entry of `l3` or `gpus`.
Entry = dict[str, object]


def describe_kind(kind: SlurmNodeKind, node: Node | None, fabric: FoundFabric, of_kind: FoundFabric) -> Entry:
    """Return a kind's values by name; empty ones are not known. `of_kind` is the fabric as its node has it."""
    slurm = min(kind.nodes, key=lambda node: node.memory_mib, default=SlurmNode("", {}))
    groups, cores, doubts = _groups(node) if node else ([], (), ())
    count = slurm.gpus[1]
    found = {
        "name": kind.name,
        "node": node.name if node else slurm.name,
        "read_on_node": node is not None,
        "memory_mib": slurm.memory_mib or _memory_mib(node),
        "memory_of_slurm": bool(slurm.memory_mib),
        "answered": bool(groups),
        "doubts": doubts,
        "special": slurm.keys.get("CPUSpecList") or slurm.keys.get("CoreSpecCount", ""),
        "reserved": _reserved(slurm, cores),
        "l3": (groups := groups or _usual(slurm)),
        "gpu_finding": gpu_finding(kind, node) if node else None,
        "gpus": [{"numa": groups[at * len(groups) // count]["numa"]} for at in range(count)],
        "nics": [],
        "interfaces": of_kind.interfaces if node and of_kind.interfaces != fabric.interfaces else (),
    }
    if node:
        interfaces, domains = node.facts.interfaces, {group["numa"] for group in groups}
        places = ((name, interfaces[name].numa) for name in fabric.interfaces if name in interfaces)
        found["nics"] = [{"interface": name, "numa": numa} for name, numa in places if numa in domains]
        found["gpus"] = _gpus(node, groups, of_kind)
        found |= {"adapters": of_kind.adapters} if of_kind.adapters != fabric.adapters else {}
    return found


def gpu_finding(kind: SlurmNodeKind, node: Node) -> Finding | None:
    """Return what is open about the GPUs of a node that answered."""
    stated = min((known.gpus[1] for known in kind.nodes), default=len(node.facts.gpus))
    if node.facts.gpus and not node.gpus:
        return make_finding("gpus-unplaced", node.name)
    if stated != len(node.facts.gpus):
        return make_finding("gpus-differ", node.name, kind=kind.name, slurm=stated, seen=str(len(node.facts.gpus)))
    return None


def _memory_mib(node: Node | None) -> int:
    words = (node.answer.lines("/proc/meminfo") or [""])[0].split() if node else []
    return int(words[1]) // 1024 if len(words) == 3 and words[0] == "MemTotal:" and words[1].isdecimal() else 0


def _groups(node: Node) -> tuple[list[Entry], tuple[Core, ...], tuple[str, ...]]:
    """Return the L3 groups (NUMA domains where there is no L3), the cores (of facts: none), and what was guessed."""
    domains = {group.numa for group in node.facts.cpus}
    doubts = ["no-numa"] if None in domains else []
    try:
        cores = read_topology(node.answer).cores
    except LumisiteError:
        # The kernel numbers all first threads before all second ones.
        threads = node.facts.threads_per_core or 1
        split = ((parse_number_list(group.cpus), group.numa) for group in node.facts.cpus)
        halves = ((cpus, max(1, len(cpus) // threads), numa) for cpus, numa in split if cpus)
        if threads > 1:
            doubts.append("second-threads")
        return [_group(cpus[:at], cpus[at : 2 * at], numa, None) for cpus, at, numa in halves], (), tuple(doubts)
    together: dict[tuple[int | None, int | None], list[Core]] = {}
    for core in cores:
        together.setdefault((core.l3, core.numa), []).append(core)
    groups = []
    for mine in together.values():
        threads = min(len(core.pu_os) for core in mine)
        firsts, seconds = ([core.pu_os[at] for core in mine if threads > at] for at in (0, 1))
        group = _group(firsts, seconds, mine[0].numa, mine[0].package)
        shared = mine[0].l3 is not None and len([l3 for l3, _ in together if l3 == mine[0].l3]) > 1
        groups.append(group | ({"cache": mine[0].l3} if shared else {}))
    return groups, cores, tuple(doubts)


def _group(firsts: Sequence[int], seconds: Sequence[int], numa: int | None, package: int | None) -> Entry:
    rows = {"cores": firsts, "siblings": seconds}
    found: Entry = {
        key: format_cpu_list(cpus) if list(cpus) == sorted(cpus) else ",".join(map(str, cpus))
        for key, cpus in rows.items()
        if cpus
    }
    return found | {"numa": numa or 0} | ({} if package is None else {"package": package})


def _usual(slurm: SlurmNode) -> list[Entry]:
    """Return one group for each socket, as Linux usually numbers."""
    sockets, cores = (max(1, slurm.number(key)) for key in ("Sockets", "CoresPerSocket"))
    groups = []
    for socket in range(sockets):
        mine = range(socket * cores, (socket + 1) * cores)
        seconds = [number + sockets * cores for number in mine] if slurm.number("ThreadsPerCore") > 1 else []
        groups.append(_group(mine, seconds, socket, socket if sockets > 1 else None))
    return groups


def _reserved(slurm: SlurmNode, cores: tuple[Core, ...]) -> str:
    """Return the reserved CPUs. Slurm counts them through sockets, cores and threads (slurm.conf(5), CpuSpecList)."""
    ordered = [core.pu_os for core in sorted(cores, key=lambda core: (core.package or 0, core.core_logical))]
    threads = max(1, slurm.number("ThreadsPerCore"))
    try:
        places = [divmod(number, threads) for number in parse_number_list(slurm.keys.get("CPUSpecList", ""))]
        return format_cpu_list(ordered[core][thread] for core, thread in places)
    except (LumisiteError, IndexError):  # no list, or not one of these cores
        return ""


def _gpus(node: Node, groups: list[Entry], fabric: FoundFabric) -> list[Entry]:
    rows = []
    for gpu in node.gpus:
        near = set(parse_number_list(gpu.cpus or ""))
        l3 = [at for at, group in enumerate(groups) if near and near >= set(parse_number_list(str(group["cores"])))]
        row: Entry = {
            "numa": groups[0]["numa"] if gpu.numa is None else gpu.numa,
            "l3": l3[0] if len(l3) == 1 else None,
        }
        row["adapter"] = adapter_near(node, gpu.bus, fabric)
        rows.append({key: value for key, value in row.items() if value is not None})
    return rows
