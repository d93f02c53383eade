"""Make the XML files of this folder anew: `python tests/data/nodes/make.py`, with hwloc's lstopo 2.x installed.

hwloc makes the cores, caches and NUMA domains (its synthetic topologies), this script hangs the GPUs and adapters
where hwloc shows them on such nodes, and hwloc reads the result and writes it again, so that the files are what
hwloc accepts and writes. Facts of the node: docs/explanation/cpu-masks.md. Nothing here was captured on a machine.
"""

from __future__ import annotations

import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).parent
TREE = "pack:1 group:4 [numa] l3:2(size=33554432) core:8 pu:2(indexes=2*64:64*1)"
# PCI bus of each GCD, in the order of ROCm's index, and the L3 that it is attached to.
LUMI_G = {"c1": 6, "c6": 7, "c9": 2, "ce": 3, "d1": 0, "d6": 1, "d9": 4, "de": 5}
LOW_NOISE = "0xfefefefe,0xfefefefe,0xfefefefe,0xfefefefe"


def lstopo(source: str | Path, *options: str) -> str:
    command = ["lstopo", "-i", str(source), "--filter", "io:all", "--of", "xml", *options]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def gpu(bus: str, kind: str, osdevs: Mapping[str, str]) -> ET.Element:
    """Give a host bridge, a bridge and a GPU below it, as hwloc nests them."""
    upstream = f"{int(bus, 16) - 1:02x}"
    host = ET.Element("object", type="Bridge", bridge_type="0-1", depth="0", bridge_pci=f"0000:[{upstream}-{bus}]")
    bridge = ET.SubElement(
        host,
        "object",
        type="Bridge",
        bridge_type="1-1",
        depth="1",
        bridge_pci=f"0000:[{bus}-{bus}]",
        pci_busid=f"0000:{upstream}:07.1",
        pci_type="0604 [1022:14bf] [1022:14bf] 00",
        pci_link_speed="31.507692",
    )
    device = ET.SubElement(
        bridge, "object", type="PCIDev", pci_busid=f"0000:{bus}:00.0", pci_type=kind, pci_link_speed="31.507692"
    )
    for name, subtype in osdevs.items():
        ET.SubElement(device, "object", type="OSDev", name=name, subtype=subtype, osdev_type="1")
    return host


def renumbered(root: ET.Element) -> str:
    for index, thing in enumerate(root.iter("object"), start=1):
        thing.set("gp_index", str(index))
    return '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n' + ET.tostring(
        root, encoding="unicode"
    )


def objects(root: ET.Element, kind: str) -> list[ET.Element]:
    return [thing for thing in root.iter("object") if thing.get("type") == kind]


def lumi_g(place: str) -> str:
    root = ET.fromstring(lstopo(TREE))
    places = {"L3": objects(root, "L3Cache"), "NUMA": objects(root, "Group"), "machine": objects(root, "Machine")}
    for index, (bus, l3) in enumerate(LUMI_G.items()):
        above = {"L3": l3, "NUMA": l3 // 2, "machine": 0}[place]
        names = {f"rsmi{index}": "RSMI"} if place == "L3" else {}
        places[place][above].append(gpu(bus, "0380 [1002:7408] [1002:0b0c] 00", names))
    vga = gpu("02", "0300 [1a03:2000] [1a03:2000] 41", {"card0": ""})  # the service processor's screen: no GPU
    places["machine"][0].append(vga)
    return renumbered(root)


def nvidia() -> str:
    root = ET.fromstring(lstopo("pack:2 [numa] core:8 pu:1"))
    packages = objects(root, "Package")
    # NVML and CUDA are made to count them in another order than that of the PCI addresses.
    for bus, package, number in (("17", 0, 2), ("31", 0, 3), ("b1", 1, 0), ("ca", 1, 1)):
        names = {f"cuda{number}": "CUDA", f"nvml{number}": "NVML"}
        packages[package].append(gpu(bus, "0302 [10de:20b2] [10de:1463] a1", names))
    return renumbered(root)


def main() -> None:
    made = {"lumi-g": lumi_g("L3"), "lumi-g-numa": lumi_g("NUMA"), "lumi-g-unplaced": lumi_g("machine")}
    made["two-sockets-nvidia"] = nvidia()
    for name, text in made.items():
        path = HERE / f"{name}.xml"
        path.write_text(text)
        path.write_text(lstopo(path))
    (HERE / "lumi-g-low-noise.xml").write_text(lstopo(HERE / "lumi-g.xml", "--restrict", LOW_NOISE))


if __name__ == "__main__":
    main()
