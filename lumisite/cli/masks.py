"""`masks`: the CPU mask of each task on a node."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from lumisite.cli.arguments import LIVE, add_json
from lumisite.cli.colours import print_lines, table
from lumisite.cli.output import format_json_rows, print_note
from lumisite.errors import ResolveError
from lumisite.findings.writers import message
from lumisite.machine.host import DiskTree
from lumisite.machine.hwloc import SIZE_LIMIT_BYTES, parse_hwloc
from lumisite.machine.live import read_allowed, read_topology
from lumisite.machine.masks import MaskRequest, TaskMask, cpu_masks
from lumisite.machine.topology import Topology, recognise, topology_of
from lumisite.site.cpus import CpusetError, parse_number_list
from lumisite.site.load import load_site, read_input
from lumisite.site.model import Site
from lumisite.text import suggestion


def add_masks(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `masks`."""
    parser.description = (
        "Print one CPU list and mask for each task of a node: cores nearest to the task's GPU, inside what was "
        "granted. A task without a sound answer gets none, with the reason on stderr and exit code 1."
    )
    either = parser.add_mutually_exclusive_group()
    parser.add_argument(
        "--site",
        metavar="NAME|FILE",
        default="",
        help=(
            "the site, whose reserved cores are left out: the name of an embedded one, or a YAML file (default: "
            "LUMISITE_SITE, else without --topology the embedded one that this machine is known as)"
        ),
    )
    either.add_argument(
        "--node",
        metavar="KIND",
        help="a node kind of the site, or 'live' for this node (default: the site's only kind with GPUs)",
    )
    either.add_argument("--topology", metavar="XML", help="a node as hwloc's `lstopo FILE.xml` wrote it")
    parser.add_argument("--tasks", metavar="N", type=int, help="tasks on the node (default: one for each GPU)")
    parser.add_argument("--threads", type=int, choices=(1, 2), default=1, help="hardware threads of each core")
    parser.add_argument("--cpus", metavar="LIST", help="granted CPUs in kernel numbers, such as 49-55 (default: all)")
    parser.add_argument(
        "--gpus", metavar="LIST", help="granted GPUs in task order, such as 0-3 or 4,5,2,3 (default: all)"
    )
    add_json(parser)


def run_masks(arguments: argparse.Namespace) -> int:
    """Print the masks, and the option of srun that sets them."""
    topology, allowed = _topology(arguments)
    request = _request(arguments, topology, allowed)
    answers = cpu_masks(topology, request)
    sound = all(answer.pu_os for answer in answers)
    if arguments.json:
        print(format_json_rows(map(_entry, answers)))
    else:
        print_lines(table([("task", "gpu", "cpus", "mask", "from"), *map(_row, answers)]))
        # The option of srun is printed only where it fits every node of a step.
        if sound and (request.cpus is None or request.cpus >= topology.pu_os - topology.reserved):
            print(f"\n--cpu-bind=mask_cpu:{','.join(answer.mask or '' for answer in answers)}")
        elif sound:
            why = "srun gives every node the same masks, a shared node has CPUs of its own"
            print_note(f"no --cpu-bind line: {why}; use taskset")
    for answer in answers:
        if not answer.pu_os:
            print_note(f"task {answer.task} gets no mask: {_reason(answer)}")
    return 0 if sound else 1


def _topology(arguments: argparse.Namespace) -> tuple[Topology, frozenset[int] | None]:
    """Return the topology that the options name, and of this node the PUs that this process may use."""
    if arguments.topology is not None:
        content = read_input(Path(arguments.topology), SIZE_LIMIT_BYTES, "expected: an hwloc XML file")
        return _with_site_facts(parse_hwloc(content, arguments.topology), arguments.site), None
    if arguments.node == LIVE:
        topology, allowed = read_topology(DiskTree("/")), read_allowed(DiskTree("/"))
        return _with_site_facts(topology, arguments.site), None if allowed >= topology.pu_os else allowed
    site = load_site(arguments.site).site
    return next(_kinds(site, _kind_name(arguments.node, site))), None


def _kind_name(requested: str | None, site: Site) -> str:
    if requested is not None:
        if requested not in site.node_kinds:
            hint = suggestion(requested, [*site.node_kinds, LIVE])
            raise ResolveError(f"--node: site {site.name} has no node kind {requested!r} ({hint})")
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


def _request(arguments: argparse.Namespace, topology: Topology, allowed: frozenset[int] | None) -> MaskRequest:
    cpus = None if arguments.cpus is None else frozenset(_numbers("--cpus", arguments.cpus))
    gpus = None if arguments.gpus is None else _numbers("--gpus", arguments.gpus)
    if allowed is not None:
        cpus = allowed if cpus is None else cpus & allowed
    tasks = arguments.tasks
    if tasks is None:
        tasks = max(1, len(topology.gpus if gpus is None else gpus))
    return MaskRequest(tasks, arguments.threads, cpus, gpus)


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
    text = ", ".join(map(message, answer.findings))
    return f"GPU{'s' if len(answer.gpus) > 1 else ''} {gpus}: {text}" if gpus else text
