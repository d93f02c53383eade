"""Read a node from an hwloc XML file (`lstopo node.xml`), as hwloc 2.x writes it.

Source of the format: "Importing and exporting topologies from/to XML files" in hwloc 2.9's reference manual, and
files that hwloc 2.0 to 2.9 wrote. Nothing outside the text is ever read: no DTD, no entity of another file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeVar
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from lumisite.findings.finding import Finding, Place, Severity
from lumisite.machine.topology import Core, CoreGroup, Topology, TopologyError, cores_of, gpus_of, is_gpu, place_of
from lumisite.site.cpu_list import CPU_NUMBER_LIMIT
from lumisite.text import printable

SIZE_LIMIT_BYTES = 8 << 20
"""A node of 8192 PUs needs about a third of it."""

_INPUT_OUTPUT = frozenset({"Bridge", "PCIDev", "OSDev", "Misc"})
_PCI_TYPE = re.compile(r"([0-9a-f]{4}) \[([0-9a-f]{4}):[0-9a-f]{4}\]")
_PCI_BUS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\Z")
_VERSION = re.compile(r"2(?:\.|\Z)")
_NUMBER = re.compile(r"[0-9]{1,6}\Z")
_WORD = re.compile(r"(?:(?:0x)?[0-9a-f]{1,8})?\Z", re.IGNORECASE)

_T = TypeVar("_T")


def parse_hwloc_bitmap(text: str) -> frozenset[int] | None:
    """Read hwloc's bitmap: 32-bit words, the highest first, an empty word for zero.

    `None` for a bitmap without an end (`0xf...f`), which hwloc writes for "all there is". Raises `ValueError`.
    Source: hwloc_bitmap_snprintf in hwloc 2.9's reference manual.

    >>> sorted(parse_hwloc_bitmap("0x00000001,,0x00000003"))
    [0, 1, 64]
    """
    words = text.strip().split(",")
    if words[0] == "0xf...f":
        return None
    if not text.strip() or len(words) * 32 > CPU_NUMBER_LIMIT or not all(map(_WORD.match, words)):
        raise ValueError(text)
    numbers = [int(word or "0", 16) for word in reversed(words)]
    return frozenset(32 * at + bit for at, number in enumerate(numbers) for bit in range(32) if number >> bit & 1)


@dataclass(frozen=True)
class _HwlocFile:
    """A file: its `objects` in its order, which is hwloc's logical order; the `parents` and `lines` of its elements."""

    name: str
    objects: Sequence[Element]
    parents: Mapping[Element, Element]
    lines: Mapping[Element, int]

    def of_kind(self, kind: str) -> list[Element]:
        return [element for element in self.objects if element.get("type") == kind]

    def ancestors(self, element: Element) -> Iterator[Element]:
        parent = self.parents.get(element)
        while parent is not None:
            yield parent
            parent = self.parents.get(parent)

    def within(self, element: Element, kind: str) -> Element | None:
        return next((above for above in self.ancestors(element) if above.get("type") == kind), None)

    def value(self, element: Element, attribute: str, parse: Callable[[str], _T]) -> _T:
        """Return what `parse` makes of an attribute, which must be there."""
        text = element.get(attribute, "")
        try:
            return parse(text)
        except ValueError:
            raise self.unfit(element, attribute, text) from None

    def unfit(self, element: Element, attribute: str, text: str) -> TopologyError:
        name = printable(element.get("type", element.tag)[:60])
        location = Place(self.name, self.lines[element])
        if not text:
            return _unfit(f"{name} has no {attribute}", location)
        return _unfit(f"{name} has {attribute} {printable(text[:60])}, which hwloc 2 does not write", location)


def parse_hwloc(data: bytes, file: str) -> Topology:
    """Read the text of an hwloc XML file; `file` is its name for messages. Raises `TopologyError`.

    PUs outside the machine's `allowed_cpuset` count as reserved. GPUs are numbered in the order of their PCI addresses,
    which is the order of the vendors' own tools.
    """
    top, lines = _parse_xml(data, file)
    parents = {element: parent for parent in top.iter() for element in parent}
    read = _HwlocFile(file, list(top.iter("object")), parents, lines)
    read.value(top, "version", _matched(_VERSION))
    pus = read.of_kind("PU")
    if not pus:
        raise _unfit("no PU", Place(file))
    cores = cores_of(_cores(read, pus))
    present = frozenset(pu for core in cores for pu in core.pu_os)
    allowed = _cpuset(read, read.objects[0], "allowed_cpuset")
    return Topology(
        name=file,
        cores=cores,
        gpus=gpus_of({bus: _place(read, element, cores) for bus, element in _gpus(read).items()}),
        reserved=frozenset() if allowed is None else present - allowed,
    )


