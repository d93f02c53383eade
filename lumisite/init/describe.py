"""A description from what was seen of a machine: values for the template (site.yaml.j2), which has layout and words."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lumisite.facts.description import Description, describe, guess
from lumisite.findings.finding import Finding
from lumisite.init.describe_kind import describe_kind
from lumisite.init.folders import Folder, folders_of, folders_of_all
from lumisite.init.known import SOFTWARE
from lumisite.init.node import FoundFabric, Node, can_be_bound, fabric_of, has_folder, module_systems
from lumisite.init.slurm import Cluster, SlurmNodeKind, partitions_of
from lumisite.init.software import StackFound, stacks_of
from lumisite.site.cpus import parse_number_list
from lumisite.site.kinds import NO_GPUS, Fingerprint, fingerprint
from lumisite.site.scalars import PCI_BUS
from lumisite.text import some
from lumisite.vendors import all_vendors, gpu_of

#: What of Slurm's configuration decides what tasks find.
_TASK_KEYS = ("MpiDefault", "JobContainerType", "SrunProlog", "TaskProlog", "Prolog")
#: The variables of a login shell that has a module system.
_MODULE_VARIABLES = ("LMOD_VERSION", "MODULES_CMD")
_TEMPLATE = Path(__file__).with_name("site.yaml.j2")


@dataclass(frozen=True)
class Seen:
    """All that was seen: Slurm (empty, where it is not), one node of each kind that answered, and the login node.

    `address` returns the IPv4 address of a name; `images` are folders that hold images; `date` is of today.
    """

    name: str
    date: str
    cluster: Cluster
    login: Node
    nodes: Mapping[str, Node]
    address: Callable[[str], str | None]
    images: Callable[[Iterable[str]], tuple[str, ...]]
    findings: tuple[Finding, ...] = ()

    @property
    def node(self) -> Node:
        """The node that speaks for the machine: one with GPUs first."""
        return max(self.nodes.values(), key=lambda node: len(node.gpus), default=self.login)


def describe_site(seen: Seen) -> Description:
    """Return the description."""
    stacks, software_questions = stacks_of(seen.nodes or {"": seen.login})
    network, folders = _network(seen), _folders(seen)
    values: dict[str, object] = {
        "name": seen.name,
        "date": seen.date,
        "login": seen.login.name,
        "node": seen.node.name,
        "findings": seen.findings,
        "software_questions": software_questions,
        "of_slurm": {key: seen.cluster.config[key] for key in _TASK_KEYS if key in seen.cluster.config},
        "partitions": list(_partitions(seen, network["kinds"], stacks)),
    }
    parts = (network, folders, _platform(seen, stacks), _runtimes(seen, stacks), _modules(seen, stacks))
    for part in parts:
        values |= part
    return describe(_TEMPLATE, values)


# Network and node kinds


def _network(seen: Seen) -> dict[str, Any]:
    """Return the fabric, and the node kinds with their places in it."""
    known = [kind.name for kind in seen.cluster.kinds]
    kinds = [*seen.cluster.kinds, *(SlurmNodeKind(name, ()) for name in seen.nodes if name not in known)]
    fabrics = {name: _fabric(seen, node) for name, node in seen.nodes.items()}
    fabric, interfaces = _fabric(seen, seen.node), seen.node.facts.interfaces
    suffix = f"-{fabric.interfaces[0]}" if fabric.interfaces else ""
    described = [
        describe_kind(kind, seen.nodes.get(kind.name), fabric, fabrics.get(kind.name, fabric)) for kind in kinds
    ]
    return {
        "fabric": fabric,
        "speeds": {name: interfaces[name].speed_mbit or "" for name in (*fabric.interfaces, *fabric.management)},
        "host_suffix": suffix if suffix and seen.address(f"{seen.node.name}{suffix}") else "",
        "kinds": described,
    }


def _fabric(seen: Seen, node: Node) -> FoundFabric:
    """Return a node's fabric; Slurm knows by which address it reaches the node."""
    known = (slurm for kind in seen.cluster.kinds for slurm in kind.nodes)
    slurm = next((slurm for slurm in known if slurm.name == node.name), None)
    return fabric_of(node, seen.address(slurm.keys.get("NodeAddr", slurm.name) if slurm else node.name))


