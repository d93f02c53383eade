"""What a node is: everything that a maintenance may change under the containers, as one value and as one JSON file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lumisite.site.json_file import JsonFile
from lumisite.vendors import all_software

#: A node with thousands of images needs one megabyte.
LARGEST_FACTS_BYTES = 32 * 1024 * 1024


#: What is known by a name and compared as text: `capture_plain` reads each, and the kinds of change are called so. What
#: is `unreadable` this capture could not read, or enter; what is `private` only because root took it.
Plain = Literal[
    "unreadable", "private", "sysctl", "kernel-parameter", "hugepages", "kernel-module", "module-default", "slurm-conf",
    "links", "runtime-file",
]  # fmt: skip


@dataclass(frozen=True)
class System:
    """The operating system: the words of os-release(5)."""

    name: str | None = None
    id: str | None = None
    version: str | None = None


@dataclass(frozen=True)
class KernelConfig:
    """A file with a kernel's configuration; `options` are those that a vendor's libraries ask for."""

    sha256: str
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Kernel:
    """The running kernel, and the configuration files that are there, by path."""

    release: str | None = None
    configs: Mapping[str, KernelConfig] = field(default_factory=dict)


@dataclass(frozen=True)
class Driver:
    """A GPU driver that is loaded: `build` is the kernel's srcversion, `sources` are its names in /usr/src."""

    version: str | None = None
    build: str | None = None
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class Releases:
    """The releases of a product that are installed, and the one that its link of defaults names."""

    versions: tuple[str, ...] = ()
    default: str | None = None


@dataclass(frozen=True)
class Named:
    """What stands at a path that the site description names: `real` is where its links lead.

    `kind` is `file`, `directory`, `other`, `dangling` or `unreadable` (`real` then says what is wrong), or `none`:
    looked for, not there.
    """

    kind: str
    real: str | None = None


@dataclass(frozen=True)
class Library:
    """A shared library; `wants` are the highest versions of GLIBC, GLIBCXX and CXXABI that it needs.

    `gives` are the symbol versions that it has for others; a capture of an older lumisite does not tell them.
    The largest of many have no digest.
    """

    soname: str | None = None
    size_bytes: int = 0
    needed: tuple[str, ...] = ()
    wants: Mapping[str, str] = field(default_factory=dict)
    gives: tuple[str, ...] | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Interface:
    """A network interface; `numa` is the kernel's number, `bus` the PCI address of its adapter.

    `lower` are the interfaces that it lies on directly: the parts of a bond or team, what a VLAN, a macvlan or a bridge
    is made on. `networks` are those of IPv4 that the kernel's table of routes has it in, none where it has no address.
    """

    driver: str | None = None
    state: str | None = None
    speed_mbit: int | None = None
    numa: int | None = None
    bus: str | None = None
    mtu: int | None = None
    lower: tuple[str, ...] | None = None
    networks: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Device:
    """A PCI device; `cpus` are those that its firmware calls near, in kernel numbers."""

    bus: str | None = None
    numa: int | None = None
    cpus: str | None = None


@dataclass(frozen=True)
class Adapter(Device):
    """A network adapter: its class in sysfs as `kind`, the `link` layer and the state of its first `port`, if told.

    Where its `driver` is another one, the interface says so.
    """

    kind: str | None = None
    driver: str | None = field(default=None, compare=False)
    link: str | None = None
    port: str | None = None


@dataclass(frozen=True)
class CpuGroup:
    """The CPUs (kernel numbers) under one L3 cache, or of one NUMA domain where no L3 is known."""

    cpus: str
    numa: int | None = None


@dataclass(frozen=True)
class ImageFile:
    """An image: `target` is where a link leads, `id` the identity that its SIF header states."""

    target: str | None = None
    size_bytes: int | None = None
    id: str | None = None


@dataclass(frozen=True)
class Deployed:
    """The release that a deployment root's `current` names, and the SHA-256 of each of its files.

    `names` maps what users may type to the module that they get, or to nothing where only a message is left.
    """

    release: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Program:
    """A program: its real file, that file's size and digest, and the version of its package where a file tells."""

    real: str | None = None
    size_bytes: int | None = None
    package: str | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Facts:
    """A node. What was not there, or could not be read, is absent: `None` or empty, never guessed.

    `libraries` are by real path, `loads` maps a SONAME to the real path that a program would get, `missing` maps a
    SONAME that is needed and not there to who needs it; `beside` are other SONAMEs of all these, which are there and
    not needed. `damaged` maps the real path of a library that cannot be loaded to the reason, `dangling` a link to what
    is wrong with it. `stacks` are by the name that the vendor's file has for them, `products` by directory, `images`
    by directory and name. GPUs are in the order of their bus.
    `plain` holds for each of `Plain` that was looked for a text by name.
    """

    site: str
    host: str | None = None
    os: System = System()
    kernel: Kernel = Kernel()
    glibc: str | None = None
    slurm: str | None = None
    runtime: Program = Program()
    drivers: Mapping[str, Driver] = field(default_factory=dict)
    stacks: Mapping[str, Releases] = field(default_factory=dict)
    products: Mapping[str, Releases] = field(default_factory=dict)
    paths: Mapping[str, Named] = field(default_factory=dict)
    libraries: Mapping[str, Library] = field(default_factory=dict)
    loads: Mapping[str, str] = field(default_factory=dict)
    beside: tuple[str, ...] = ()
    missing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    damaged: Mapping[str, str] = field(default_factory=dict)
    dangling: Mapping[str, str] = field(default_factory=dict)
    interfaces: Mapping[str, Interface] = field(default_factory=dict)
    nics: Mapping[str, Adapter] = field(default_factory=dict)
    gpus: tuple[Device, ...] = ()
    cpus: tuple[CpuGroup, ...] = ()
    threads_per_core: int | None = None
    images: Mapping[str, Mapping[str, ImageFile]] = field(default_factory=dict)
    deployed: Deployed = Deployed()
    plain: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def format_facts(facts: Facts) -> str:
    """Give the text of a facts file: the same facts always give the same bytes, in ASCII."""
    return _FILE.encode(facts)


def parse_facts(content: bytes, where: str) -> Facts:
    """Read a facts file that may hold anything; `where` is the file that a `LumisiteError` names."""
    return _FILE.decode(content, Facts, where)


def _older(values: dict[str, Any]) -> dict[str, Any]:
    """Put the stacks where they stand today: files of before have each by its name beside the rest."""
    named = {software.name for _, software in all_software()} & values.keys()
    rest = {key: value for key, value in values.items() if key not in named}
    return {**rest, "stacks": {name: values[name] for name in sorted(named)}} if named else values


_FILE = JsonFile(
    name="facts file",
    key="lumisite_facts",
    written_by="lumisite facts -o FILE",
    prints=True,
    older=_older,
)
