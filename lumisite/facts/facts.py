"""What a node is: everything that a maintenance may change under the containers, as one value and as one JSON file."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lumisite.site.json_file import JsonFile

#: A node with thousands of images needs one megabyte.
LARGEST_FACTS_BYTES = 32 * 1024 * 1024


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
    """What is at a path that the site description names; `real` is where its links lead.

    `kind` is `file`, `directory`, `other`, `dangling` (a broken link), `unreadable`, or `none`.
    """

    kind: str
    real: str | None = None


@dataclass(frozen=True)
class Library:
    """A shared library; `wants` are the highest versions of GLIBC, GLIBCXX and CXXABI that it needs.

    `gives` are the symbol versions that it has for others. The largest have no digest.
    """

    soname: str | None = None
    size_bytes: int = 0
    needed: tuple[str, ...] = ()
    wants: Mapping[str, str] = field(default_factory=dict)
    gives: tuple[str, ...] = ()
    sha256: str | None = None


@dataclass(frozen=True)
class Interface:
    """A network interface; `numa` is the kernel's number, `bus` the PCI address of its adapter."""

    driver: str | None = None
    state: str | None = None
    speed_mbit: int | None = None
    numa: int | None = None
    bus: str | None = None
    mtu: int | None = None


@dataclass(frozen=True)
class Device:
    """A PCI device; `cpus` are those that its firmware calls near, in kernel numbers."""

    bus: str | None = None
    numa: int | None = None
    cpus: str | None = None


@dataclass(frozen=True)
class Adapter(Device):
    """A network adapter: its class in sysfs as `kind`, the `link` layer and the state of its first `port`, if known.

    `pcie` is the speed and the width of its link to the machine. Another `driver` is a change of the interface.
    """

    kind: str | None = None
    driver: str | None = field(default=None, compare=False)
    link: str | None = None
    port: str | None = None
    pcie: str | None = None


@dataclass(frozen=True)
class CpuGroup:
    """The CPUs (kernel numbers) under one L3 cache, or of one NUMA domain where no L3 is known."""

    cpus: str
    numa: int | None = None


@dataclass(frozen=True)
class ImageFile:
    """An image: `target` is where a link leads, `id` the identity in its SIF header. A broken link has no size."""

    target: str | None = None
    size_bytes: int | None = None
    id: str | None = None


@dataclass(frozen=True)
class Program:
    """A program: its real file with its digest, and its package with version, where a file states it."""

    real: str | None = None
    package: str | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Facts:
    """A node. What was not there, or could not be read, is absent: `None` or empty, never guessed."""

    site: str
    host: str | None = None
    # Releases: of software by the name that the vendor's file has for it, of products by directory.
    os: str | None = None
    kernel: str | None = None
    glibc: str | None = None
    slurm: str | None = None
    runtime: Program = Program()
    drivers: Mapping[str, Driver] = field(default_factory=dict)
    stacks: Mapping[str, Releases] = field(default_factory=dict)
    products: Mapping[str, Releases] = field(default_factory=dict)
    #: What the deployment root has as current.
    release: str | None = None
    # Libraries by real path, and by SONAME: the real path that a program would get, other SONAMEs that are there and
    # not needed, who needs what is missing, and where one is that only the loader's cache hides.
    libraries: Mapping[str, Library] = field(default_factory=dict)
    loads: Mapping[str, str] = field(default_factory=dict)
    beside: tuple[str, ...] = ()
    missing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    uncached: Mapping[str, str] = field(default_factory=dict)
    #: Names up to `.so.` that were looked for whether needed or not.
    searched: tuple[str, ...] = ()
    #: Why a library, by real path, cannot be loaded.
    damaged: Mapping[str, str] = field(default_factory=dict)
    # Paths that the site names, broken links with where they lead, and images by directory and name.
    paths: Mapping[str, Named] = field(default_factory=dict)
    dangling: Mapping[str, str] = field(default_factory=dict)
    images: Mapping[str, Mapping[str, ImageFile]] = field(default_factory=dict)
    # Hardware, GPUs in the order of their bus.
    interfaces: Mapping[str, Interface] = field(default_factory=dict)
    nics: Mapping[str, Adapter] = field(default_factory=dict)
    gpus: tuple[Device, ...] = ()
    cpus: tuple[CpuGroup, ...] = ()
    threads_per_core: int | None = None
    #: Of each kind of change that has a reader lists of words by name; one that this user could not read is absent.
    texts: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    #: What this user or others may not read, with the command that opens it.
    unreadable: Mapping[str, str] = field(default_factory=dict)


def driver_text(name: str, driver: Driver) -> str:
    """Return a driver with its version, and with the sources in /usr/src, which may name the vendor's release.

    >>> driver_text("gpu", Driver("6.10.5", sources=("gpu-6.10.5-2084815",)))
    'gpu 6.10.5 (gpu-6.10.5-2084815)'
    """
    text = f"{name} {driver.version}" if driver.version else name
    return f"{text} ({', '.join(driver.sources)})" if driver.sources else text


def format_facts(facts: Facts) -> str:
    """Return the text of a facts file: the same facts always give the same bytes, in ASCII."""
    return _FILE.encode(facts)


def parse_facts(content: bytes, where: str) -> Facts:
    """Parse a facts file that may hold anything; `where` is the file that a `LumisiteError` names."""
    return _FILE.decode(content, Facts, where)


_FILE = JsonFile(name="facts file", key="lumisite_facts", written_by="lumisite facts -o FILE")
