"""The checks of what a node or a rank has. A new one is a function here and a row of CHECKS.

Each looks at one record: that of a `node` outside of containers, of a `rank` in the container, of the `first` rank of
each node, which records binds and libraries too.
`job.py` and `job_node.sh` beside this record what is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Literal, NamedTuple, TypeAlias

from lumisite.findings.finding import Finding, Severity
from lumisite.machine.masks import MaskError, MaskRequest, cpu_masks, mask_of
from lumisite.site.cpu_list import format_cpu_list, parse_number_list
from lumisite.site.scalars import TASK
from lumisite.text import some
from lumisite.validate.probes.environment.expected import FRAMEWORK, Setup
from lumisite.validate.probes.probe import Record
from lumisite.validate.probes.records import rows, table, text, value_at

#: Types of file systems that lie on servers, as the kernel names them in /proc/self/mountinfo.
SHARED_TYPES = (
    *("lustre", "nfs", "nfs4", "gpfs", "beegfs", "ceph", "cifs", "smb3"),
    *("9p", "afs", "orangefs", "pvfs2", "wekafs", "dvs"),
)
#: A list in a sentence ends after so many names, and counts the rest.
MOST_NAMES = 8
VERBOSE = "run `LUMISITE_VERBOSE=1 srun …` to see what the task prolog made of it"
#: What the kernel limits softly and hard; of shared memory there is only the size, in KiB.
SHARED_MEMORY = "shared memory"
#: A rank that has less than this part of what the node's step has was limited on the way.
LEAST = 0.9

Kind: TypeAlias = Literal["node", "rank", "first"]
Cpus: TypeAlias = frozenset[int]


@dataclass(frozen=True)
class NodeRecords:
    """All records of one node: its own, and those of its ranks in the container.

    `expected_cpus` are the CPUs that each local rank should have, none where the node kind has no table for them.
    """

    node: Record
    ranks: tuple[Record, ...]
    expected_cpus: Mapping[int, Cpus]

    def of_kind(self, kind: Kind) -> tuple[Record, ...]:
        """Return the records that checks of a kind look at."""
        if kind == "first":
            return tuple(record for record in self.ranks if "imports" in record)
        return {"node": (self.node,) if self.node else (), "rank": self.ranks}[kind]

    @cached_property
    def cpus(self) -> Mapping[int, Cpus]:
        """The CPUs of each rank whose record has them, by local rank."""
        return {record["local_rank"]: _cpus(record) for record in self.ranks}


def _cpus(record: Record) -> Cpus:
    return frozenset(parse_number_list(record["cpus"]))


def _list(names: Sequence[str]) -> str:
    return some(names, MOST_NAMES, ", ")


# ---- binds


def check_node_paths(record: Record, _node: NodeRecords, setup: Setup) -> Iterator[Finding]:
    """The node has what containers must find there."""
    for bind in setup.binds:
        if not bind.required or value_at(record, "paths", bind.path, "exists") is not False:
            continue
        message = f"cannot be found on the node ({bind.why})"
        advice = "drain the node until it is there; or remove it from the site's binds if it is gone for good"
        yield Finding("bind-missing", Severity.NODE, message, advice, subject=bind.path)


def check_binds(record: Record, node: NodeRecords, setup: Setup) -> Iterator[Finding]:
    """Each bind is the same file in the container as on the node."""
    if not record.get("in_container"):
        message, advice = "the probe ran outside of containers", "start it as `srun … singularity exec IMAGE …`"
        yield Finding("bind-not-in-container", Severity.FAULT, message, advice)
        return
    for bind in setup.binds:
        path = bind.target or bind.path
        found, expected = text(record, "paths", path, "file"), text(node.node, "paths", bind.path, "file")
        if not expected or found == expected:
            continue
        by_task = bind.where == TASK
        binder = "the task prolog binds it" if by_task else f"the module {bind.where} binds it"
        load = "" if by_task else f"load {bind.where}; "
        message = f"another file in the container ({found}) than {bind.path} on the node ({expected}), though {binder}"
        advice = f"{load}look for a bind of the user's own at this path; "
        advice += "`LUMISITE_VERBOSE=1 srun …` shows what the task prolog did"
        if not found:
            message = f"on the node but not in the container, though {binder} ({bind.why})"
            advice = f"{load}run `LUMISITE_VERBOSE=1 srun …` to see what the task prolog did; "
            advice += "look at LUMISITE=off and `lumisite policy ROOT`"
        yield Finding("bind-not-in-container", Severity.FAULT, message, advice, subject=path)


def check_libraries(record: Record, _node: NodeRecords, setup: Setup) -> Iterator[Finding]:
    """The framework, the network plugin and libfabric open, and come from where the image's family has them."""

    def unfit(name: str, message: str, advice: str) -> Finding:
        return Finding("library-not-opened", Severity.FAULT, message, advice, subject=name)

    if error := text(record, "imports", FRAMEWORK, "error"):
        yield unfit(FRAMEWORK, f"cannot be imported: {error}", f"use an image with {FRAMEWORK}, or repair this one")
    refusals = table(record, "plugins")
    plugins = [name for name in setup.plugin_names if name in setup.origins]
    if plugins and all(refusals.get(name) != "" for name in plugins):
        words = _list([str(refusals.get(name, "-")) for name in plugins])
        advice = f"see `lumisite binds IMAGE`: the image's family has the plugin from the {setup.origins[plugins[0]]}"
        message = f"no network plugin opens, so traffic falls back to TCP: {words}"
        yield unfit(plugins[0], message, advice)
    for name, refusal in table(record, "libraries").items():
        if refusal:
            advice = "see `lumisite binds IMAGE` for what the image lacks"
            yield unfit(name, f"does not open: {refusal}", advice)
    for soname, expected in setup.origins.items():
        for row in rows(record, "mapped"):
            path, found = row["path"], "image" if _in_image(row) else "host"
            if path.rpartition("/")[2].startswith(soname) and found != expected:
                message = f"{path} is in use, from the {found}; family {setup.target.family_name} needs it from the "
                advice = "see LD_LIBRARY_PATH inside the container, and `lumisite binds IMAGE`"
                yield unfit(soname, message + expected, advice)