def _parse_xml(data: bytes, file: str) -> tuple[Element, Mapping[Element, int]]:
    """Return the outermost element, and the line in which each element begins: ElementTree alone keeps no lines."""
    builder, lines = TreeBuilder(), dict[Element, int]()
    parser = expat.ParserCreate()

    def start(tag: str, attributes: dict[str, str]) -> None:
        lines[builder.start(tag, attributes)] = parser.CurrentLineNumber

    def refuse(name: str, *_: object) -> NoReturn:
        # hwloc declares none, and what they grow to is limited only by new versions of expat.
        location = Place(file, parser.CurrentLineNumber)
        raise _no_hwloc(f"declares the entity {printable(name[:60])}, as hwloc never does", location)

    parser.StartElementHandler, parser.EntityDeclHandler = start, refuse
    parser.EndElementHandler = builder.end
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        location, reason = Place(file, error.lineno, error.offset + 1), expat.ErrorString(error.code)
        raise _no_hwloc(f"not XML: {reason}", location) from None
    except (ValueError, LookupError) as error:  # an encoding that is not known
        raise _no_hwloc(f"not XML: {error}", Place(file)) from None
    return builder.close(), lines


def _no_hwloc(message: str, place: Place) -> TopologyError:
    advice = "write the file again: lstopo FILE.xml"
    return TopologyError(Finding("file-unreadable", Severity.FAULT, message, advice, place=place))


def _unfit(message: str, place: Place) -> TopologyError:
    advice = "write the file again with hwloc 2: lstopo FILE.xml"
    return TopologyError(Finding("file-unreadable", Severity.FAULT, message, advice, place=place))


def _matched(pattern: re.Pattern[str]) -> Callable[[str], re.Match[str]]:
    """Return a function that matches a text, or raises `ValueError`."""

    def match(text: str) -> re.Match[str]:
        found = pattern.match(text.lower())
        if found is None:
            raise ValueError(text)
        return found

    return match


def _number(text: str) -> int:
    number = int(_matched(_NUMBER)(text)[0])
    if number >= CPU_NUMBER_LIMIT:
        raise ValueError(text)
    return number


def _cpuset(read: _HwlocFile, element: Element, attribute: str) -> frozenset[int] | None:
    """Return a set of PUs; None where the object does not have it, or where it has no end."""
    return None if element.get(attribute) is None else read.value(element, attribute, parse_hwloc_bitmap)


def _cores(read: _HwlocFile, pus: Iterable[Element]) -> Iterator[CoreGroup]:
    """Group PUs into cores. A PU without a core above it (`--filter core:none`) is a core of its own."""
    threads: dict[Element, list[int]] = {}
    seen: set[int] = set()
    for pu in pus:
        number = read.value(pu, "os_index", _number)
        if number in seen:
            raise read.unfit(pu, "os_index", f"{number}, {number}")
        seen.add(number)
        core = read.within(pu, "Core")
        threads.setdefault(pu if core is None else core, []).append(number)
    numa_of = _numa_of(read)
    for core, numbers in threads.items():
        yield numbers, read.within(core, "L3Cache"), numa_of.get(numbers[0]), read.within(core, "Package")


def _numa_of(read: _HwlocFile) -> dict[int, int]:
    """Return each PU's NUMA domain: of those that hold it, the one with the fewest PUs, then with the lowest number.

    Several can hold it, since memory may be near a whole package. Memory without cores has an empty cpuset and is
    nobody's domain.
    """
    nodes: list[tuple[int, frozenset[int]]] = []
    for element in read.of_kind("NUMANode"):
        cpuset = read.value(element, "cpuset", parse_hwloc_bitmap)
        nodes.append((read.value(element, "os_index", _number), cpuset or frozenset()))
    domains: dict[int, int] = {}
    for number, pus in sorted(nodes, key=lambda node: (len(node[1]), node[0])):
        for pu in pus:
            domains.setdefault(pu, number)
    return domains


def _gpus(read: _HwlocFile) -> dict[str, Element]:
    """Return the PCI devices that are GPUs, by their addresses."""
    found: dict[str, Element] = {}
    for element in read.of_kind("PCIDev"):
        if element.get("pci_type") is None:
            continue
        kind = read.value(element, "pci_type", _matched(_PCI_TYPE))
        if is_gpu(kind[1], kind[2]):
            bus = read.value(element, "pci_busid", _matched(_PCI_BUS))[0]
            if bus in found:
                raise read.unfit(element, "pci_busid", f"{bus}, {bus}")
            found[bus] = element
    return found


def _place(read: _HwlocFile, element: Element, cores: Sequence[Core]) -> tuple[int | None, int | None]:
    """Place a GPU by the CPUs of the nearest object above it that is not input or output itself."""
    above = next((above for above in read.ancestors(element) if above.get("type") not in _INPUT_OUTPUT), None)
    near = None if above is None else _cpuset(read, above, "cpuset")
    everywhere = frozenset(pu for core in cores for pu in core.pu_os)
    return place_of(cores, everywhere if near is None else near)
