"""What was seen, as the template of a description wants it (site.yaml.j2)."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lumisite.init.folders import QUESTIONS, Folder, folders_of, folders_of_all
from lumisite.init.known import SOFTWARE
from lumisite.init.machine import describe_kind
from lumisite.init.node import Fabric, Node, can_be_bound, fabric_of, has_folder, module_systems
from lumisite.init.slurm import Cluster, Kind, partitions_of
from lumisite.init.software import StackFound, stacks_of
from lumisite.render.templates import make_environment
from lumisite.site.cpus import parse_number_list
from lumisite.site.kinds import NO_GPUS, Fingerprint, fingerprint
from lumisite.site.read import read_file
from lumisite.site.scalars import PCI_BUS
from lumisite.text import Block, Noted, flow, some, yaml_key, yaml_lines
from lumisite.vendors import all_vendors, gpu_of

#: What of Slurm's configuration decides what tasks find.
_TOLD = ("MpiDefault", "JobContainerType", "SrunProlog", "TaskProlog", "Prolog")
#: The variables of a login shell that has a module system.
_MODULE_WORDS = ("LMOD_VERSION", "MODULES_CMD")
_TEMPLATE_BYTES = 64 * 1024


@dataclass(frozen=True)
class Seen:
    """All that was seen: Slurm (empty, where it is not), one node of each kind that answered, and the login node.

    `address` gives the IPv4 address of a name; `images` are folders that hold images; `date` is of today.
    """

    name: str
    date: str
    cluster: Cluster
    login: Node
    nodes: Mapping[str, Node]
    address: Callable[[str], str | None]
    images: Callable[[Iterable[str]], tuple[str, ...]]
    notes: tuple[str, ...] = ()

    @property
    def node(self) -> Node:
        """The node that speaks for the machine: one with GPUs first."""
        return max(self.nodes.values(), key=lambda node: len(node.gpus), default=self.login)


def describe(seen: Seen) -> str:
    """Give the text of the description."""
    text = read_file(Path(__file__).with_name("site.yaml.j2"), _TEMPLATE_BYTES).decode()
    environment = make_environment({"init/site.yaml.j2": text})
    environment.filters.update(flow=flow, key=yaml_key)
    environment.globals["dict"] = dict
    return environment.get_template("site.yaml.j2").render(**_values(seen))


def _values(seen: Seen) -> dict[str, object]:
    node, cluster = seen.node, seen.cluster
    folders, stacks_asked = _folders(seen), stacks_of(seen.nodes or {"": seen.login})
    stacks, software_questions = stacks_asked
    gpus = {one.gpu: gpu_of(one.gpu) for one in stacks if one.gpu}
    runtimes = _runtimes(seen, {name: one.flag for name, one in gpus.items() if one.flag})
    runtime = next(iter(runtimes), "apptainer")
    entries = [_entry(seen, one) for one in folders if one.kind]
    mine = [one.path for one in folders_of(seen.login, seen.login) if one.kind == "shared"]
    images = seen.images(dict.fromkeys([*(one.path for one in folders if one.kind == "shared"), *mine]))
    host = _host_binds(seen)
    modules = list(_modules(runtime, {one.name: bool(one.gpu) for one in stacks}, host=bool(host)))
    spool = cluster.config.get("SlurmdSpoolDir", "")
    systems = module_systems(seen.login) or module_systems(node)
    network = _network(seen)
    return {
        "name": seen.name,
        "date": seen.date,
        "login": seen.login.name,
        "node": node.name,
        "notes": seen.notes,
        "top": _top(entries, mine),
        "runtimes": runtimes,
        "runtime": runtime,
        **network,
        "folders": entries,
        "folder_questions": [_question(one) for one in folders if one.doubt],
        "software_questions": software_questions,
        "platform": "\n".join(yaml_lines(_platform(seen, stacks))),
        "gpu_stacks": [one.name for one in stacks if one.gpu],
        "of_slurm": {key: cluster.config[key] for key in _TOLD if key in cluster.config},
        "partitions": list(
            _partitions(cluster, {str(one["name"]): _fingerprint(seen, one, stacks) for one in network["kinds"]})
        ),
        "images": images,
        "image_paths": [f"{one}/*" for one in images] or ["*.sif"],
        "bind_modules": [one["name"] for one in modules[:-1]],
        "host": host,
        "spool": spool if can_be_bound(spool) and has_folder(node, spool) else "",
        "caches": [one for gpu in gpus.values() for one in gpu.caches],
        "systems": systems,
        "systems_are_guessed": not any(one.told.said(name) for one in (seen.login, node) for name in _MODULE_WORDS),
        "modules": modules,
    }


def _network(seen: Seen) -> dict[str, Any]:
    """Return the fabric, and the node kinds with their places in it."""
    known = [kind.name for kind in seen.cluster.kinds]
    kinds = [*seen.cluster.kinds, *(Kind(name, ()) for name in seen.nodes if name not in known)]
    fabrics = {name: _fabric(seen, one) for name, one in seen.nodes.items()}
    fabric = _fabric(seen, seen.node)
    suffix = f"-{fabric.interfaces[0]}" if fabric.interfaces else ""
    return {
        "fabric": fabric,
        "speeds": {one: _speed(seen.node, one) for one in (*fabric.interfaces, *fabric.management)},
        "host_suffix": suffix if suffix and seen.address(f"{seen.node.name}{suffix}") else "",
        "kinds": [
            describe_kind(kind, seen.nodes.get(kind.name), fabric, fabrics.get(kind.name, fabric)) for kind in kinds
        ],
    }


def _host_binds(seen: Seen) -> list[str]:
    """Return the folders whose libraries drive the adapters of a node, where all nodes have them."""
    classes = {one.kind for one in seen.node.facts.nics.values()}
    makers = (one for one in all_vendors() if classes & {posixpath.basename(kind.folder) for kind in one.fabrics})
    nodes = [*seen.nodes.values()] or [seen.node]
    return [one.bound for one in makers if one.bound and all(has_folder(node, one.bound) for node in nodes)]


def _top(entries: Sequence[Mapping[str, object]], others: Sequence[str]) -> str:
    """Return the folder that all nodes see below which the deployment root is guessed, one for software first."""
    lasting = [str(one["path"]) for one in entries if one["kind"] == "shared" and one["bound"]] or [*others]
    return next(iter(sorted(lasting, key=lambda path: posixpath.basename(path) not in SOFTWARE)), "/opt")


def _platform(seen: Seen, stacks: Sequence[StackFound]) -> Block:
    """Give the stacks, and the only platform, with what was guessed of them."""
    facts, month = seen.node.facts, seen.date[:7]
    entries, tables = {}, Block()
    several = sum(bool(one.gpu) for one in stacks) > 1
    for one in stacks:
        read = {"source": f"here: read on {one.node}, {seen.date}"}
        unnamed = "" if one.is_linked else "guessed: the newest, as no link names a default that fits"
        default = Noted(one.default, unnamed)
        if one.gpu:
            runs = Noted(one.runs, f"guessed: what the driver runs (the release notes of {one.software.title} tell)")
            kinds = one.kinds if several else None
            entries[one.name] = Block(driver=one.driver, runs=runs, default=default, kinds=kinds)
        else:
            supported = Noted([*one.releases], "guessed: all that is installed is supported (your log of maintenances)")
            entries[one.name] = Block(default=default, supported=supported)
        found = {"found": "host"} if one.gpu else {}
        releases = Block({"releases": Block(dict.fromkeys(one.releases, found | read))})
        tables[one.name] = Block({"title": one.software.title, "gpu": one.gpu or None} | releases)
    version = seen.cluster.config.get("SLURM_VERSION", facts.slurm or "")
    of_slurm = f"; slurm: scontrol on {seen.login.name}" * ("SLURM_VERSION" in seen.cluster.config)
    names = dict.fromkeys([seen.node.name, *(one.name for one in seen.nodes.values())])
    platform = Block(
        since=Noted(seen.date, "guessed: the day on which this was read (your log of maintenances tells since when)"),
        os=_of_all(facts.os.name or "unknown", (one.facts.os.name for one in seen.nodes.values())),
        slurm=version if version.replace(".", "").isdecimal() else None,
        kernel=_of_all(facts.kernel.release, (one.facts.kernel.release for one in seen.nodes.values())),
        stacks=Block(entries),
        gpu_bus_ids=_buses(seen) or None,
        source=f"here: read on {', '.join(names)}, {seen.date}{of_slurm}",
        confirmed="no",
    )
    return Block({"stacks": tables, "platform": month, "platforms": Block({month: platform})})


def _of_all(value: str | None, others: Iterable[str | None]) -> Noted:
    """Return what one node has for all, marked where others have something else."""
    different = sorted({one for one in others if one and one != value})
    unlike = f"guessed: of all nodes, while others have {some(different, 3, ', ')!a}"
    return Noted(value, unlike if different else "")


def _buses(seen: Seen) -> dict[str, list[str]]:
    """Return the addresses of the GPUs of each kind of which a node told all."""
    buses = {name: [gpu.bus or "" for gpu in one.gpus] for name, one in seen.nodes.items() if one.gpus}
    return {name: ids for name, ids in buses.items() if all(map(PCI_BUS.fullmatch, ids))}


def _fabric(seen: Seen, node: Node) -> Fabric:
    """Give a node's fabric; Slurm says by which address it reaches the node."""
    slurm = next((one for kind in seen.cluster.kinds for one in kind.nodes if one.name == node.name), None)
    return fabric_of(node, seen.address(slurm.said.get("NodeAddr", slurm.name) if slurm else node.name))


