"""The first text of a site description, from facts of one or more nodes.

What a node's files tell is written with the node as its source. What they do not tell is named in a comment
(`# not read:`), as is a value that only seems right (`# guessed:`). Layout and words are in `site.yaml.j2`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from lumisite.facts.facts import Device, Driver, Facts, driver_text
from lumisite.machine.library_names import numbers_in
from lumisite.site.cpu_list import format_cpu_list, parse_number_list
from lumisite.site.read import read_file
from lumisite.text import natural, printable
from lumisite.vendors import all_fabrics, all_software, gpu_names, gpu_of, vendor

_TEMPLATE = Path(__file__).with_name("site.yaml.j2")
_LARGEST_BYTES = 64 * 1024
#: Releases that a description can have.
_RELEASE = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){1,2}", re.ASCII)


def describe_site(nodes: Sequence[Facts], date: str) -> str:
    """Return a description of the site of some nodes; the one with most GPUs speaks for the machine."""
    import jinja2  # to capture a node needs no templates

    node = max(nodes, key=lambda facts: len(facts.gpus))
    fabric = _fabric(node)
    kinds: list[dict[str, Any]] = []
    for facts in nodes:
        name = "gpu" if facts.gpus else "cpu"
        count = sum(kind["name"].startswith(name) for kind in kinds)
        kinds.append(_kind(f"{name}-{count + 1}" if count else name, facts, fabric["interfaces"]))
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  # not HTML: every value goes through `yaml`
    )
    environment.filters.update(yaml=_yaml_text)
    return environment.from_string(read_file(_TEMPLATE, _LARGEST_BYTES).decode()).render(
        date=date,
        hosts=", ".join(map(_host, nodes)),
        source=_source(node),
        node=node,
        runtime=next((facts.runtime for facts in nodes if facts.runtime.real), None),
        fabric=fabric,
        stacks=list(_stacks(nodes)),
        kinds=kinds,
    )


def _host(facts: Facts) -> str:
    return printable((facts.host or "an unnamed node").partition(".")[0])


def _source(facts: Facts) -> str:
    return f"here: lumisite facts on {_host(facts)}"


def _fabric(facts: Facts) -> dict[str, Any]:
    """Return the interfaces and adapters by which nodes exchange data: the fastest that are up; the others manage."""
    up = [name for name, each in facts.interfaces.items() if each.state in ("up", "unknown")]
    speeds = {name: facts.interfaces[name].speed_mbit or 0 for name in sorted(up, key=natural)}
    fast = [name for name, speed in speeds.items() if speed == max(speeds.values())]
    buses = {facts.interfaces[name].bus for name in fast} - {None}
    carriers: dict[str, list[str]] = {}
    for fabric in all_fabrics():
        for name, adapter in facts.nics.items():
            is_kind = adapter.kind == posixpath.basename(fabric.folder) and fabric.driver in ("", adapter.driver)
            is_up = not fabric.link or (fabric.link == adapter.link and adapter.port == "ACTIVE")
            # An adapter for Ethernet may be for management.
            if is_kind and is_up and (fabric.link != "Ethernet" or adapter.bus in buses):
                carriers.setdefault(fabric.carriers[0], []).append(name)
    carrier, adapters = next(iter(carriers.items()), ("tcp", []))
    management = [name for name in speeds if name not in fast]
    return {"carrier": carrier, "adapters": adapters, "interfaces": fast, "management": management}


def _stacks(nodes: Sequence[Facts]) -> Iterator[dict[str, Any]]:
    """Yield each stack of which a node has releases, those of the host first.

    Those for GPUs count where the vendor's driver is loaded, which decides what runs.
    """
    products = [("", software) for maker, software in all_software() if maker.gpu is None]
    products += [(gpu, software) for gpu in gpu_names() for software in vendor(gpu).software]
    for gpu, software in products:
        for facts in (facts for facts in nodes if software.name in facts.stacks):
            found, driver = facts.stacks[software.name], _driver(facts, gpu)
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


def _driver(facts: Facts, gpu: str) -> str | None:
    """Return the loaded driver of a vendor's GPUs, where the node has GPUs."""
    drivers = {name: facts.drivers.get(name, Driver()) for name in (gpu_of(gpu).drivers if gpu and facts.gpus else ())}
    return next((driver_text(name, one) for name, one in drivers.items() if one.version or one.build), None)


def _kind(name: str, facts: Facts, interfaces: Sequence[str]) -> dict[str, Any]:
    """Return a node kind; its GPUs where their NUMA domains are known: of a node with one domain that one."""
    groups = [_group(group.cpus, group.numa or 0, facts.threads_per_core or 1) for group in facts.cpus]
    domains = {group["numa"] for group in groups}
    are_placed = all(gpu.numa in domains or (gpu.numa is None and len(domains) == 1) for gpu in facts.gpus)
    places = {each: facts.interfaces[each].numa for each in interfaces if each in facts.interfaces}
    return {
        "name": name,
        "source": _source(facts),
        "l3": groups,
        "count": len(facts.gpus),
        "gpus": [_gpu(gpu, groups) for gpu in facts.gpus] if are_placed else [],
        "buses": [gpu.bus for gpu in facts.gpus],
        "nics": [{"interface": each, "numa": numa} for each, numa in places.items() if numa in domains],
    }


def _group(text: str, numa: int, threads: int) -> dict[str, Any]:
    """Return the CPUs of an L3 cache; the kernel usually numbers all first threads before all second ones."""
    cpus = parse_number_list(text)
    cores = len(cpus) // threads
    rows = {"cores": cpus[:cores], "siblings": cpus[cores : 2 * cores]}
    return {**{key: format_cpu_list(row) for key, row in rows.items() if row}, "numa": numa}


def _gpu(gpu: Device, groups: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the place of a GPU: its NUMA domain, and its L3 group where that is one."""
    near = set(parse_number_list(gpu.cpus or ""))
    l3 = [at for at, group in enumerate(groups) if near and near >= set(parse_number_list(group["cores"]))]
    return {"numa": groups[0]["numa"] if gpu.numa is None else gpu.numa} | ({"l3": l3[0]} if len(l3) == 1 else {})


def _yaml_text(value: object) -> str:
    """Return a value in one line of YAML.

    >>> print(_yaml_text({"path": "/a, b", "versions": ["24.03", "no"]}))
    {path: '/a, b', versions: ['24.03', 'no']}
    """
    text: str = yaml.safe_dump([value], default_flow_style=True, sort_keys=False, width=float("inf"))
    return text.strip()[1:-1]
