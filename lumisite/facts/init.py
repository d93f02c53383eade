"""The first text of a site description, from facts of one or more nodes.

What a node's files tell is written with the node as its source. What they do not tell is named in a comment
(`# not read:`), as is a value that only seems right (`# guessed:`). Layout and words are in `site.yaml.j2`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lumisite.facts.capture_hardware import lies_on
from lumisite.facts.facts import Device, Driver, Facts, Interface, Releases, driver_text
from lumisite.machine.library_names import numbers_in
from lumisite.site.cpu_list import CpusetError, format_cpu_list, parse_number_list
from lumisite.site.read import read_file
from lumisite.site.scalars import PCI_BUS
from lumisite.text import natural, printable
from lumisite.vendors import all_fabrics, all_software, gpu_names, gpu_of, vendor
from lumisite.vendors.model import Software

_TEMPLATE = Path(__file__).with_name("site.yaml.j2")
_LARGEST_BYTES = 64 * 1024
_RELEASE = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){1,2}", re.ASCII)
_NAME = re.compile(r"[\w.+@-]{1,100}", re.ASCII)


def describe_site(nodes: Sequence[Facts], date: str) -> str:
    """Return a description of the site of some nodes; the one with most GPUs speaks for the machine."""
    import jinja2  # to capture a node needs no templates

    kinds = _named_kinds(nodes)
    node = max(nodes, key=lambda facts: len(facts.gpus))
    fabric = _fabric(node)
    stacks = list(_stacks(kinds))
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  # not HTML: every value goes through `yaml` or `comment`
    )
    environment.filters.update(yaml=_yaml_text, comment=printable)
    return environment.from_string(read_file(_TEMPLATE, _LARGEST_BYTES).decode()).render(
        date=date,
        hosts=", ".join(map(_host, nodes)),
        source=_source(node),
        node=node,
        runtime=next((facts.runtime for facts in nodes if facts.runtime.real), None),
        fabric=fabric,
        stacks=stacks,
        kinds=[_kind(name, facts, fabric) for name, facts in kinds.items()],
        gpu_bus_ids=dict(_bus_ids(kinds)),
        unread_stacks=list(_unread_stacks(nodes, stacks)),
    )


def _named_kinds(nodes: Sequence[Facts]) -> dict[str, Facts]:
    """Return each node by a name for its kind."""
    found: dict[str, Facts] = {}
    for facts in nodes:
        name = "gpu" if facts.gpus else "cpu"
        count = sum(known.rstrip("0123456789-") == name for known in found)
        found[f"{name}-{count + 1}" if count else name] = facts
    return found


def _host(facts: Facts) -> str:
    name = (facts.host or "").partition(".")[0]
    return name if _NAME.fullmatch(name) else "an unnamed node"


def _source(facts: Facts) -> str:
    return f"here: lumisite facts on {_host(facts)}"


# Network


@dataclass(frozen=True)
class _Fabric:
    """The interfaces and adapters by which nodes exchange data, and the interfaces for management."""

    carrier: str
    adapters: tuple[str, ...]
    interfaces: tuple[str, ...]
    management: tuple[str, ...]


def _fabric(facts: Facts) -> _Fabric:
    """Return the fabric of a node: its fastest interfaces, but for those that lie on one with an address."""
    known = facts.interfaces
    lower = {name: lies_on(name, {each: other.lower for each, other in known.items()}) for name in known}
    up = [name for name in sorted(known, key=natural) if _NAME.fullmatch(name) and _is_up(known[name])]
    alone = {name: known[name].speed_mbit or 0 for name in up if not (lower[name] - {name}).intersection(up)}
    fast = tuple(name for name, speed in alone.items() if speed == max(alone.values()))
    parts = set[str]().union(*(lower[name] for name in fast))
    carrier, adapters = _adapters(facts, {known[part].bus for part in parts if part in known} - {None})
    return _Fabric(carrier, adapters, fast, tuple(name for name in up if not lower[name].intersection(fast)))


def _is_up(interface: Interface) -> bool:
    """Return whether an interface can carry data: it is up and, as far as that is known, has an address."""
    return interface.state in ("up", "unknown") and interface.networks != ()


def _adapters(facts: Facts, buses: Collection[str | None]) -> tuple[str, tuple[str, ...]]:
    """Return what carries data, and its adapters: those at `buses`, where an adapter is also Ethernet."""
    for fabric in all_fabrics():
        found = []
        for name, adapter in facts.nics.items():
            is_kind = adapter.kind in (None, posixpath.basename(fabric.folder))
            is_driven = fabric.driver in ("", adapter.driver)
            is_up = not fabric.link or (fabric.link == adapter.link and adapter.port == "ACTIVE")
            is_fast = fabric.link != "Ethernet" or adapter.bus in buses
            if _NAME.fullmatch(name) and is_kind and is_driven and is_up and is_fast:
                found.append(name)
        if found:
            return fabric.carriers[0], tuple(sorted(found, key=natural))
    return "tcp", ()


# Software


def _stacks(kinds: Mapping[str, Facts]) -> Iterator[dict[str, Any]]:
    """Yield each stack of which a node has releases; one for GPUs only where its driver is loaded."""
    for gpu, software in _products():
        for facts in kinds.values():
            driver = _driver(facts, gpu)
            found = facts.stacks.get(software.name, Releases())
            releases = sorted(filter(_RELEASE.fullmatch, found.versions), key=numbers_in)
            if releases and (driver or not gpu):
                yield {
                    "name": software.name,
                    "title": software.title,
                    "gpu": gpu,
                    "driver": driver,
                    "releases": releases,
                    "default": found.default if found.default in releases else None,
                    "source": _source(facts),
                }
                break


def _products() -> Iterator[tuple[str, Software]]:
    """Yield all software, that of the host first, with the vendor of the GPUs whose driver decides what of it runs."""
    yield from (("", software) for maker, software in all_software() if maker.gpu is None)
    yield from ((gpu, software) for gpu in gpu_names() for software in vendor(gpu).software)


def _driver(facts: Facts, gpu: str) -> str | None:
    """Return the loaded driver of a vendor's GPUs, where the node has GPUs."""
    drivers = {name: facts.drivers.get(name, Driver()) for name in (gpu_of(gpu).drivers if gpu and facts.gpus else ())}
    return next((driver_text(name, one) for name, one in drivers.items() if one.version or one.build), None)