def _partitions(
    seen: Seen, kinds: Sequence[Mapping[str, Any]], stacks: Sequence[StackFound]
) -> Iterator[dict[str, object]]:
    """Yield the partitions, each with the kinds that its nodes can be recognised as, and with the others."""
    cluster = seen.cluster
    known = {str(kind["name"]): _fingerprint(seen, kind, stacks) for kind in kinds}
    for name, stated in cluster.partitions.items():
        counts = Counter(kind.name for kind in cluster.kinds for node in kind.nodes if name in partitions_of(node))
        if counts:
            distinct: list[str] = []
            for kind, _ in counts.most_common():
                if all(known[kind].differs(known[other]) for other in distinct):
                    distinct.append(kind)
            # Slurm 26.05 has a key of its own for it.
            whole = "EXCLUSIVE" in stated.get("OverSubscribe", "") or stated.get("Exclusive") == "NODE"
            whole = whole or cluster.config.get("SelectType") == "select/linear"
            keys: dict[str, object] = {"node_kind": distinct[0] if len(distinct) == 1 else distinct}
            keys |= {"whole_nodes": "yes" if whole else "no"}
            keys |= {"max_nodes": stated["MaxNodes"]} if stated.get("MaxNodes", "").isdecimal() else {}
            yield {"name": name, "others": [kind for kind in counts if kind not in distinct], "entry": keys}


def _fingerprint(seen: Seen, kind: Mapping[str, Any], stacks: Sequence[StackFound]) -> Fingerprint:
    """Return by what nodes of a kind will be known, as it is described."""
    layout = [
        (*(parse_number_list(group.get(key, "")) for key in ("cores", "siblings")), group["numa"])
        for group in kind["l3"]
    ]
    of_gpus = [stack for stack in stacks if stack.gpu]
    mine = [stack.gpu for stack in of_gpus if len(of_gpus) == 1 or kind["name"] in stack.kinds]
    gpus, buses = len(kind["gpus"]), _buses(seen).get(kind["name"])
    vendor = next(iter(mine), None) if gpus else NO_GPUS if of_gpus else None
    return fingerprint(layout, gpus, vendor, [buses] if buses else ())


def _buses(seen: Seen) -> dict[str, list[str]]:
    """Return the addresses of the GPUs of each kind of which a node has all."""
    buses = {name: [gpu.bus or "" for gpu in node.gpus] for name, node in seen.nodes.items() if node.gpus}
    return {name: ids for name, ids in buses.items() if all(map(PCI_BUS.fullmatch, ids))}


# File systems and images


def _folders(seen: Seen) -> dict[str, Any]:
    """Return the file systems of the nodes that answered; a facts file has no mounts."""
    folders = folders_of_all([node for node in seen.nodes.values() if node.answer.files], seen.login)
    entries = [_folder_entry(seen, folder) for folder in folders if folder.kind]
    of_login = [folder.path for folder in folders_of(seen.login, seen.login) if folder.kind == "shared"]
    shared = [folder.path for folder in folders if folder.kind == "shared"]
    images = seen.images(dict.fromkeys([*shared, *of_login]))
    lasting = [str(entry["path"]) for entry in entries if entry["kind"] == "shared" and entry["bound"]] or of_login
    tops = sorted(lasting, key=lambda path: posixpath.basename(path) not in SOFTWARE)
    return {
        "folders": entries,
        "folder_questions": [
            {**vars(folder), "nodes": some(folder.nodes, 3, ", ")} for folder in folders if folder.doubt
        ],
        # The folder that all nodes see below which the deployment root is guessed, one for software first.
        "top": next(iter(tops), "/opt"),
        "images": images,
        "image_paths": [f"{folder}/*" for folder in images] or ["*.sif"],
    }


def _folder_entry(seen: Seen, folder: Folder) -> dict[str, object]:
    """Return the keys of a file system. Not bound are those that the runtime mounts, and what the login node lacks."""
    is_home = f"{seen.login.answer.output('HOME')}/".startswith(f"{folder.path}/")
    is_there = folder.path != "/tmp" and has_folder(seen.login, folder.path)  # noqa: S108
    nodes = some(folder.nodes, 3, ", ")
    return {**vars(folder), "is_home": is_home, "bound": is_there and not is_home, "node": nodes}


# The platform and its stacks


