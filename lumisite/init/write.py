"""Write what was seen as a site description: values with their source, guesses, and questions for the rest."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from lumisite.facts.change import driver_words
from lumisite.init.known import CACHES, CUDA_DRIVERS, SOFTWARE, STACKS
from lumisite.init.machine import kind_lines
from lumisite.init.node import Fabric, Folder, Node, fabric_of, folders_of, has_folder, releases_of, speed_words
from lumisite.init.slurm import Cluster, partitions_of
from lumisite.text import flow, yaml_key, yaml_text

Lines = Iterator[str]


@dataclass(frozen=True)
class Seen:
    """All that was seen: Slurm (none, where it is not), one node of each kind that answered, and the login node.

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

    def source(self, node: Node | None) -> str:
        """Say where a value was read."""
        return yaml_text(f"here: read on {node.name if node else 'the login node, of Slurm'}, {self.date}")

    @property
    def node(self) -> Node:
        """The node that speaks for the machine: one with GPUs first."""
        return max(self.nodes.values(), key=lambda node: len(node.facts.gpus), default=self.login)


def describe(seen: Seen) -> list[str]:
    """Give the lines of the description."""
    node = seen.node
    slurm = next((one for kind in seen.cluster.kinds for one in kind.nodes if one.name == node.name), None)
    fabric = fabric_of(node, seen.address(slurm.said.get("NodeAddr", slurm.name) if slurm else node.name))
    folders = list(folders_of(node, seen.login))
    stacks = _stacks(seen)
    runtime, runtime_lines = _runtimes(seen, [name for name in stacks if STACKS[name].flag])
    bound = [folder for folder in folders if folder.kind == "shared" or _local_is_bound(seen, folder)]
    home = seen.login.told.said("HOME")
    bound = [one for one in bound if not f"{home}/".startswith(f"{one.path}/")]
    images = seen.images([one.path for one in folders if one.kind == "shared"])
    host = _host_paths(seen, f"{runtime}-hostlibraries")
    return [
        f"# Written by `lumisite init` on {seen.login.name}, {seen.date}. Values have their node and date as `source`;",
        "# what a comment calls guessed was not read, and the command beside it would tell. Answer each QUESTION.",
        *(f"# note: {note}" for note in map(_comment, seen.notes)),
        "lumisite: 2",
        f"name: {yaml_text(seen.name)}",
        "# QUESTION: what do people call the machine?",
        f"title: {yaml_text(seen.name)}",
        *_root(folders, home),
        "# QUESTION: who helps users of these modules, and how are they reached?",
        f"support: {flow({'name': f'the support of {seen.name}', 'contact': 'unknown'})}",
        "",
        *runtime_lines,
        "",
        *_fabric(seen, fabric),
        "",
        *_file_systems(seen, folders, bound, f"{runtime}-userfilesystems"),
        "",
        *_platform(seen, stacks),
        "",
        *kind_lines(seen.cluster, seen.nodes, fabric, seen.source),
        *_partitions(seen),
        "",
        *_families(
            seen, images, stacks, [f"{runtime}-userfilesystems", *([f"{runtime}-hostlibraries"] if host else [])]
        ),
        *_binds(seen, host),
        *_settings(seen, fabric, stacks),
        *_modules(seen, runtime, stacks, host=bool(host)),
    ]


def _comment(text: str) -> str:
    return " ".join(text.split()) if text.isprintable() else ascii(text)


def _root(folders: list[Folder], home: str) -> Lines:
    shared = [one.path for one in folders if one.kind == "shared" and not f"{home}/".startswith(f"{one.path}/")]
    named = [path for path in shared if posixpath.basename(path) in SOFTWARE]
    top = next(iter([*named, *shared]), "/opt")
    yield f"# guessed: a folder that all nodes see, and in which you may write (`findmnt {top}`)"
    yield f"root: {yaml_text(f'{top}/lumisite')}"


