"""The networks of a cluster: a slow one for management and four fast ones, each a bridge inside the fence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MANAGEMENT = "eth0"
HIGH_SPEED = ("hsn0", "hsn1", "hsn2", "hsn3")
INTERFACES = (MANAGEMENT, *HIGH_SPEED)


@dataclass(frozen=True)
class Host:
    """A name in the cluster; `number` is the last byte of all its addresses."""

    name: str
    number: int

    def address(self, interface: str = MANAGEMENT) -> str:
        """Give the host's IPv4 address on one network."""
        return f"10.77.{INTERFACES.index(interface)}.{self.number}"


def bridge_commands() -> str:
    """Give the `ip -batch` lines that make one bridge for each network."""
    lines = ["link set lo up"]
    for interface in INTERFACES:
        lines += [f"link add br-{interface} type bridge", f"link set br-{interface} up"]
    return _batch(lines)


def link_commands(host: Host, pid: str) -> str:
    """Give the `ip -batch` lines that wire a host whose network name space is that of `pid`."""
    lines = []
    for interface in INTERFACES:
        outside = f"n{host.number}-{interface}"
        lines += [
            f"link add {outside} type veth peer name {interface} netns {pid}",
            f"link set {outside} master br-{interface} up",
        ]
    return _batch(lines)


def address_commands(host: Host) -> str:
    """Give the `ip -batch` lines that set a host's own addresses, to be run inside it."""
    lines = ["link set lo up"]
    for interface in INTERFACES:
        lines += [f"addr add {host.address(interface)}/24 dev {interface}", f"link set {interface} up"]
    return _batch(lines)


def throttle_command(interface: str, rate: str) -> list[str]:
    """Give the command that limits what leaves through an interface.

    `rate` is in the words of tc-tbf(8), such as 300mbit.
    """
    shape = f"root tbf rate {rate} burst 256kb limit 8mb"
    return ["tc", "qdisc", "replace", "dev", interface, *shape.split()]


def hosts_file(hosts: Sequence[Host]) -> str:
    """Give /etc/hosts: every host by its management address, and as NAME-hsnK by the others."""
    names: Mapping[str, str] = {"127.0.0.1": "localhost"}
    rows = dict(names)
    for host in hosts:
        rows[host.address()] = host.name
        rows |= {host.address(network): f"{host.name}-{network}" for network in HIGH_SPEED}
    return "".join(f"{address} {name}\n" for address, name in rows.items())


def _batch(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