def _in_image(mount: Record) -> bool:
    """Return whether what is on a mount is the image's own, not the host's: the root, or part of a squashfs file.

    Without overlay a runtime mounts parts of its squashfs one by one ("underlay" of SingularityCE's admin guide).
    """
    return mount["point"] in ("", "/") or "squash" in mount["type"]


# ---- CPUs, GPUs and limits


def check_cpus(record: Record, node: NodeRecords, setup: Setup) -> Iterator[Finding]:
    """Where the node kind has a mask for a rank, the rank has it; where not, it has no reserved CPU."""
    topology, cpus, local = setup.topology, _cpus(record), record["local_rank"]
    expected = node.expected_cpus.get(local)
    reserved = cpus & topology.reserved
    message = ""
    if expected is not None and cpus != expected:
        message = f"mask {mask_of(cpus)} (CPUs {format_cpu_list(cpus)}), expected {mask_of(expected)} "
        message += f"(CPUs {format_cpu_list(expected)}) for local rank {local} of {topology.name}"
    elif expected is None and reserved and cpus != topology.pu_os:
        message = f"mask {mask_of(cpus)} has the reserved CPUs {format_cpu_list(reserved)}"
    if message:
        yield Finding("mask-wrong", Severity.FAULT, message, _advice_on_masks(record))


def _advice_on_masks(record: Record) -> str:
    """Return what to do about a mask: a binding of the user's own is named, as the task prolog leaves it alone."""
    binding = text(record, "environment", "SLURM_CPU_BIND") or text(record, "environment", "SLURM_CPU_BIND_TYPE")
    if binding and "mask_cpu:0x" not in binding:
        return f"leave --cpu-bind to lumisite; this step was started with SLURM_CPU_BIND={binding}"
    return "run `LUMISITE_VERBOSE=1 srun …` to see which mask the task prolog chose, or why none"


