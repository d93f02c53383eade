"""Write the node kinds: cores by L3, GPUs and adapters of the nodes that answered; of others what Slurm says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from lumisite.errors import LumisiteError
from lumisite.init.node import Fabric, Node, adapter_near
from lumisite.init.slurm import Cluster, Kind, SlurmNode
from lumisite.machine.live import read_topology
from lumisite.machine.topology import Core
from lumisite.site.cpus import format_cpu_list, parse_number_list
from lumisite.text import counted, flow, yaml_key


def kind_lines(
    cluster: Cluster, nodes: Mapping[str, Node], fabric: Fabric, source: Callable[[Node | None], str]
) -> Iterator[str]:
    """Give `node_kinds`: those of Slurm, and nodes that Slurm does not know."""
    kinds = [*cluster.kinds, *(Kind(name, ()) for name in nodes if name not in {kind.name for kind in cluster.kinds})]
    yield "node_kinds:" if kinds else "node_kinds: {}"
    for kind in kinds:
        node, slurm = nodes.get(kind.name), min(kind.nodes, key=lambda one: one.memory_mib, default=None)
        yield f"  {yaml_key(kind.name)}:"
        memory = slurm.memory_mib if slurm else _memory_mib(node)
        if not memory:
            yield "    # guessed: nobody told the memory (`free -m` on a node)"
        yield f"    memory_mib: {memory or 1024}"
        groups, cores = _groups(node) if node else ([], ())
        if not groups:
            yield "    # guessed: no node answered, so the numbers of cores are the usual ones (`lscpu -e` on a node)"
            groups, cores = _usual(slurm)
        yield from _reserved(slurm, cores)
        yield "    l3:"
        yield from (f"      - {flow(group)}" for group in groups)
        yield from _gpus(node, slurm, groups, fabric)
        if node and (nics := _nics(node, fabric, groups)):
            yield f"    nics: {flow(nics)}"
        yield f"    source: {source(node)}"


def _memory_mib(node: Node | None) -> int:
    words = (node.told.lines("/proc/meminfo") or [""])[0].split() if node else []
    return int(words[1]) // 1024 if len(words) == 3 and words[0] == "MemTotal:" and words[1].isdecimal() else 0


def _groups(node: Node) -> tuple[list[dict[str, object]], tuple[Core, ...]]:
    """Give the L3 groups (NUMA domains where there is no L3), and the cores in Slurm's order."""
    try:
        cores = read_topology(node.told).cores if node.told.files else ()
    except LumisiteError:
        cores = ()
    if not cores:
        return [_of_facts(group.cpus, group.numa, node.facts.threads_per_core or 1) for group in node.facts.cpus], ()
    by_group: dict[tuple[int | None, int | None], list[Core]] = {}
    for core in cores:
        by_group.setdefault((core.l3, core.numa), []).append(core)
    groups = []
    for mine in by_group.values():
        threads = min(len(core.pu_os) for core in mine)
        firsts, seconds = ([core.pu_os[at] for core in mine if threads > at] for at in (0, 1))
        groups.append(_group(firsts, seconds, mine[0].numa, mine[0].package))
    return groups, cores


def _group(firsts: list[int], seconds: list[int], numa: int | None, package: int | None) -> dict[str, object]:
    found: dict[str, object] = {"cores": _cpus(firsts)}
    found |= {"siblings": _cpus(seconds)} if seconds else {}
    found["numa"] = numa or 0
    return found if package is None else found | {"package": package}


def _cpus(numbers: list[int]) -> str:
    return format_cpu_list(numbers) if numbers == sorted(numbers) else ",".join(map(str, numbers))


def _of_facts(cpus: str, numa: int | None, threads: int) -> dict[str, object]:
    """Split CPUs of a facts file into first and second threads: the kernel numbers all first threads first."""
    numbers = list(parse_number_list(cpus))
    half = len(numbers) // threads
    return _group(numbers[:half], numbers[half : 2 * half] if threads > 1 else [], numa, None)


def _usual(slurm: SlurmNode | None) -> tuple[list[dict[str, object]], tuple[Core, ...]]:
    """Give one group for each socket, as Linux usually numbers: all first threads before all second ones."""
    sockets, cores = (max(1, slurm.number(key) if slurm else 1) for key in ("Sockets", "CoresPerSocket"))
    threads = slurm is not None and slurm.number("ThreadsPerCore") > 1
    groups = []
    for socket in range(sockets):
        mine = list(range(socket * cores, (socket + 1) * cores))
        seconds = [number + sockets * cores for number in mine] if threads else []
        groups.append(_group(mine, seconds, socket, socket if sockets > 1 else None))
    return groups, ()


def _reserved(slurm: SlurmNode | None, cores: tuple[Core, ...]) -> Iterator[str]:
    """Give the reserved CPUs. Slurm counts them through sockets, cores and threads (slurm.conf(5), CpuSpecList)."""
    text = slurm.said.get("CPUSpecList", "") if slurm else ""
    try:
        counted = parse_number_list(text)
    except LumisiteError:
        counted = ()
    threads = max(1, slurm.number("ThreadsPerCore") if slurm else 1)
    ordered = sorted(cores, key=lambda core: (core.package or 0, core.core_logical))
    places = [divmod(number, threads) for number in counted]
    if places and all(core < len(ordered) and thread < len(ordered[core].pu_os) for core, thread in places):
        reserved = {ordered[core].pu_os[thread] for core, thread in places}
        tell = "`srun --exclusive grep Cpus_allowed_list /proc/self/status` tells what is left"
        yield f"    # guessed: Slurm's CPUSpecList {text}, in the kernel's numbers ({tell})"
        yield f"    reserved: {format_cpu_list(reserved)}"
    elif slurm and slurm.number("CoreSpecCount"):
        count = slurm.number("CoreSpecCount")
        yield f"    # guessed: none of its cores is reserved, and Slurm says that {count} are (`scontrol show node`)"


def _gpus(node: Node | None, slurm: SlurmNode | None, groups: list[dict[str, object]], fabric: Fabric) -> Iterator[str]:
    count = slurm.gpus[1] if slurm else 0
    if node is None:
        if count:
            yield "    # guessed: where the GPUs are (`lstopo` on a node)"
            yield f"    gpus: {flow([{'numa': groups[at * len(groups) // count]['numa']} for at in range(count)])}"
        return
    if slurm and count != len(node.facts.gpus):
        gres = ascii(slurm.said.get("Gres", ""))
        yield f"    # Slurm says {counted(count, 'GPU')} (Gres={gres}), {node.name} shows {len(node.facts.gpus)}"
    known = [str(group["cores"]) for group in groups]
    rows = []
    for gpu in node.facts.gpus:
        row: dict[str, object] = {"numa": gpu.numa or 0}
        near = parse_number_list(gpu.cpus or "")
        l3 = [at for at, cores in enumerate(known) if near and set(parse_number_list(cores)) <= set(near)]
        row |= {"l3": l3[0]} if len(l3) == 1 else {}
        adapter = adapter_near(node, gpu.bus, fabric)
        rows.append(row | ({"adapter": adapter} if adapter else {}))
    yield from [f"    gpus: {flow(rows)}"] if rows else []


def _nics(node: Node, fabric: Fabric, groups: list[dict[str, object]]) -> list[dict[str, object]]:
    domains = {group["numa"] for group in groups}
    places = {name: node.facts.interfaces[name].numa for name in fabric.interfaces if name in node.facts.interfaces}
    return [{"interface": name, "numa": numa} for name, numa in places.items() if numa in domains]