def _runtimes(seen: Seen, gpus: list[str]) -> tuple[str, list[str]]:
    """Give the name of the runtime that is the default, and the lines of all."""
    found: dict[str, tuple[str, str, Node]] = {}
    for node in (seen.node, seen.login):
        for name in ("apptainer", "singularity"):
            path, says = node.told.said(f"{name} path"), node.told.said(name)
            real = node.facts.runtime.real if node.facts.runtime.real and not node.told.files else None
            if real and posixpath.basename(real) == name:
                path, says = real, node.facts.runtime.package or name
            if path.startswith("/") and path.isascii() and path.isprintable():
                found.setdefault(name, (path, says or name, node))
        if found:
            break
    if "apptainer" in found and "singularity" in found and "apptainer" in found["singularity"][1].lower():
        del found["singularity"]  # another name of the same program
    lines = ["runtimes:"]
    for name, (path, says, node) in found.items():
        prefix = "APPTAINER" if "apptainer" in (name, says.split(" ")[0].lower()) else "SINGULARITY"
        keys = {"executable": path, "variant": says[:80], "prefix": prefix}
        if len(gpus) == 1:
            keys["gpu"] = STACKS[gpus[0]].flag
        lines += [f"  {name}:", *(f"    {key}: {yaml_text(value)}" for key, value in keys.items())]
        lines.append(f"    source: {seen.source(node)}")
    if not found:
        lines.insert(0, "# guessed: no runtime was on PATH (`command -v apptainer singularity` in a job)")
        lines.append(f"  apptainer: {{variant: unknown, prefix: APPTAINER, source: {seen.source(seen.node)}}}")
    return next(iter(found), "apptainer"), lines


def _fabric(seen: Seen, fabric: Fabric) -> Lines:
    node = seen.node
    known = node.facts.interfaces
    for name in (*fabric.interfaces, *fabric.management):
        yield f"# {name}: {speed_words(known.get(name))}, {'fast' if name in fabric.interfaces else 'management'}"
    if not fabric.interfaces:
        yield "# guessed: no interface with an address was seen (`ip -brief address` on a compute node)"
    elif not fabric.management:
        yield "# guessed: all interfaces carry data (`ip -brief address` on a compute node)"
    if fabric.carrier in ("RoCE", "IB", "EFA"):
        yield f"# guessed: jobs use {fabric.carrier} (NCCL_DEBUG=INFO in a job of two nodes, then `lumisite transport`)"
    keys: dict[str, object] = {"carrier": fabric.carrier}
    keys |= {"adapters": list(fabric.adapters)} if fabric.adapters else {}
    keys |= {"interfaces": list(fabric.interfaces), "management": list(fabric.management)}
    if fabric.interfaces and seen.address(f"{node.name}-{fabric.interfaces[0]}"):
        keys["host_suffix"] = f"-{fabric.interfaces[0]}"
    yield "fabric:"
    yield from (f"  {key}: {flow(value)}" for key, value in keys.items())
    yield f"  source: {seen.source(node)}"


def _local_is_bound(seen: Seen, folder: Folder) -> bool:
    """Containers bring /tmp themselves; and what the login node lacks cannot be bound where modules are loaded."""
    return folder.path != "/tmp" and has_folder(seen.login, folder.path)  # noqa: S108


def _file_systems(seen: Seen, folders: list[Folder], bound: list[Folder], module: str) -> Lines:
    yield "file_systems:" if folders else "file_systems: []"
    if not folders:
        yield "# guessed: none was seen (`findmnt` on a compute node)"
    for one in folders:
        keys: dict[str, object] = {"path": one.path, "kind": one.kind}
        what = "file system of all nodes" if one.kind == "shared" else "file system of each node"
        if one in bound:
            keys["where"] = module
        elif one.kind == "shared":
            what = "home directories, which the runtime mounts by itself"
        keys["why"] = f"{what} ({one.type})"
        yield f"  - {{{flow(keys)[1:-1]}, source: {seen.source(seen.node)}}}"


def _stacks(seen: Seen) -> dict[str, dict[str, object]]:
    """Give what there is of each stack: `default`, `releases`, and for GPUs `driver` and `runs`."""
    found: dict[str, dict[str, object]] = {}
    for name, known in STACKS.items():
        for node in seen.nodes.values() or [seen.login]:
            versions, default = releases_of(node, name)
            if known.gpu:
                driver = node.facts.drivers.get(known.driver)
                fits = _runs(node, name, default) if driver and node.facts.gpus else None
                if driver and fits:
                    words = driver_words(known.driver, driver)
                    found.setdefault(name, {"default": fits[0], "releases": versions, "driver": words, "runs": fits[1]})
            elif versions:
                found.setdefault(name, {"default": default, "releases": versions})
    return found


