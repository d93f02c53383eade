"""How the kind of a node is recognised: what its kernel reports, compared with what the site describes.

All of it is the node's, whatever cgroup a task is in. The task prolog compares the number of GPUs alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lumisite.site.cpu_list import format_cpu_list
from lumisite.site.model import Site
from lumisite.site.scalars import full_pci_bus

#: The value of `gpus` for a node without GPUs.
NO_GPUS = "none"


@dataclass(frozen=True)
class NodeFacts:
    """What a node's kernel reports.

    `present` and `online` are its CPUs, and `domains` its NUMA domains with CPUs, as the kernel lists them;
    `domain_of` has the domain of each CPU. `gpus` says how many GPUs of which vendor there are (`8 VENDOR`), as their
    drivers have them; `buses` are their PCI addresses.
    """

    present: str
    online: str
    domains: str
    domain_of: Mapping[int, int]
    gpus: str
    buses: tuple[str, ...]


@dataclass(frozen=True)
class Fingerprint:
    """What the facts of a kind's nodes are; what is empty is not described, and not compared.

    `places` are CPUs with their domains, two of each L3 group. `buses` has the addresses for each platform that has
    them described: addresses may change with the firmware.
    """

    cpus: str
    domains: str
    domain_of: Mapping[int, int]
    places: tuple[tuple[int, int], ...]
    gpus: str
    buses: tuple[tuple[str, ...], ...]

    def differences(self, node: NodeFacts) -> Iterator[str]:
        """Yield what a node has otherwise."""
        yield from self.cpu_differences(node)
        buses = " ".join(node.buses)
        if self.gpus and self.gpus != node.gpus:
            yield " at ".join(filter(None, (f"GPUs {node.gpus}", buses))) + f", expected {self.gpus}"
        elif self.buses and node.buses not in self.buses:
            yield f"GPUs at {buses}, expected {' or '.join(map(' '.join, self.buses))}"

    def cpu_differences(self, node: NodeFacts) -> Iterator[str]:
        """Yield what a node has otherwise in CPUs and NUMA domains."""
        same_cpus = not self.cpus or self.cpus in (node.present, node.online)
        same_domains = not self.domains or self.domains == node.domains
        if not same_cpus:
            yield f"CPUs {node.present or 'unknown'}, expected {self.cpus}"
        if not same_domains:
            yield f"NUMA domains {node.domains or 'unknown'}, expected {self.domains}"
        moved = [(cpu, numa) for cpu, numa in self.places if node.domain_of.get(cpu) != numa]
        if same_cpus and same_domains and moved:
            yield f"CPU {moved[0][0]} outside NUMA domain {moved[0][1]}"


def fingerprint_of(site: Site, name: str) -> Fingerprint:
    """Return the fingerprint of a node kind.

    Addresses count where the platform in force has them described; those of the others are as good.
    """
    kind = site.node_kinds[name]
    domain_of = {cpu: group.numa for group in kind.l3 for cpu in (*group.cores, *(group.siblings or ()))}
    first = [(cpus[0], group.numa) for group in kind.l3 for cpus in (group.cores, group.siblings) if cpus]
    current = site.platforms[site.platform].gpu_bus_ids.get(name)
    all_ids = [platform.gpu_bus_ids for platform in site.platforms.values()]
    described = [bus_ids[name] for bus_ids in all_ids if current and name in bus_ids]
    # A card may be several GPUs at one address.
    gpus, vendor = len(set(map(full_pci_bus, current)) if current else kind.gpus), site.vendor_of(name)
    without = NO_GPUS if site.gpu_stack else ""
    return Fingerprint(
        cpus=format_cpu_list(domain_of),
        domains=format_cpu_list(domain_of.values()),
        domain_of=domain_of,
        places=tuple(first) if len(set(domain_of.values())) > 1 else (),
        # GPUs of which no vendor is known are not compared.
        gpus=without if not gpus else f"{gpus} {vendor}" if vendor else "",
        buses=tuple(dict.fromkeys(tuple(sorted(set(map(_of_kernel, addresses)))) for addresses in described)),
    )


def _of_kernel(bus: str) -> str:
    """Return an address as the kernel writes it, where vendors' tools write a longer domain."""
    domain, _, rest = full_pci_bus(bus).partition(":")
    return f"{int(domain, 16):04x}:{rest}"
