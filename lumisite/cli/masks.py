"""`masks`: the CPU mask of each task on a node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from lumisite.cli.commands import Command
from lumisite.cli.options import FILE_NAME, json_option, one_of, site_option
from lumisite.cli.output import print_json, print_lines, print_note, print_table
from lumisite.cli.site_choice import optional_site, required_site
from lumisite.errors import ResolveError
from lumisite.machine.host import DiskTree
from lumisite.machine.hwloc import SIZE_LIMIT_BYTES, parse_hwloc
from lumisite.machine.live_node import read_allowed, read_topology
from lumisite.machine.masks import MaskRequest, TaskMask, cpu_masks
from lumisite.machine.topology import Topology, recognise, topology_of
from lumisite.site.cpu_list import CpusetError, parse_number_list
from lumisite.site.decode import unknown_name
from lumisite.site.load import load_site, read_input
from lumisite.site.model import Site

#: Names this node instead of a node kind.
LIVE = "live"


@click.command(cls=Command)
@site_option()
@click.option("--node", metavar="KIND", help="A node kind, or `live` for this node (default: the one with GPUs).")
@click.option("--topology", metavar="XML", type=FILE_NAME, help="A node as hwloc's `lstopo FILE.xml` wrote it.")
@click.option("--tasks", metavar="N", type=int, help="Tasks on the node (default: one for each GPU).")
@click.option(
    "--threads", type=click.Choice(("1", "2")), default="1", help="Hardware threads of each core (default: 1)."
)
@click.option("--cpus", metavar="LIST", help="Granted CPUs in kernel numbers, such as 49-55 (default: all).")
@click.option("--gpus", metavar="LIST", help="Granted GPUs in task order, such as 0-3 or 4,5,2,3 (default: all).")
@json_option
def command(
    site: str,
    node: str | None,
    topology: str | None,
    tasks: int | None,
    threads: str,
    cpus: str | None,
    gpus: str | None,
    as_json: bool,
) -> int:
    """Print one CPU list and mask for each task of a node.

    These are cores nearest to the task's GPU, inside what was granted; the cores that the site reserves are left out.
    A task without a sound answer gets none, with the reason on stderr and exit code 1.
    """
    one_of(node=node, topology=topology)
    known, allowed = _topology(site, node, topology)
    request = _request(known, allowed, tasks, int(threads), cpus, gpus)
    answers = cpu_masks(known, request)
    sound = all(answer.pu_os for answer in answers)
    if as_json:
        print_json(list(map(_entry, answers)))
    else:
        print_table([("task", "gpu", "cpus", "mask", "from"), *map(_row, answers)])
        # The option of srun is printed only where it fits every node of a step.
        if sound and (request.cpus is None or request.cpus >= known.pu_os - known.reserved):
            print_lines(["", f"--cpu-bind=mask_cpu:{','.join(answer.mask or '' for answer in answers)}"])
        elif sound:
            print_note("no --cpu-bind line: srun gives every node the same masks, a shared node has CPUs of its own")
    for answer in answers:
        if not answer.pu_os:
            print_note(f"task {answer.task} gets no mask: {_reason(answer)}")
    return 0 if sound else 1


def _topology(name: str, node: str | None, file: str | None) -> tuple[Topology, frozenset[int] | None]:
    """Return the topology that the options name, and of this node the PUs that this process may use."""
    if file is not None:
        content = read_input(Path(file), SIZE_LIMIT_BYTES, "expected: an hwloc XML file")
        return _with_site_facts(parse_hwloc(content, file), optional_site(name)), None
    if node == LIVE:
        topology, allowed = read_topology(DiskTree("/")), read_allowed(DiskTree("/"))
        return _with_site_facts(topology, optional_site(name)), None if allowed >= topology.pu_os else allowed
    site = load_site(required_site(name)).site
    return next(_kinds(site, _kind_name(node, site))), None


def _kind_name(requested: str | None, site: Site) -> str:
    if requested is not None:
        if requested not in site.node_kinds:
            raise ResolveError(unknown_name("--node", requested, "node kind", site.name, [*site.node_kinds, LIVE]))
        return requested
    with_gpus = [name for name, kind in site.node_kinds.items() if kind.gpus]
    candidates = with_gpus or list(site.node_kinds)
    if len(candidates) != 1:
        names = ", ".join(candidates) or "none"
        raise ResolveError(f"--node: site {site.name} has not one node kind with GPUs, so name one (have {names})")
    return candidates[0]


def _kinds(site: Site, name: str) -> Iterator[Topology]:
    """Yield a node kind's topology for each platform that knows its bus ids, the current one first."""
    kind = site.node_kinds[name]
    for platform in sorted(site.platforms, key=lambda platform: platform != site.platform):
        bus_ids = site.platforms[platform].gpu_bus_ids.get(name, ())
        yield topology_of(f"node kind {name}, platform {platform}", kind, bus_ids)


def _with_site_facts(seen: Topology, name: str) -> Topology:
    """Return the node kind of the named site that this is, whose reserved cores are left out; without one, the node."""
    if not name:
        print_note(f"{seen.name}: no site is named, so no core is left out as reserved (--site NAME|FILE names it)")
        return seen
    site = load_site(name).site
    known = recognise(seen, (kind for name in site.node_kinds for kind in _kinds(site, name)))
    if known is not None:
        print_note(f"{known.name}: recognised by its cores and bus ids; the cores that the site reserves are left out")
        return known
    print_note(f"{seen.name} is no node kind of site {site.name}: which cores its site reserves is not known")
    return seen


def _request(
    topology: Topology,
    allowed: frozenset[int] | None,
    tasks: int | None,
    threads: int,
    cpus: str | None,
    gpus: str | None,
) -> MaskRequest:
    granted = None if cpus is None else frozenset(_numbers("--cpus", cpus))
    if allowed is not None:
        granted = allowed if granted is None else granted & allowed
    gpu_list = None if gpus is None else _numbers("--gpus", gpus)
    if tasks is None:
        tasks = max(1, len(topology.gpus if gpu_list is None else gpu_list))
    return MaskRequest(tasks, threads, granted, gpu_list)


def _numbers(option: str, text: str) -> tuple[int, ...]:
    try:
        return parse_number_list(text)
    except CpusetError as error:
        raise CpusetError(f"{option}: {error}") from None


def _entry(answer: TaskMask) -> dict[str, object]:
    """Return the JSON of a task; `gpu` is a number where the task has one GPU, else a list."""
    gpu = answer.gpus[0] if len(answer.gpus) == 1 else answer.gpus or None
    return {"task": answer.task, "gpu": gpu, "cpus": answer.cpus, "mask": answer.mask}


def _row(answer: TaskMask) -> tuple[str, ...]:
    gpus = ",".join(map(str, answer.gpus))
    return (str(answer.task), gpus or "-", answer.cpus or "-", answer.mask or "-", _reason(answer))


def _reason(answer: TaskMask) -> str:
    """Return where a task's cores are, or why it has none."""
    gpus = ",".join(map(str, answer.gpus))
    text = ", ".join(answer.why)
    return f"GPU{'s' if len(answer.gpus) > 1 else ''} {gpus}: {text}" if gpus else text
