"""What was seen, as the template of a description wants it (site.yaml.j2)."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lumisite.facts.change import driver_words
from lumisite.facts.facts import Driver
from lumisite.init.known import SOFTWARE
from lumisite.init.machine import describe_kind
from lumisite.init.node import (
    Fabric,
    Node,
    can_be_bound,
    fabric_of,
    folders_of,
    has_folder,
    module_systems,
    releases_of,
)
from lumisite.init.slurm import Cluster, Kind, partitions_of
from lumisite.render.templates import make_environment
from lumisite.site.read import read_file
from lumisite.site.scalars import PCI_BUS
from lumisite.text import Block, Noted, flow, yaml_key, yaml_lines
from lumisite.vendors import all_software, all_vendors, gpu_names, gpu_of, vendor
from lumisite.vendors.model import Software

#: What of Slurm's configuration decides what tasks find.
_TOLD = ("MpiDefault", "JobContainerType", "SrunProlog", "TaskProlog", "Prolog")
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
        return max(self.nodes.values(), key=lambda node: len(node.facts.gpus), default=self.login)


def describe(seen: Seen) -> str:
    """Give the text of the description."""
    text = read_file(Path(__file__).with_name("site.yaml.j2"), _TEMPLATE_BYTES).decode()
    environment = make_environment({"init/site.yaml.j2": text})
    environment.filters.update(flow=flow, key=yaml_key)
    environment.globals["dict"] = dict
    return environment.get_template("site.yaml.j2").render(**_values(seen))


def _values(seen: Seen) -> dict[str, object]:
    node, cluster = seen.node, seen.cluster
    known = [kind.name for kind in cluster.kinds]
    kinds = [*cluster.kinds, *(Kind(name, ()) for name in seen.nodes if name not in known)]
    fabrics = {name: _fabric(seen, one) for name, one in seen.nodes.items()}
    fabric = _fabric(seen, node)
    folders = list(_folders(seen))
    shared = [str(one["path"]) for one in folders if one["kind"] == "shared"]
    lasting = [str(one["path"]) for one in folders if one["kind"] == "shared" and one["bound"]]
    stacks = list(_stacks(seen))
    gpu_stacks = [str(one["name"]) for one in stacks if "runs" in one]
    gpus = {str(one["gpu"]): gpu_of(str(one["gpu"])) for one in stacks if "runs" in one}
    runtimes = _runtimes(seen, {name: one.flag for name, one in gpus.items() if one.flag})
    runtime = next(iter(runtimes), "apptainer")
    images = seen.images(shared)
    classes = {one.kind for one in node.facts.nics.values()}
    makers = (one for one in all_vendors() if classes & {posixpath.basename(kind.folder) for kind in one.fabrics})
    host = [one.bound for one in makers if one.bound and has_folder(node, one.bound)]
    modules = list(_modules(runtime, {str(one["name"]): "runs" in one for one in stacks}, host=bool(host)))
    spool = cluster.config.get("SlurmdSpoolDir", "")
    suffix = f"-{fabric.interfaces[0]}" if fabric.interfaces else ""
    return {
        "name": seen.name,
        "date": seen.date,
        "login": seen.login.name,
        "node": node.name,
        "notes": seen.notes,
        "top": next(iter(sorted(lasting, key=lambda path: posixpath.basename(path) not in SOFTWARE)), "/opt"),
        "runtimes": runtimes,
        "runtime": runtime,
        "fabric": fabric,
        "speeds": {one: _speed(node, one) for one in (*fabric.interfaces, *fabric.management)},
        "host_suffix": suffix if suffix and seen.address(f"{node.name}{suffix}") else "",
        "folders": folders,
        "platform": "\n".join(yaml_lines(_platform(seen, stacks))),
        "gpu_stacks": gpu_stacks,
        "kinds": [
            describe_kind(kind, seen.nodes.get(kind.name), fabric, fabrics.get(kind.name, fabric)) for kind in kinds
        ],
        "of_slurm": {key: cluster.config[key] for key in _TOLD if key in cluster.config},
        "partitions": list(_partitions(cluster)),
        "images": images,
        "image_paths": [f"{one}/*" for one in images] or ["*.sif"],
        "bind_modules": [one["name"] for one in modules[:-1]],
        "host": host,
        "spool": spool if can_be_bound(spool) and has_folder(node, spool) else "",
        "caches": [one for gpu in gpus.values() for one in gpu.caches],
        "systems": module_systems(seen.login) or module_systems(node),
        "modules": modules,
    }


def _platform(seen: Seen, stacks: Sequence[Mapping[str, Any]]) -> Block:
    """Give the stacks, and the only platform, with what was guessed of them."""
    facts, month, source = seen.node.facts, seen.date[:7], f"here: read on {seen.node.name}, {seen.date}"
    entries, tables = {}, Block()
    for one in stacks:
        found = {version: {"found": where, "source": source} for version, where in one["releases"].items()}
        if one["gpu"]:
            several = sum(bool(other["gpu"]) for other in stacks) > 1
            runs = Noted(one["runs"], f"guessed: what the driver runs (the release notes of {one['title']} tell)")
            kinds = one["kinds"] if several else None
            entries[one["name"]] = Block(driver=one["driver"], runs=runs, default=one["default"], kinds=kinds)
        else:
            found = {version: {"source": source} for version in found}
            supported = Noted([*found], "guessed: all that is installed is supported (your log of maintenances)")
            entries[one["name"]] = Block(default=one["default"], supported=supported)
        releases = Block({"releases": Block(found)})
        tables[one["name"]] = Block({"title": one["title"], "gpu": one["gpu"] or None} | releases)
    version = seen.cluster.config.get("SLURM_VERSION", facts.slurm or "")
    buses = {name: [gpu.bus for gpu in one.facts.gpus] for name, one in seen.nodes.items() if one.facts.gpus}
    known = {name: ids for name, ids in buses.items() if all(PCI_BUS.fullmatch(bus or "") for bus in ids)}
    platform = Block(
        since=Noted(seen.date, "guessed: the day on which this was read (your log of maintenances tells since when)"),
        os=facts.os.name or "unknown",
        slurm=version if version.replace(".", "").isdecimal() else None,
        kernel=facts.kernel.release,
        stacks=Block(entries),
        gpu_bus_ids=known or None,
        source=source,
        confirmed="no",
    )
    return Block({"stacks": tables, "platform": month, "platforms": Block({month: platform})})


def _fabric(seen: Seen, node: Node) -> Fabric:
    """Give a node's fabric; Slurm says by which address it reaches the node."""
    slurm = next((one for kind in seen.cluster.kinds for one in kind.nodes if one.name == node.name), None)
    return fabric_of(node, seen.address(slurm.said.get("NodeAddr", slurm.name) if slurm else node.name))