def _speed(node: Node, name: str) -> str:
    speed = node.facts.interfaces[name].speed_mbit
    return "speed not known" if speed is None else f"{speed} Mbit/s"


def _runtimes(seen: Seen, flags: Mapping[str, str]) -> dict[str, Mapping[str, object]]:
    """Give the keys of each runtime that was found, and on which node; Apptainer's other name is none of its own."""
    found: dict[str, dict[str, object]] = {}
    node = next((one for one in (seen.node, seen.login) if one.programs), seen.node)
    for name, (path, says) in node.programs.items():
        is_apptainer = "apptainer" in f"{name} {says.partition(' ')[0]}".lower()
        if not (is_apptainer and "apptainer" in found):
            gpu = {"gpu": next(iter(flags.values())) if len(flags) == 1 else flags} if flags else {}
            prefix = "APPTAINER" if is_apptainer else "SINGULARITY"
            found[name] = {"executable": path, "variant": says or name, "prefix": prefix, **gpu, "node": node.name}
    for one in (seen.login, seen.node):
        found |= {name: {**keys, "node": one.name} for name, keys in one.reads_no_modulefile.items()}
    for keys in found.values():
        if keys["node"] not in {one.name for one in seen.nodes.values()}:
            keys.setdefault("question", f"is it on compute nodes too? It was found on {seen.login.name}")
    return dict(found)