def _runs(node: Node, name: str, default: str | None) -> tuple[str, str] | None:
    """Give the default of a stack with GPUs, and the releases that its driver runs; nothing where none can be told."""
    if STACKS[name].gpu == "nvidia":
        version = (node.facts.drivers["nvidia"].version or "").partition(".")[0]
        number = int(version) if version.isascii() and version.isdecimal() and len(version) < 6 else 0
        major = next((major for major, first in CUDA_DRIVERS.items() if number >= first), None)
        if major is None:
            return None
        fits = default is not None and int(default.partition(".")[0]) <= major
        return (default if fits and default else f"{major}.0"), f"<{major + 1}"
    if default is None:
        return None
    numbers = default.split(".")
    return default, f">={numbers[0]}.{numbers[1]},<{numbers[0]}.{int(numbers[1]) + 1}"


def _platform(seen: Seen, stacks: dict[str, dict[str, object]]) -> Lines:
    yield "stacks:" if stacks else "stacks: {}"
    node, now = seen.node, seen.date[:7]
    for name, one in stacks.items():
        known, on_host = STACKS[name], one["releases"]
        assert isinstance(on_host, list)
        yield f"  {name}:"
        yield f"    title: {known.title}"
        yield from [f"    gpu: {known.gpu}"] if known.gpu else []
        yield "    releases:"
        for version in dict.fromkeys([*on_host, str(one["default"])]):
            found = f"found: {'host' if version in on_host else 'image'}, " if known.gpu else ""
            yield f"      {yaml_text(version)}: {{{found}source: {seen.source(node)}}}"
    facts = node.facts
    yield f"platform: {now}"
    yield "platforms:"
    yield f"  {now}:"
    yield "    # guessed: the day on which this was read (your log of maintenances tells since when)"
    yield f"    since: {seen.date}"
    yield f"    os: {yaml_text(facts.os.name or 'unknown')}"
    version = seen.cluster.config.get("SLURM_VERSION", facts.slurm or "")
    yield from [f"    slurm: {version}"] if version.replace(".", "").isdecimal() else []
    yield from [f"    kernel: {yaml_text(facts.kernel.release)}"] if facts.kernel.release else []
    yield "    stacks:" if stacks else "    stacks: {}"
    for name, one in stacks.items():
        keys = {"default": one["default"]}
        keys |= {"driver": one["driver"], "runs": one["runs"]} if STACKS[name].gpu else {"supported": one["releases"]}
        if STACKS[name].gpu:
            yield f"      # guessed: what the driver runs (the release notes of {STACKS[name].title} tell)"
        yield f"      {name}: {flow(keys)}"
    buses = {name: [gpu.bus for gpu in one.facts.gpus if gpu.bus] for name, one in seen.nodes.items()}
    buses = {name: known for name, known in buses.items() if known and len(known) == len(seen.nodes[name].facts.gpus)}
    yield from [f"    gpu_bus_ids: {flow(buses)}"] if buses else []
    yield f"    source: {seen.source(node)}"
    yield "    confirmed: no"


def _partitions(seen: Seen) -> Lines:
    rows = []
    for name, said in seen.cluster.partitions.items():
        mine = Counter(kind.name for kind in seen.cluster.kinds for node in kind.nodes if name in partitions_of(node))
        if not mine:
            rows.append(f"  # {name}: has no nodes that are described here")
            continue
        kind, *others = [one for one, _ in mine.most_common()]
        if others:
            rows.append(f"  # {name} also has nodes of {', '.join(others)} (`scontrol show partition {name}`)")
        whole = said.get("OverSubscribe") == "EXCLUSIVE" or seen.cluster.config.get("SelectType") == "select/linear"
        keys: dict[str, object] = {"node_kind": kind, "whole_nodes": "yes" if whole else "no"}
        most = said.get("MaxNodes", "")
        keys |= {"max_nodes": most} if most.isascii() and most.isdecimal() else {}
        rows.append(f"  {yaml_key(name)}: {{{flow(keys)[1:-1]}, source: {seen.source(None)}}}")
    for key in ("Prolog", "TaskProlog", "SrunProlog", "JobContainerType", "MpiDefault"):
        if said_of := seen.cluster.config.get(key, ""):
            rows.insert(0, f"  # Slurm has {key} = {_comment(said_of)}")
    yield "partitions:" if any(not row.startswith("  #") for row in rows) else "partitions: {}"
    yield from rows