def _speed(node: Node, name: str) -> str:
    speed = node.facts.interfaces[name].speed_mbit
    return "speed not known" if speed is None else f"{speed} Mbit/s"


def _runtimes(seen: Seen, flags: Mapping[str, str]) -> dict[str, Mapping[str, object]]:
    """Give the keys of each runtime that was found; Apptainer's other name is none of its own."""
    found: dict[str, Mapping[str, object]] = {}
    node = next((one for one in (seen.node, seen.login) if one.programs), seen.node)
    for name, (path, says) in node.programs.items():
        is_apptainer = "apptainer" in f"{name} {says.partition(' ')[0]}".lower()
        if not (is_apptainer and "apptainer" in found):
            gpu = {"gpu": next(iter(flags.values())) if len(flags) == 1 else flags} if flags else {}
            prefix = "APPTAINER" if is_apptainer else "SINGULARITY"
            found[name] = {"executable": path, "variant": says or name, "prefix": prefix, **gpu}
    return {**found, **seen.login.reads_no_modulefile, **seen.node.reads_no_modulefile}


def _folders(seen: Seen) -> Iterator[dict[str, object]]:
    """Give the file systems. Not bound are those that the runtime mounts by itself, and what the login node lacks."""
    home = seen.login.told.said("HOME")
    node = seen.node if seen.node.told.files else seen.login  # a facts file has no mounts
    for one in folders_of(node, seen.login):
        bound, why = one.path != "/tmp" and has_folder(seen.login, one.path), f"{one.kind} file system"  # noqa: S108
        if f"{home}/".startswith(f"{one.path}/"):
            bound, why = False, "home directories, which the runtime mounts by itself"
        yield {**vars(one), "why": why, "bound": bound}


def _stacks(seen: Seen) -> Iterator[dict[str, object]]:
    """Give what there is of each stack, and on nodes of which kinds."""
    nodes = seen.nodes or {"": seen.login}
    words = [(name, software) for name in gpu_names() for software in vendor(name).software]
    words += [("", software) for maker, software in all_software() if maker.gpu is None]
    for gpu, software in words:
        found = {kind: stack for kind, node in nodes.items() if (stack := _stack_of(node, software, gpu))}
        if found:
            keys = {"name": software.name, "title": software.title, "gpu": gpu, "kinds": list(found)}
            yield next(iter(found.values())) | keys


def _stack_of(node: Node, software: Software, gpu: str) -> dict[str, object]:
    """Give releases and default of a stack; of one for GPUs only where its driver tells what runs.

    Some drivers run all minor releases of their major one; of others the series of the host's own default is taken.
    """
    versions, default = releases_of(node, software)
    keys: dict[str, object] = {}
    if gpu:
        mine = ((name, node.facts.drivers.get(name, Driver())) for name in gpu_of(gpu).drivers)
        name, driver = next((one for one in mine if one[1].version or one[1].build), ("", Driver()))
        if not name or not node.facts.gpus:
            return {}
        keys["driver"] = driver_words(name, driver)
        if firsts := software.drivers:
            text = (driver.version or "").partition(".")[0]
            number = int(text) if text.isdecimal() else 0
            major = next((major for major, first in firsts.items() if number >= first), 0)
            fitting = [one for one in (*versions, default or "") if one and int(one.partition(".")[0]) <= major]
            default, keys["runs"] = [f"{major}.0", *fitting][-1] if major else None, f"<{major + 1}"
        elif default is not None:
            first, second = default.split(".")[:2]
            keys["runs"] = f">={first}.{second},<{first}.{int(second) + 1}"
    if default is None:
        return {}
    releases = {version: "host" if version in versions else "image" for version in [*versions, default]}
    return keys | {"default": default, "releases": releases}


def _partitions(cluster: Cluster) -> Iterator[dict[str, object]]:
    for name, said in cluster.partitions.items():
        mine = Counter(kind.name for kind in cluster.kinds for node in kind.nodes if name in partitions_of(node))
        if mine:
            kind, *others = [one for one, _ in mine.most_common()]
            # Slurm 26.05 says it by a key of its own.
            whole = "EXCLUSIVE" in said.get("OverSubscribe", "") or said.get("Exclusive") == "NODE"
            whole = whole or cluster.config.get("SelectType") == "select/linear"
            keys = {"node_kind": kind, "whole_nodes": "yes" if whole else "no"}
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