def check_shared_cpus(record: Record, node: NodeRecords, _setup: Setup) -> Iterator[Finding]:
    """No rank shares CPUs with one before it; one that has a wrong mask is named by that already."""
    local, cpus = record["local_rank"], _cpus(record)
    other = next((other for other in sorted(node.cpus) if other < local and node.cpus[other] & cpus), None)
    if other is not None and cpus == node.expected_cpus.get(local, cpus):
        shared = format_cpu_list(cpus & node.cpus[other])
        message = f"mask {mask_of(cpus)} shares the CPUs {shared} with local rank {other} ({mask_of(node.cpus[other])})"
        yield Finding("mask-wrong", Severity.FAULT, message, _advice_on_masks(record))


def expected_cpus(ranks: Sequence[Record], tasks: int, setup: Setup) -> Mapping[int, Cpus]:
    """Return the CPUs that each local rank of a node should have, none where the node kind has no table for them."""
    if not ranks or not setup.topology.gpus:
        return {}
    granted = frozenset(parse_number_list(text(ranks[0], "granted")))
    try:
        answers = cpu_masks(setup.topology, MaskRequest(tasks, cpus=granted & setup.topology.pu_os or None))
    except MaskError:
        return {}
    return {answer.task: frozenset(answer.pu_os) for answer in answers if answer.pu_os}


def check_gpus(record: Record, node: NodeRecords, setup: Setup) -> Iterator[Finding]:
    """Bus ids are those of the platform, in their order, and no rank before it has the same GPU."""
    known = {gpu.pci_bus: gpu.index for gpu in setup.topology.gpus if gpu.pci_bus}
    buses, local, bus = rows(record, "gpus"), record["local_rank"], _gpu_of(record)
    if bus is None:
        return
    kind = setup.topology.name
    if known and bus not in known:
        message = f"GPU on bus {bus}, which {kind} does not have (expected {_list(list(known))})"
        advice = "if a maintenance changed the bus ids, write the new ones into the site's platform (gpu_bus_ids)"
        yield Finding("gpu-wrong", Severity.FAULT, message, advice)
    elif known and len(buses) == len(known) and known[bus] != local % len(known):
        message = f"GPU {local} is on bus {bus}, which {kind} has as GPU {known[bus]}"
        advice = "the order of the GPUs has changed: correct gpu_bus_ids and the order of gpus in the site description"
        yield Finding("gpu-wrong", Severity.FAULT, message, advice)
    first = next(other["rank"] for other in node.ranks if _gpu_of(other) == bus)
    if first != record["rank"]:
        message = f"shares the GPU on bus {bus} with rank {first}"
        yield Finding("gpu-wrong", Severity.FAULT, message, "give each rank its own GPU, by SLURM_LOCALID")


def _gpu_of(record: Record) -> str | None:
    """Return the bus of a rank's GPU: of several that it sees, programs take the one with their local rank."""
    buses = rows(record, "gpus")
    return buses[record["local_rank"] % len(buses)] if buses else None


def check_limits(record: Record, node: NodeRecords, _setup: Setup) -> Iterator[Finding]:
    """A rank may use as much as the step gave its task: the first limit that is lower, with the names of the others."""
    lower = []
    for name, given in table(node.node, "granted").items():
        found = rows(record, "limits", name)
        # Where the hard limit is lower, the soft one is too.
        kinds = [kind for kind in (1, 0) if len(found) > kind < len(given) and _is_lower(found[kind], given[kind])]
        lower += [(name, kind, found[kind], given[kind]) for kind in kinds[:1]]
    if not lower:
        return
    name, kind, value, expected = lower[0]
    message = f"{'hard' if kind else 'soft'} limit is {value}, the step on the node has {expected}"
    if name == SHARED_MEMORY:
        message = f"{value} KiB, on the node {expected} KiB"
    message += f"; lower too: {_list([other for other, *_ in lower[1:]])}" if lower[1:] else ""
    advice = "look for `ulimit` in the wrapper, the task prolog and the image's start-up files; for shared memory at "
    advice += "`mount dev` and `sessiondir max size` of the container runtime's configuration"
    yield Finding("limit-lower", Severity.FAULT, message, advice, subject=name)


def _is_lower(found: str, given: str) -> bool:
    of_rank, of_step = (math.inf if each == "unlimited" else float(each or 0) for each in (found, given))
    return of_rank < LEAST * of_step


# ---- directories


