"""What of a capture is compared, as lists of words by subject; `None` where the capture does not know it."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import TypeAlias

from lumisite.facts.change import Texts, Words
from lumisite.facts.facts import Adapter, Device, Facts, Interface, Releases, driver_text
from lumisite.vendors import all_software

WordsOf: TypeAlias = Callable[[Facts], Texts | None]


def value(subject: str, of: Callable[[Facts], str | None]) -> WordsOf:
    """Return a function for a value that each node has, known or not."""

    def words(facts: Facts) -> Texts | None:
        known = of(facts)
        return None if known is None else {subject: (known,)}

    return words


def drivers(facts: Facts) -> Texts:
    """Return the GPU drivers."""
    return {name: (driver_text(name, driver),) for name, driver in facts.drivers.items()}


def runtime(facts: Facts) -> Texts:
    """Return the container runtime: its file, package and digest."""
    program = facts.runtime
    marks = (program.package, program.sha256 and f"sha256 {program.sha256[:12]}")
    return {} if program.real is None else {"container runtime": (program.real, *filter(None, marks))}


# Releases and paths


def stacks(facts: Facts) -> Texts:
    """Return the releases of the software that decides what images run, by its title."""
    return {
        software.title: facts.stacks[software.name].versions
        for _, software in all_software()
        if software.name in facts.stacks
    }


def products(facts: Facts) -> Texts:
    """Return the releases in each folder of a product."""
    return {path: releases.versions for path, releases in _products(facts)}


def _products(facts: Facts) -> Iterator[tuple[str, Releases]]:
    """Yield the folders of products with their releases, but those that are compared as stacks."""
    compared = {software.folders[0].rstrip("/") for _, software in all_software()}
    yield from ((path, releases) for path, releases in facts.products.items() if path not in compared)


def defaults(facts: Facts) -> Texts:
    """Return the default release of software by its title, and of each other product by its folder."""
    titles = [(software.title, facts.stacks.get(software.name, Releases())) for _, software in all_software()]
    return {name: (found.default,) for name, found in (*titles, *_products(facts)) if found.default is not None}


def broken_links(facts: Facts) -> Texts:
    """Return where broken links lead."""
    return {link: (target,) for link, target in facts.dangling.items()}


def paths(facts: Facts) -> Texts:
    """Return what is at each path that the site names, and where its links lead.

    Where the link of a file leads is reported with the library or image; whether a folder is a release, with the
    product.
    """
    return {
        path: (named.kind, *([named.real] if named.real and named.kind != "file" else []))
        for path, named in facts.paths.items()
        if named.kind not in ("none", "unreadable") and posixpath.dirname(path) not in facts.products
    }


def unreadable(facts: Facts) -> Texts:
    """Return what users may not read, with the command that opens it."""
    return {path: (command,) for path, command in facts.unreadable.items()}


# Hardware


def interfaces(facts: Facts) -> Texts:
    """Return what there is to know of each network interface."""
    return {name: _fields(interface) for name, interface in facts.interfaces.items()}


def adapters(facts: Facts) -> Texts:
    """Return what there is to know of each network adapter."""
    return {name: _fields(adapter) for name, adapter in facts.nics.items()}


def gpu_count(facts: Facts) -> Texts | None:
    """Return how many GPUs there are; a capture without CPUs knows none, and has said why."""
    return {"GPUs": (str(len(facts.gpus)),)} if facts.cpus else None


def gpu_buses(facts: Facts) -> Texts | None:
    """Return the PCI addresses of all GPUs."""
    buses = tuple(f"GPU {index} at {gpu.bus}" for index, gpu in enumerate(facts.gpus))
    return {"GPU bus ids": buses} if facts.cpus else None


def gpu_places(facts: Facts) -> Texts | None:
    """Return which CPUs and NUMA domain each GPU is near."""
    places = (Device(numa=gpu.numa, cpus=gpu.cpus) for gpu in facts.gpus)
    return {f"GPU {index}": _fields(place) for index, place in enumerate(places)} if facts.cpus else None


def cpus(facts: Facts) -> Texts:
    """Return the hardware threads of a core, the NUMA domains, and the CPUs of each group."""
    if not facts.cpus:
        return {}
    domains = {group.numa for group in facts.cpus}
    counts = (f"{facts.threads_per_core} threads a core", f"{len(domains)} NUMA domains")
    return {"CPUs": (*counts, *(f"group {group.cpus}" for group in facts.cpus))}


def _fields(thing: Interface | Device | Adapter) -> Words:
    """Return the fields that are known, with their names."""
    found: list[str] = []
    for field in fields(thing):
        known = getattr(thing, field.name) if field.compare else None
        values = known if isinstance(known, tuple) else (known,)
        found += (f"{field.name} {one}" for one in values if one is not None)
    return tuple(found)
