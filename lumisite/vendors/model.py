"""What there is to know of a vendor. Paths are those of a host or an image; patterns are of `glob` unless said."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Sign:
    """Where a version is stated: a pattern of paths, and a regular expression for what is found there.

    One group of `regex` is the whole version, several are its numbers. `of` is what is read: the beginning of the
    `text` of a file, the `path` itself, or the path of a file in a folder of `libraries` or of Python `packages` (where
    `paths` is its name there).
    """

    of: Literal["text", "path", "libraries", "packages"]
    paths: str = ""
    regex: str

    def version(self, text: str) -> str | None:
        """Return the version that a text or path states, if it does."""
        match = re.search(self.regex, text)
        if match is None or match.re.groups == 1:
            return match and match[1]
        return ".".join(str(int(number)) for number in match.groups() if number is not None)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Software:
    """Software whose releases matter to containers, by the name that it usually has as a stack of a site.

    `folders` are what stands before the version in paths of its releases, `series` before the first two numbers of it
    in paths of folders that all releases of a series share. There `stated`, a text in the folder, has the whole
    version, and so has the package that is called `package` with the two numbers behind. `defaults` are links to the
    default release, the first that leads to one counts; `libraries` are the folders of libraries below a release.
    Of a vendor of GPUs its driver decides what runs, of others what the host has installed; `drivers` says by major
    version the first major version of the driver that runs all of its minor ones. `images` says where images state the
    release, what counts more first.
    """

    name: str
    title: str
    folders: tuple[str, ...]
    series: tuple[str, ...] = ()
    stated: Sign | None = None
    package: str = ""
    defaults: tuple[str, ...]
    libraries: tuple[str, ...] = ()
    drivers: Mapping[str, int] = field(default_factory=dict)
    images: tuple[Sign, ...] = ()

    def tops(self, release: str) -> tuple[str, ...]:
        """The folders that a release may have, whether they are there or not."""
        series = ".".join(release.split(".")[:2])
        return (*(f"{start}{release}" for start in self.folders), *(f"{start}{series}" for start in self.series))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Collectives:
    """A vendor's library for collectives between GPUs.

    `library` is what its files are called (up to `.so`), `prefix` how its variables begin, `plugins` under which names
    it looks for a network plugin, `images` where images state its version. `packages` are folders below those of
    Python packages that have a copy of it, and `torch` is what `torch/version.py` says of the release of the stack.
    """

    name: str
    title: str
    library: str
    prefix: str
    plugins: tuple[str, ...] = ()
    images: tuple[Sign, ...] = ()
    packages: tuple[str, ...] = ("torch/lib",)
    torch: Sign | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Cache:
    """A directory that ranks must not share: the variable that names it, its place below the private one, and why."""

    variable: str
    directory: str
    why: str


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class GpuVendor:
    """A vendor's GPUs.

    `pci` is the vendor's PCI number, `classes` the PCI classes (base class and subclass, in hex) of what is a GPU.
    `drivers` are kernel modules; `stated` says where else the version of a driver is stated. `control` is the device
    that is there where GPUs can be used, `devices` are patterns of all of them. `flag` is the option of
    container runtimes, without dashes. `visible` are the variables that say which GPUs a process sees, what counts more
    first. `torch` is what PyTorch calls such a device.
    `bus_ids` are the run-time library that can tell PCI addresses, and its functions that count GPUs and tell the
    address of one; `prefixes` are how variables of its libraries begin. `misspelt` are names of variables that people
    write, with the right ones, `overrides` those that make programs take its GPUs for others. `image_words` are regular
    expressions, in lower case, for what says that an image is built for these GPUs: in its name, its address without
    Docker's registry, or what versions it is known to have. `caching` is what of the vendor's keeps caches on disk, for
    people.
    """

    pci: str
    classes: tuple[str, ...]
    drivers: tuple[str, ...]
    stated: Mapping[str, Sign] = field(default_factory=dict)
    control: str
    devices: tuple[str, ...]
    flag: str = ""
    visible: tuple[str, ...]
    torch: str
    collectives: Collectives
    bus_ids: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    caches: tuple[Cache, ...] = ()
    misspelt: Mapping[str, str] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()
    image_words: tuple[str, ...] = ()
    caching: str = ""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AdapterKind:
    """A kind of adapters for data.

    `carriers` are the words that `fabric.carrier` of a site may have for it, the usual one first. `folder` is the class
    of adapters in sysfs; where several kinds are in it, `driver` or `link` (layer) tells this one. `devices` are
    patterns of its devices in /dev; `libraries` are the SONAMEs that carry its traffic. `built_in` are carriers that
    NCCL's built-in network `IB` is, which needs no plugin.
    """

    title: str
    carriers: tuple[str, ...]
    folder: str
    driver: str = ""
    link: str = ""
    devices: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    built_in: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LogWords:
    """What logs of NCCL call a vendor's products.

    `failed` are regular expressions for what says that a plugin does not start, `harmless` for warnings that good runs
    begin with; `once` are beginnings of lines that a process has once.
    """

    failed: tuple[str, ...] = ()
    harmless: tuple[str, ...] = ()
    once: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Vendor:
    """A vendor.

    `products` are folders with a folder for each product, in which each release has one; `linked` folders of links to
    libraries of default releases; `libraries` patterns of folders with libraries that a module would have found,
    `host_libraries` of more on a host, `image_libraries` of more in images; `module_folders` where its modulefiles
    stand. `kernel_modules` is a regular expression for modules of the kernel whose version matters;
    `kernel_options` are options of the kernel's configuration, with who reads them. `devices` are files that show
    that a module is there whose libraries pass memory between processes; `services` how the names of services begin
    that must run; `login_files` patterns of what its shells run at login. `bound` is the folder whose libraries
    containers borrow, `log` the words of logs.
    """

    title: str
    gpu: GpuVendor | None = None
    software: tuple[Software, ...] = ()
    fabrics: tuple[AdapterKind, ...] = ()
    products: tuple[str, ...] = ()
    linked: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    host_libraries: tuple[str, ...] = ()
    image_libraries: tuple[str, ...] = ()
    module_folders: tuple[str, ...] = ()
    kernel_modules: str = ""
    kernel_options: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    login_files: tuple[str, ...] = ()
    bound: str = ""
    log: LogWords = field(default_factory=LogWords)