def _folders(seen: Seen) -> list[Folder]:
    """Return the file systems of the nodes that answered; a facts file has no mounts."""
    return folders_of_all([one for one in seen.nodes.values() if one.told.files], seen.login)


def _entry(seen: Seen, one: Folder) -> dict[str, object]:
    """Give the keys of a file system. Not bound are those that the runtime mounts, and what the login node lacks."""
    bound, why = one.path != "/tmp" and has_folder(seen.login, one.path), f"{one.kind} file system"  # noqa: S108
    if f"{seen.login.told.said('HOME')}/".startswith(f"{one.path}/"):
        bound, why = False, "home directories, which the runtime mounts by itself"
    nodes = some(one.nodes, 3, ", ")
    return {**vars(one), "why": why, "bound": bound, "node": nodes}


def _question(one: Folder) -> str:
    what = QUESTIONS[one.doubt] if one.doubt else ""
    return f"{one.path} ({one.type}, on {some(one.nodes, 3, ', ')}): {what} (`findmnt {one.path}`)"


def _fingerprint(seen: Seen, kind: Mapping[str, Any], stacks: Sequence[StackFound]) -> Fingerprint:
    """Give by what nodes of a kind will be known, as it is described."""
    layout = [
        (*(parse_number_list(one.get(key, "")) for key in ("cores", "siblings")), one["numa"]) for one in kind["l3"]
    ]
    of_gpus = [one for one in stacks if one.gpu]
    mine = [one.gpu for one in of_gpus if len(of_gpus) == 1 or kind["name"] in one.kinds]
    gpus, buses = len(kind["gpus"]), _buses(seen).get(kind["name"])
    vendor = next(iter(mine), None) if gpus else NO_GPUS if of_gpus else None
    return fingerprint(layout, gpus, vendor, [buses] if buses else ())


def _partitions(cluster: Cluster, known: Mapping[str, Fingerprint]) -> Iterator[dict[str, object]]:
    """Give the partitions, each with the kinds that its nodes can be told to be of, and with the others."""
    for name, said in cluster.partitions.items():
        mine = Counter(kind.name for kind in cluster.kinds for node in kind.nodes if name in partitions_of(node))
        if mine:
            kinds: list[str] = []
            for kind, _ in mine.most_common():
                if all(known[kind].differs(known[one]) for one in kinds):
                    kinds.append(kind)
            others = [kind for kind in mine if kind not in kinds]
            # Slurm 26.05 says it by a key of its own.
            whole = "EXCLUSIVE" in said.get("OverSubscribe", "") or said.get("Exclusive") == "NODE"
            whole = whole or cluster.config.get("SelectType") == "select/linear"
            keys: dict[str, object] = {"node_kind": kinds[0] if len(kinds) == 1 else kinds}
            keys |= {"whole_nodes": "yes" if whole else "no"}
            keys |= {"max_nodes": said["MaxNodes"]} if said.get("MaxNodes", "").isdecimal() else {}
            yield {"name": name, "others": others, "said": keys}


def _modules(runtime: str, stacks: Mapping[str, bool], *, host: bool) -> Iterator[dict[str, object]]:
    """Give the modules; the last one loads the others and has the helper. `stacks` says which a driver decides on."""
    installed = [name for name, is_driven in stacks.items() if not is_driven]
    rows = [("userfilesystems", "singularity-userfilesystems", list[str](), "Binds user file systems into containers")]
    if host:
        rows.append(("hostlibraries", "singularity-CPEbits", installed, "Binds libraries of the host into containers"))
    loads = [f"{runtime}-{row[0]}" for row in rows]
    every = [*installed, *(name for name in stacks if name not in installed)]
    rows.append(("AI-bindings", "singularity-AI-bindings", every, "Everything that AI containers need here"))
    for end, template, version, summary in rows:
        keys: dict[str, object] = {"name": f"{runtime}-{end}", "template": template, "summary": summary}
        yield keys | {"version": version or ["platform"], "loads": loads if end == "AI-bindings" else []}
