"""Read a node from an hwloc XML file (`lstopo node.xml`), as hwloc 2.x writes it.

Source of the format: "Importing and exporting topologies from/to XML files" in hwloc 2.9's reference manual, and
files that hwloc 2.0 to 2.9 wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from lumisite.findings.finding import Finding, Severity
from lumisite.machine.topology import CoreGroup, Topology, TopologyError, is_gpu, read_node
from lumisite.text import printable

SIZE_LIMIT_BYTES = 8 << 20
"""A node of 8192 PUs needs about a third of it."""

_INPUT_OUTPUT = frozenset({"Bridge", "PCIDev", "OSDev", "Misc"})
_WORD = "(?:(?:0x)?[0-9a-f]{1,8})?"
#: Words of 32 bits, the highest first, an empty word for zero; `0xf...f` for "all there is".
#: Source: hwloc_bitmap_snprintf in hwloc 2.9's reference manual.
_BITMAP = rf"0xf\.\.\.f(?:,{_WORD})*|{_WORD}(?:,{_WORD}){{0,255}}"
#: What hwloc 2 writes in each attribute that is read.
_ATTRIBUTES = {
    "version": r"2(?:\..*)?",
    "os_index": "[0-9]{1,4}",
    "cpuset": _BITMAP,
    "allowed_cpuset": _BITMAP,
    "pci_type": r"([0-9a-f]{4}) \[([0-9a-f]{4}):[0-9a-f]{4}\].*",
    "pci_busid": r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]",
}


def parse_hwloc(data: bytes, file: str) -> Topology:
    """Read the text of an hwloc XML file; `file` is its name for messages. Raises `TopologyError`.

    PUs outside the machine's `allowed_cpuset` count as reserved.
    """
    try:
        read = _HwlocFile(file, ElementTree.fromstring(data))  # noqa: S314 - the user's own file
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise _unfit(file, f"not XML: {error}") from None
    node = read_node(file, _cores(read), {bus: [_near(read, element)] for bus, element in _gpus(read)})
    allowed = read.cpuset(read.objects[0], "allowed_cpuset")
    return node if allowed is None else replace(node, reserved=node.pu_os - allowed)


class _HwlocFile:
    """A file: its `objects` in its order, which is hwloc's logical order."""

    def __init__(self, name: str, top: Element) -> None:
        self.name = name
        self.objects = list(top.iter("object"))
        self._parents = {element: parent for parent in top.iter() for element in parent}
        self.value(top, "version")
        if not self.of_kind("PU"):
            raise _unfit(name, "no PU")

    def of_kind(self, kind: str) -> list[Element]:
        return [element for element in self.objects if element.get("type") == kind]

    def above(self, element: Element) -> Iterator[Element]:
        """Yield what an object is in, the nearest first."""
        while (parent := self._parents.get(element)) is not None:
            yield parent
            element = parent

    def within(self, element: Element, kind: str) -> Element | None:
        return next((above for above in self.above(element) if above.get("type") == kind), None)

    def value(self, element: Element, attribute: str) -> re.Match[str]:
        """Return an attribute, which must be there, with the groups of its pattern."""
        text, name = element.get(attribute, ""), printable(element.get("type", element.tag)[:60])
        if not text:
            raise _unfit(self.name, f"{name} has no {attribute}")
        found = re.fullmatch(_ATTRIBUTES[attribute], text.lower())
        if found is None:
            raise _unfit(self.name, f"{name} has {attribute} {printable(text[:60])}, which hwloc 2 does not write")
        return found

    def number(self, element: Element) -> int:
        """Return the kernel's number of a PU or a NUMA domain."""
        return int(self.value(element, "os_index")[0])

    def cpuset(self, element: Element, attribute: str = "cpuset") -> frozenset[int] | None:
        """Return a set of PUs; None where the object does not have it, or where it has no end."""
        if element.get(attribute) is None:
            return None
        words = self.value(element, attribute)[0].split(",")
        if words[0] == "0xf...f":
            return None
        numbers = [int(word or "0", 16) for word in reversed(words)]
        return frozenset(32 * at + bit for at, number in enumerate(numbers) for bit in range(32) if number >> bit & 1)


def _unfit(file: str, message: str) -> TopologyError:
    advice = "write the file again with hwloc 2: lstopo FILE.xml"
    return TopologyError(Finding("file-unreadable", Severity.FAULT, message, advice, file))


def _cores(read: _HwlocFile) -> Iterator[CoreGroup]:
    """Group PUs into cores. A PU without a core above it (`--filter core:none`) is a core of its own."""
    threads: dict[Element, list[int]] = {}
    for pu in read.of_kind("PU"):
        core = read.within(pu, "Core")
        threads.setdefault(pu if core is None else core, []).append(read.number(pu))
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
        read.value(element, "cpuset")  # must be there
        nodes.append((read.number(element), read.cpuset(element) or frozenset()))
    domains: dict[int, int] = {}
    for number, pus in sorted(nodes, key=lambda node: (len(node[1]), node[0])):
        for pu in pus:
            domains.setdefault(pu, number)
    return domains


def _gpus(read: _HwlocFile) -> Iterator[tuple[str, Element]]:
    """Yield the addresses of the PCI devices that are GPUs, and the devices."""
    for element in read.of_kind("PCIDev"):
        if element.get("pci_type") is not None:
            kind = read.value(element, "pci_type")
            if is_gpu(kind[1], kind[2]):
                yield read.value(element, "pci_busid")[0], element


def _near(read: _HwlocFile, element: Element) -> frozenset[int]:
    """Return the PUs of the nearest object above a GPU that is not input or output itself."""
    above = next((above for above in read.above(element) if above.get("type") not in _INPUT_OUTPUT), None)
    near = None if above is None else read.cpuset(above)
    return frozenset(map(read.number, read.of_kind("PU"))) if near is None else near
