"""Read a node from an hwloc XML file (`lstopo node.xml`), as hwloc 2.x writes it.

Source of the format: "Importing and exporting topologies from/to XML files" in hwloc 2.9's reference manual, and
files that hwloc 2.0 to 2.9 wrote. Nothing outside the text is ever read: no DTD, no entity.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn
from xml.parsers import expat

from lumisite.machine.topology import Core, CoreGroup, Topology, TopologyError, cores_of, gpus_of, is_gpu, place_of
from lumisite.site.cpus import CPU_NUMBER_LIMIT, CpusetError, shown_cpus

SIZE_LIMIT_BYTES = 32 << 20
"""A node of 8192 PUs needs about a tenth of it."""

_OBJECT_LIMIT = 200_000
_DEPTH_LIMIT = 64
_INPUT_OUTPUT = frozenset({"Bridge", "PCIDev", "OSDev", "Misc"})
_PCI_TYPE = re.compile(r"([0-9a-f]{4}) \[([0-9a-f]{4}):[0-9a-f]{4}\]")
_PCI_BUS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\Z")
_WORD = re.compile(r"(?:(?:0x)?[0-9a-f]{1,8})?", re.IGNORECASE)


def parse_hwloc_bitmap(text: str) -> frozenset[int] | None:
    """Read hwloc's bitmap: 32-bit words, the highest first, an empty word for zero.

    `None` for a bitmap without an end (`0xf...f`), which hwloc writes for "all there is". Raises `CpusetError`.
    Source: hwloc_bitmap_snprintf in hwloc 2.9's reference manual.

    >>> sorted(parse_hwloc_bitmap("0x00000001,,0x00000003"))
    [0, 1, 64]
    """
    words = text.strip().split(",")
    if words[0] == "0xf...f":
        return None
    if not text.strip() or not all(map(_WORD.fullmatch, words)):
        raise CpusetError(f"{shown_cpus(text)} is not an hwloc bitmap (such as 0x0000ffff,0xffffffff)")
    if len(words) * 32 > CPU_NUMBER_LIMIT:
        raise CpusetError(f"{shown_cpus(text)} has {len(words)} words (at most {CPU_NUMBER_LIMIT // 32} are read)")
    numbers = [int(word or "0", 16) for word in reversed(words)]
    return frozenset(32 * at + bit for at, number in enumerate(numbers) for bit in range(32) if number >> bit & 1)


@dataclass(frozen=True, eq=False)
class _Object:
    """An `<object>` element; two are never equal, so that they can be keys."""

    file: str
    line: int
    kind: str
    attributes: Mapping[str, str]
    parent: _Object | None

    def fail(self, message: str) -> NoReturn:
        raise TopologyError(f"{self.file}:{self.line}: {self.kind}: {message}")

    def ancestors(self) -> Iterator[_Object]:
        above = self.parent
        while above is not None:
            yield above
            above = above.parent

    def within(self, kind: str) -> _Object | None:
        return next((above for above in self.ancestors() if above.kind == kind), None)

    def text(self, name: str) -> str:
        if name not in self.attributes:
            self.fail(f"attribute {name} is missing")
        return self.attributes[name]

    def matched(self, name: str, pattern: re.Pattern[str], right: str) -> re.Match[str]:
        found = pattern.match(self.text(name).lower())
        return found or self.fail(f"{name} is {self.text(name)[:60]!r} (such as {right} is right)")

    def number(self, name: str) -> int:
        text = self.text(name)
        if not (text.isascii() and text.isdecimal()) or len(text) > 6 or int(text) >= CPU_NUMBER_LIMIT:
            self.fail(f"{name} is {text[:60]!r} (a number from 0 to {CPU_NUMBER_LIMIT - 1} is right)")
        return int(text)

    def bitmap(self, name: str) -> frozenset[int] | None:
        try:
            return parse_hwloc_bitmap(self.text(name))
        except CpusetError as error:
            self.fail(f"{name}: {error}")


def parse_hwloc(data: bytes, file: str) -> Topology:
    """Read the text of an hwloc XML file; `file` is its name for messages. Raises `TopologyError`.

    PUs outside the machine's `allowed_cpuset` count as reserved. GPUs are numbered in the order of their PCI addresses,
    which is the order of the vendors' own tools.
    """
    objects = _objects(data, file)
    pus = [thing for thing in objects if thing.kind == "PU"]
    if not pus:
        raise TopologyError(f"{file}: no PU in it: the cores of the node are missing")
    cores = cores_of(_cores(pus, [thing for thing in objects if thing.kind == "NUMANode"]))
    allowed = objects[0].bitmap("allowed_cpuset") if "allowed_cpuset" in objects[0].attributes else None
    present = frozenset(pu for core in cores for pu in core.pu_os)
    return Topology(
        name=file,
        cores=cores,
        gpus=gpus_of({bus: _place(thing, cores) for bus, thing in _gpus(objects).items()}),
        reserved=present - allowed if allowed is not None else frozenset(),
    )


def _objects(data: bytes, file: str) -> list[_Object]:
    objects: list[_Object] = []
    around: list[_Object | None] = []  # the elements that are open
    parser = expat.ParserCreate()

    def start(tag: str, attributes: Mapping[str, str]) -> None:
        parent = next((above for above in reversed(around) if above is not None), None)
        thing = _Object(file, parser.CurrentLineNumber, attributes.get("type", tag[:60]), attributes, parent)
        if not around and tag != "topology":
            thing.fail("is the outermost element (hwloc's XML has topology)")
        if not around and (version := attributes.get("version", "1")).partition(".")[0] != "2":
            thing.fail(f"hwloc XML version {version[:20]!r} is not known (2 is)")
        if len(around) > _DEPTH_LIMIT or len(objects) >= _OBJECT_LIMIT:
            thing.fail(f"more than {_OBJECT_LIMIT} objects or {_DEPTH_LIMIT} levels: no hwloc file of a node")
        if tag == "object":
            thing.text("type")
            objects.append(thing)
        around.append(thing if tag == "object" else None)

    def refuse(name: str, *_rest: object) -> NoReturn:
        raise TopologyError(f"{file}: declares the entity {name[:60]!r}; hwloc writes none, so this file is refused")

    parser.StartElementHandler, parser.EntityDeclHandler = start, refuse
    parser.EndElementHandler = lambda _tag: around.pop() and None
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        why = expat.ErrorString(error.code) or str(error)
        raise TopologyError(f"{file}:{error.lineno}:{error.offset + 1}: not XML: {why}") from None
    except (ValueError, LookupError) as error:  # an encoding that expat or Python does not have
        raise TopologyError(f"{file}: not XML: {error}") from None
    return objects


def _cores(pus: Iterable[_Object], numa_nodes: Iterable[_Object]) -> Iterator[CoreGroup]:
    """Group PUs into cores, in the file's order, which is hwloc's logical order.

    A PU without a core above it (`--filter core:none`) is a core of its own.
    """
    threads: dict[_Object, list[int]] = {}
    seen: dict[int, _Object] = {}
    for pu in pus:
        os_index = pu.number("os_index")
        if os_index in seen:
            pu.fail(f"os_index {os_index} is also that of the PU in line {seen[os_index].line}")
        seen[os_index] = pu
        threads.setdefault(pu.within("Core") or pu, []).append(os_index)
    numa_of = _numa_of(numa_nodes)
    for core, numbers in threads.items():
        yield numbers, core.within("L3Cache"), numa_of.get(numbers[0]), core.within("Package")


def _numa_of(numa_nodes: Iterable[_Object]) -> dict[int, int]:
    """Give each PU's NUMA domain: of those that hold it, the one with the fewest PUs, then with the lowest number.

    Several can hold it, since memory may be near a whole package. Memory without cores has an empty cpuset and is
    nobody's domain.
    """
    domains: dict[int, int] = {}
    cpusets = ((node.bitmap("cpuset") or frozenset(), node.number("os_index")) for node in numa_nodes)
    for cpuset, number in sorted(cpusets, key=lambda pair: (len(pair[0]), pair[1])):
        for pu in cpuset:
            domains.setdefault(pu, number)
    return domains


def _gpus(objects: Iterable[_Object]) -> dict[str, _Object]:
    found: dict[str, _Object] = {}
    for thing in objects:
        if thing.kind != "PCIDev" or "pci_type" not in thing.attributes:
            continue
        kind = thing.matched("pci_type", _PCI_TYPE, "'0380 [1002:7408] …'")
        if is_gpu(kind[1], kind[2]):
            bus = thing.matched("pci_busid", _PCI_BUS, "0000:c1:00.0")[0]
            if bus in found:
                thing.fail(f"pci_busid {bus} is also that of the device in line {found[bus].line}")
            found[bus] = thing
    return found


def _place(thing: _Object, cores: Sequence[Core]) -> tuple[int | None, int | None]:
    """Place a GPU by the CPUs of the nearest object above it that is not input or output itself."""
    above = next((above for above in thing.ancestors() if above.kind not in _INPUT_OUTPUT), None)
    near = above.bitmap("cpuset") if above is not None and "cpuset" in above.attributes else None
    everywhere = frozenset(pu for core in cores for pu in core.pu_os)
    return place_of(cores, everywhere if near is None else near)