def check_directories(record: Record, _node: NodeRecords, setup: Setup) -> Iterator[Finding]:
    """Each variable leads to a directory on the node itself that only the user can enter."""
    found = table(record, "directories")
    unset = [name for name in setup.directories if not value_at(found, name, "set")]
    entry = next((entry for entry in rows(record, "private") if not entry["usable"]), None)
    taken = bool(unset and entry)
    if unset and entry:
        yield _taken(entry, record["user"], unset)
    for name in setup.directories:
        wrong = None if taken else ("not set, so the cache falls back to the home directory", VERBOSE)
        if name not in unset:
            wrong = _wrong_directory(name, found[name], record["user"], setup)
        if wrong is not None:
            message, advice = wrong
            yield Finding("directory-unfit", Severity.FAULT, message, advice, subject=name)


def _taken(entry: Record, user: int, unset: Sequence[str]) -> Finding:
    """Return the finding for a private directory that the task prolog could not use, since it is not the user's own."""
    path, owner = entry["path"], entry["owner"]
    message, advice = "is no private directory, as the task prolog makes it", f"`ls -ld {path}` on the node; remove it"
    if owner != user:
        message = f"belongs to user {owner}, and the job runs as {user}"
        advice += f" as user {owner} or as root"
    return Finding("directory-unfit", Severity.NODE, f"{message}; so {_list(unset)} are not set", advice, subject=path)


def _wrong_directory(name: str, found: Record, user: int, setup: Setup) -> tuple[str, str] | None:
    """Return what is wrong with the directory that a variable leads to, and what to do."""
    path, real, kind = found["path"], found["real"], text(found, "mount", "type")
    systems, place = setup.target.site.file_systems, next(iter(setup.target.site.private_places), None)
    under = f" under {place.path}" if place else ""
    unset = f"unset {name} before the job: the task prolog then makes a private directory{under}"
    target = PurePosixPath(real)
    local = [system.path for system in systems if system.kind == "node-local"]
    shared = [system.path for system in systems if system.kind == "shared" and target.is_relative_to(system.path)]
    where = f"{path} (leads to {real})" if real != path else path
    if shared or kind in SHARED_TYPES:
        return f"{where} is on {next(iter(shared), kind)}, which all nodes share", unset
    if not any(target.is_relative_to(system) for system in local):
        return f"{where} is not on a node-local file system ({_list(local)})", unset
    if not found.get("directory"):
        return f"{where} is no directory", VERBOSE
    owner, mode = found["owner"], found["mode"]
    if owner != user:
        message = f"{where} belongs to user {owner}, and the job runs as {user}"
        return message, f"another user has made a directory of that name; {unset}"
    if mode[-2:] != "00":
        return f"{where} has mode {mode} (expected 700)", unset
    if refusal := found["writing"]:
        return f"{where} cannot be written: {refusal}", "make room on the node, or drain it"
    return None


# ---- packages


def check_packages(record: Record, _node: NodeRecords, setup: Setup) -> Iterator[Finding]:
    """No package of ~/.local is found before the image's own."""
    subject = message = ""
    hidden = rows(record, "hidden")
    if record.get("user_site_on_path"):
        subject = record["user_site"]
        message = "on Python's path" + (f", where it hides the image's own {_list(hidden)}" if hidden else "")
        advice = f"leave PYTHONNOUSERSITE to lumisite (1 is right), or move {subject} away"
    elif setup.shuts_user_site_out and not value_at(record, "environment", "PYTHONNOUSERSITE"):
        subject, advice = "PYTHONNOUSERSITE", VERBOSE
        message = "not set, so packages of ~/.local would hide the image's once there are any"
    if message:
        yield Finding("packages-hidden", Severity.FAULT, message, advice, subject=subject)


class Check(NamedTuple):
    """A question of a gate, and the function that answers it for one record of a kind."""

    gate: str
    kind: Kind
    find: Callable[[Record, NodeRecords, Setup], Iterator[Finding]]


CHECKS = (
    Check("binds", "node", check_node_paths),
    Check("binds", "first", check_binds),
    Check("binds", "first", check_libraries),
    Check("affinity", "rank", check_cpus),
    Check("affinity", "rank", check_shared_cpus),
    Check("affinity", "rank", check_gpus),
    Check("limits", "rank", check_limits),
    Check("miopen", "rank", check_directories),
    Check("usersite", "rank", check_packages),
)
