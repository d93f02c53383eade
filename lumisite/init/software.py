"""The releases of software that nodes have, and what could not be read of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lumisite.facts.facts import Driver, driver_text
from lumisite.init.node import Node, releases_of, unclear_releases
from lumisite.text import some
from lumisite.vendors import all_software, gpu_names, gpu_of, vendor
from lumisite.vendors.model import Software


@dataclass(frozen=True)
class StackFound:
    """A stack as nodes have it: its releases, the default, on nodes of which kinds, and on which node this was read.

    `is_linked` says whether a link names the default. `gpu` is the vendor of GPUs whose driver decides what runs.
    """

    software: Software
    gpu: str
    node: str
    releases: tuple[str, ...]
    default: str
    is_linked: bool
    driver: str | None = None
    runs: str | None = None
    kinds: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Its name as a stack of the site."""
        return self.software.name


def stacks_of(nodes: Mapping[str, Node]) -> tuple[list[StackFound], list[dict[str, Any]]]:
    """Return the stacks of nodes, which come by their kinds, and a question for each whose releases were not read."""
    pairs = [(name, software) for name in gpu_names() for software in vendor(name).software]
    pairs += [("", software) for maker, software in all_software() if maker.gpu is None]
    found: list[StackFound] = []
    questions: list[dict[str, Any]] = []
    for gpu, software in pairs:
        stacks = {kind: stack for kind, node in nodes.items() if (stack := _stack_of(node, software, gpu))}
        if stacks:
            first = next(iter(stacks.values()))
            first.kinds.extend(stacks)
            found.append(first)
        for node in nodes.values():
            new = _questions(node, software, gpu, bool(stacks))
            questions += [question for question in new if question not in questions]
    return found, questions


def _questions(node: Node, software: Software, gpu: str, is_found: bool) -> Iterator[dict[str, Any]]:
    """Yield what is open on a node; the template has the words."""
    values = {"node": node.name, "title": software.title, "stack": software.name}
    if unclear := unclear_releases(node, software):
        yield {"name": "unclear", "folders": some(unclear, 3, ", "), **values}
    if (loaded := _driver_of(node, gpu)) and not is_found:
        yield {"name": "no-release", "driver": driver_text(*loaded), **values}


def _driver_of(node: Node, gpu: str) -> tuple[str, Driver] | None:
    """Return the loaded driver of a vendor's GPUs, where the node has GPUs."""
    drivers = {name: node.facts.drivers.get(name, Driver()) for name in (gpu_of(gpu).drivers if gpu else ())}
    loaded = ((name, driver) for name, driver in drivers.items() if driver.version or driver.build)
    return next(loaded, None) if node.gpus else None


def _stack_of(node: Node, software: Software, gpu: str) -> StackFound | None:
    """Return the releases and the default of a stack; of one for GPUs only where its driver is loaded.

    Some drivers run all minor releases of their major one; of others the series of the host's own default is taken.
    """
    versions, linked = releases_of(node, software)
    loaded, runs = _driver_of(node, gpu), None
    if gpu and loaded is None:
        return None
    fitting = versions
    if loaded and software.drivers:
        text = (loaded[1].version or "").partition(".")[0]
        number = int(text) if text.isdecimal() else 0
        major = next((int(major) for major, least in software.drivers.items() if number >= least), 0)
        fitting = [version for version in versions if int(version.partition(".")[0]) <= major]
        runs = f"<{major + 1}"
    default = linked if linked in fitting else fitting[-1] if fitting else None
    if default is None:
        return None
    if loaded and runs is None:
        first, second = default.split(".")[:2]
        runs = f">={first}.{second},<{first}.{int(second) + 1}"
    driver = driver_text(*loaded) if loaded else None
    return StackFound(software, gpu, node.name, tuple(versions), default, default == linked, driver, runs)