def _unread_stacks(nodes: Sequence[Facts], stacks: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield software of which a node has the driver and no release that was read, with the driver."""
    read = {stack["gpu"] for stack in stacks}
    for gpu in (name for name in gpu_names() if name not in read):
        if driver := next(filter(None, (_driver(facts, gpu) for facts in nodes)), None):
            yield vendor(gpu).software[0].title, driver


# Node kinds


def _kind(name: str, facts: Facts, fabric: _Fabric) -> dict[str, Any]:
    groups = _groups(facts)
    domains = {group["numa"] for group in groups}
    interfaces = {each: facts.interfaces[each].numa for each in fabric.interfaces if each in facts.interfaces}
    return {
        "name": name,
        "source": _source(facts),
        "l3": groups,
        "has_threads": any("siblings" in group for group in groups),
        "has_domains": all(group.numa is not None for group in facts.cpus),
        "count": len(facts.gpus),
        "gpus": [_gpu(gpu, groups) for gpu in facts.gpus] if _are_placed(facts, domains) else [],
        "nics": [{"interface": each, "numa": numa} for each, numa in interfaces.items() if numa in domains],
    }


def _groups(facts: Facts) -> list[dict[str, Any]]:
    """Return the CPUs of each L3 cache; the kernel usually numbers all first threads before all second ones."""
    groups = []
    threads = facts.threads_per_core or 1
    try:
        for group in facts.cpus:
            cpus = parse_number_list(group.cpus)
            cores = max(1, len(cpus) // threads)
            rows = {"cores": cpus[:cores], "siblings": cpus[cores : 2 * cores]}
            found = {key: format_cpu_list(row) for key, row in rows.items() if row}
            groups.append({**found, "numa": group.numa or 0})
    except CpusetError:
        return []
    return groups


def _are_placed(facts: Facts, domains: Collection[int]) -> bool:
    """Return whether the NUMA domain of each GPU is known: of a node with one domain that one."""
    return all(gpu.numa in domains or (gpu.numa is None and len(domains) == 1) for gpu in facts.gpus)


def _gpu(gpu: Device, groups: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the place of a GPU: its NUMA domain, and its L3 group where that is one."""
    try:
        near = set(parse_number_list(gpu.cpus or ""))
    except CpusetError:
        near = set()
    l3 = [at for at, group in enumerate(groups) if near and near >= set(parse_number_list(group["cores"]))]
    return {"numa": groups[0]["numa"] if gpu.numa is None else gpu.numa} | ({"l3": l3[0]} if len(l3) == 1 else {})


def _bus_ids(kinds: Mapping[str, Facts]) -> Iterator[tuple[str, list[str]]]:
    """Yield the addresses of the GPUs of each kind of which a node states all."""
    for name, facts in kinds.items():
        buses = [gpu.bus or "" for gpu in facts.gpus]
        if buses and all(map(PCI_BUS.fullmatch, buses)):
            yield name, buses


# Text


def _yaml_text(value: object) -> str:
    """Return a value in one line. Scalars are texts, as descriptions are read: `24.03` needs no quotes.

    >>> print(_yaml_text({"path": "/a, b", "versions": [24.03, "no"]}))
    {path: '/a, b', versions: [24.03, no]}
    """
    written: str = yaml.serialize(_node([value]), Dumper=yaml.BaseDumper, width=10**6)
    return written.strip()[1:-1]


def _node(value: object) -> yaml.Node:
    """Return a value as a node of YAML; what cannot be shown in a text is spelled out."""
    if isinstance(value, Mapping):
        pairs = [(_node(key), _node(entry)) for key, entry in value.items()]
        return yaml.MappingNode("tag:yaml.org,2002:map", pairs, flow_style=True)
    if isinstance(value, list | tuple):
        return yaml.SequenceNode("tag:yaml.org,2002:seq", [_node(entry) for entry in value], flow_style=True)
    text = str(value)
    return yaml.ScalarNode("tag:yaml.org,2002:str", printable(text) if text else text)