def _families(seen: Seen, images: tuple[str, ...], stacks: Iterable[str], modules: list[str]) -> Lines:
    keys: dict[str, object] = {"title": "images of this machine", "paths": [f"{one}/*" for one in images] or ["*.sif"]}
    if gpus := [name for name in stacks if STACKS[name].gpu]:
        keys["default_for"] = dict.fromkeys(gpus, ">=0")
    keys |= {"modules": modules, "plugin": "none", "why": "nothing is known of what they lack"}
    yield "# guessed: images need the file systems alone (`lumisite binds IMAGE` tells what one needs from the host)"
    yield "families:"
    yield "  images:"
    yield from (f"    {key}: {flow(value)}" for key, value in keys.items())
    yield f"    source: {seen.source(seen.login)}"
    yield "    confirmed: no"
    if images:
        yield "images:"
        yield "  folders:"
        yield from (f"    - {{path: {yaml_text(one)}, source: {seen.source(seen.login)}}}" for one in images)


def _host_paths(seen: Seen, module: str) -> list[dict[str, object]]:
    """Give what containers take from the host beside file systems."""
    if not seen.node.facts.nics or not has_folder(seen.node, "/opt/cray"):
        return []
    return [{"path": "/opt/cray", "where": module, "why": "libfabric and MPI of the host, which drive its adapters"}]


def _binds(seen: Seen, host: list[dict[str, object]]) -> Lines:
    rows = list(host)
    spool = seen.cluster.config.get("SlurmdSpoolDir", "")
    if spool.startswith("/") and "%" not in spool and has_folder(seen.node, spool):
        why = "Slurm's process manager interface keeps its sockets there, on compute nodes only"
        rows.append({"path": spool, "where": "task", "required": "no", "why": why})
    yield "binds:" if rows else "binds: []"
    yield from (f"  - {{{flow(row)[1:-1]}, source: {seen.source(seen.node)}}}" for row in rows)


def _settings(seen: Seen, fabric: Fabric, stacks: Iterable[str]) -> Lines:
    rows: list[dict[str, object]] = []
    if fabric.interfaces:
        why = "the libraries otherwise choose by themselves, and may take the network for management"
        rows.append({"name": "NCCL_SOCKET_IFNAME", "value": ",".join(fabric.interfaces), "why": why})
        why = "gloo otherwise takes the network of the host's name"
        rows.append({"name": "GLOO_SOCKET_IFNAME", "value": fabric.interfaces[0], "why": why})
    rows.append({"name": "MASTER_ADDR", "computed": "master-address", "why": "the first node of the step"})
    rows.append({"name": "MASTER_PORT", "computed": "master-port", "why": "a fixed one collides in a shared node"})
    why = "packages in ~/.local would hide those of the image"
    rows.append({"name": "PYTHONNOUSERSITE", "value": "1", "why": why})
    for vendor in {STACKS[name].gpu for name in stacks}:
        rows += ({"name": name, "directory": at, "why": why} for name, at, why in CACHES.get(vendor, ()))
    yield "settings:"
    yield from (f"  - {{{flow(row)[1:-1]}, source: {seen.source(seen.node)}}}" for row in rows)


def _modules(seen: Seen, runtime: str, stacks: Iterable[str], *, host: bool) -> Lines:
    systems = module_systems(seen.login) or module_systems(seen.node)
    if not systems:
        yield "# guessed: the module system (`module --version` in a login shell)"
    installed = [name for name in stacks if not STACKS[name].gpu]
    gpus = [name for name in stacks if STACKS[name].gpu]
    files, rows = "singularity-userfilesystems", list[tuple[str, str, list[str], str]]()
    rows.append(("userfilesystems", files, [], "Binds the user file systems into containers"))
    if host:
        rows.append(("hostlibraries", "singularity-CPEbits", installed, "Binds libraries of the host into containers"))
    rows.append(("AI-bindings", "singularity-AI-bindings", installed + gpus, "Everything that AI containers need here"))
    yield "modules:"
    for end, template, version, summary in rows:
        yield f"  {runtime}-{end}:"
        yield f"    template: {template}"
        yield f"    version: {flow(version or ['platform'])}"
        yield f"    summary: {summary}"
        yield from [f"    systems: {flow(systems)}"] if systems not in ([], ["lmod"]) else []
        if end == "AI-bindings":
            yield f"    loads: {flow([f'{runtime}-{one}' for one, *_ in rows[:-1]])}"
            yield "    helper: yes"


def module_systems(node: Node) -> list[str]:
    """Give the module system that a node's shells have: by their variables, else by what is installed."""
    told = node.told
    lmod, modules = bool(told.said("LMOD_VERSION")), bool(told.said("MODULES_CMD"))
    if not lmod and not modules:
        lmod = has_folder(node, "/usr/share/lmod")
        modules = any(has_folder(node, f"/usr/share/{name}odules") for name in "mM")
    return ["lmod"] if lmod else ["tcl"] if modules else []