def _platform(seen: Seen, stacks: Sequence[StackFound]) -> dict[str, Any]:
    """Return the stacks and the only platform, with marks for what was guessed of them."""
    facts, nodes = seen.node.facts, [*seen.nodes.values()]
    version = seen.cluster.config.get("SLURM_VERSION", facts.slurm or "")
    of_slurm = f"; slurm: scontrol on {seen.login.name}" if "SLURM_VERSION" in seen.cluster.config else ""
    names = ", ".join(dict.fromkeys([seen.node.name, *(node.name for node in nodes)]))
    platform = {
        "head": {
            "since": guess(seen.date, "since-today"),
            "os": _of_all(facts.os.name or "unknown", (node.facts.os.name for node in nodes)),
            "slurm": version if version.replace(".", "").isdecimal() else None,
            "kernel": _of_all(facts.kernel.release, (node.facts.kernel.release for node in nodes)),
        },
        "stacks": {stack.name: _stack_entry(stack, stacks) for stack in stacks},
        "tail": {
            "gpu_bus_ids": _buses(seen) or None,
            "source": f"here: read on {names}, {seen.date}{of_slurm}",
            "confirmed": "no",
        },
    }
    tables = {}
    for stack in stacks:
        found = {"found": "host"} if stack.gpu else {}
        release = {**found, "source": f"here: read on {stack.node}, {seen.date}"}
        head = {"title": stack.software.title, "gpu": stack.gpu or None}
        tables[stack.name] = {"head": head, "releases": dict.fromkeys(stack.releases, release)}
    gpu_stacks = [stack.name for stack in stacks if stack.gpu]
    return {"month": seen.date[:7], "platform": platform, "stacks": tables, "gpu_stacks": gpu_stacks}


def _stack_entry(stack: StackFound, stacks: Sequence[StackFound]) -> dict[str, object]:
    """Return a stack's entry of the platform."""
    default = stack.default if stack.is_linked else guess(stack.default, "newest")
    if not stack.gpu:
        return {"default": default, "supported": guess([*stack.releases], "all-supported")}
    runs = guess(stack.runs, "range-driver", title=stack.software.title)
    kinds = stack.kinds if sum(bool(other.gpu) for other in stacks) > 1 else None
    return {"driver": stack.driver, "runs": runs, "default": default, "kinds": kinds}


def _of_all(value: str | None, others: Iterable[str | None]) -> object:
    """Return what one node has for all, marked where others have something else."""
    different = sorted({other for other in others if other and other != value})
    if not different:
        return value
    return guess(value, "differs", others=some(different, 3, ", "))


# Runtimes and modules


def _runtimes(seen: Seen, stacks: Sequence[StackFound]) -> dict[str, Any]:
    """Return the keys of each runtime that was found, with a question for what is open."""
    gpus = {stack.gpu: gpu_of(stack.gpu) for stack in stacks if stack.gpu}
    flags = {name: gpu.flag for name, gpu in gpus.items() if gpu.flag}
    by_gpu = {"gpu": next(iter(flags.values())) if len(flags) == 1 else flags} if flags else {}
    found: dict[str, dict[str, Any]] = {}
    node = seen.login if seen.login.programs and not seen.node.programs else seen.node
    for name, (path, version) in node.programs.items():
        is_apptainer = "apptainer" in f"{name} {version.partition(' ')[0]}".lower()
        if not (is_apptainer and "apptainer" in found):  # its other name is no runtime of its own
            prefix = "APPTAINER" if is_apptainer else "SINGULARITY"
            keys = {"executable": path, "variant": version or name, "prefix": prefix, **by_gpu}
            found[name] = {"keys": keys, "node": node.name, "question": ""}
    for node in (seen.login, seen.node):
        for name, stated in node.reads_no_modulefile.items():
            question = stated.pop("question", "")
            found[name] = {"keys": stated, "node": node.name, "question": question}
    for entry in found.values():
        if entry["node"] not in {node.name for node in seen.nodes.values()}:
            entry["question"] = entry["question"] or "login-only"
    caches = [cache for gpu in gpus.values() for cache in gpu.caches]
    return {"runtimes": found, "runtime": next(iter(found), "apptainer"), "caches": caches}


def _modules(seen: Seen, stacks: Sequence[StackFound]) -> dict[str, Any]:
    """Return the module system, what modules bind of the host, and the releases that their versions are made of."""
    spool, systems = seen.cluster.config.get("SlurmdSpoolDir", ""), module_systems(seen.login)
    are_read = any(node.answer.output(name) for node in (seen.login, seen.node) for name in _MODULE_VARIABLES)
    installed = [stack.name for stack in stacks if not stack.gpu]
    return {
        "host": _host_binds(seen),
        "spool": spool if can_be_bound(spool) and has_folder(seen.node, spool) else "",
        "systems": systems or module_systems(seen.node),
        "systems_are_guessed": not are_read,
        "installed": installed,
        "all_stacks": [*installed, *(stack.name for stack in stacks if stack.gpu)],
    }


def _host_binds(seen: Seen) -> list[str]:
    """Return the folders whose libraries drive the adapters of a node, where all nodes have them."""
    classes = {adapter.kind for adapter in seen.node.facts.nics.values()}
    nodes = [*seen.nodes.values()] or [seen.node]
    found = []
    for vendor in all_vendors():
        is_used = classes & {posixpath.basename(fabric.folder) for fabric in vendor.fabrics}
        if is_used and vendor.bound and all(has_folder(node, vendor.bound) for node in nodes):
            found.append(vendor.bound)
    return found
