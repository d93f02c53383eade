"""The GPUs of a node by their PCI addresses, with the driver that has each."""

from __future__ import annotations

from typing import NamedTuple

from lumisite.machine.topology import is_gpu, pci_order
from lumisite.machine.tree import Tree, names_of, resolve, small_text
from lumisite.vendors import gpu_names, gpu_of

PCI_DEVICES, PCI_DRIVERS = "/sys/bus/pci/devices", "/sys/bus/pci/drivers"


class PciGpu(NamedTuple):
    """A GPU by its PCI address, and the `driver` that has it: empty for none, `None` where that is not known."""

    bus: str
    driver: str | None

    @property
    def usable(self) -> bool:
        """Whether programs can use it, as far as is known."""
        return self.driver != ""


def gpus_of_node(host: Tree) -> tuple[PciGpu, ...]:
    """Return the GPUs of a node in the order of their PCI addresses: those on the bus, and those that a driver has.

    The driver is not known of a copy without the kernel's folder of drivers.
    """
    drivers = {
        bus: name
        for vendor in gpu_names()
        for name in gpu_of(vendor).drivers
        for bus in names_of(host, f"{PCI_DRIVERS}/{name}")
        if bus.count(":") > 1 and resolve(host, f"{PCI_DRIVERS}/{name}/{bus}").entry is not None
    }
    none = "" if names_of(host, PCI_DRIVERS) else None
    buses = {bus.lower() for bus in names_of(host, PCI_DEVICES) if _is_gpu(host, bus)} | drivers.keys()
    return tuple(PciGpu(bus, drivers.get(bus, none)) for bus in sorted(buses, key=pci_order))


def _is_gpu(host: Tree, bus: str) -> bool:
    pci_class, vendor = (small_text(host, f"{PCI_DEVICES}/{bus}/{name}") or "" for name in ("class", "vendor"))
    return is_gpu(pci_class.strip()[2:6].lower(), vendor.strip()[2:6].lower())
