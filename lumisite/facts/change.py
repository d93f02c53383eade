"""One difference of two captures: what it is of, what was there and what is there, as values and as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from lumisite.facts.facts import CpuGroup, Device, Driver, ImageFile, Interface, Named, Plain, Program

T = TypeVar("T")

Kind = Literal[
    Plain,
    "os", "kernel", "kernel-config", "glibc", "slurm", "runtime", "driver", "stack", "product", "default", "path",
    "soname", "library-gone", "library-new", "damaged", "library", "needs", "wants", "gives",
    "missing", "dangling", "interface", "nic",
    "gpu-count", "gpu-bus", "gpu-place", "cpus", "image", "release", "edited",
]  # fmt: skip


@dataclass(frozen=True)
class Change(Generic[T]):
    """One difference: `before` and `after` are `None` where there was, or is, nothing.

    `subject` is what changed: a path, a SONAME, an interface, the name of an image with its directory. What `T` is
    depends on the kind: the type that the facts have for it, a tuple of names, or one of those below. A device that has
    another name now, at the same PCI address, has that name in the place of what it is.
    """

    kind: Kind
    subject: str
    before: T | None
    after: T | None

    @property
    def was(self) -> str | None:
        """What was there as text, `None` where that is nothing."""
        return _text(self.kind, self.subject, self.before)

    @property
    def now(self) -> str | None:
        """What is there as text, `None` where that is nothing."""
        return _text(self.kind, self.subject, self.after)


@dataclass(frozen=True)
class BootConfig:
    """The file that libraries read: /boot/config-RELEASE of the running kernel, with its options, or none (`None`).

    `path` is `None` where the kernel is not known; `there` are the files of this kind, for whatever kernel.
    """

    path: str | None = None
    options: Mapping[str, str] | None = None
    there: tuple[str, ...] = ()


@dataclass(frozen=True)
class LoadedFile:
    """The file that a program gets by a SONAME; `needed_by` are the libraries that lack it, where it has gone."""

    path: str
    size_bytes: int
    sha256: str | None = None
    needed_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class SymbolVersion:
    """The highest version that a library needs of a group, as ELF writes it: `GLIBC_2.38`."""

    group: str
    version: str

    def __str__(self) -> str:
        return f"{self.group}_{self.version}"


@dataclass(frozen=True)
class DeployedFile:
    """A file of a deployed release."""

    release: str | None
    sha256: str


@dataclass(frozen=True)
class OtherDriver:
    """A GPU driver in the place of another one of the same vendor."""

    name: str
    driver: Driver


def _text(kind: Kind, subject: str, value: object) -> str | None:
    match value:
        case None:
            return None
        case Driver():
            return driver_words(subject, value)
        case OtherDriver():
            return driver_words(value.name, value.driver)
        case Program():
            digest = f", sha256 {value.sha256[:12]}" if value.sha256 else ""
            said = value.package or (value.real and f"{value.real}, {value.size_bytes} bytes")
            return said and said + digest
        case Named():
            return None if value.kind == "none" else value.real or value.kind
        case LoadedFile():
            return value.path if kind == "library" else subject
        case BootConfig():
            return None if value.options is None else value.path
        case ImageFile():
            return value.target or subject
        case DeployedFile():
            return value.sha256
        case Device() if kind == "gpu-place":
            return f"NUMA domain {known(value.numa)}, CPUs {known(value.cpus)}"
        case Interface() | Device():
            return "there"
        case CpuGroup():
            return f"{value.cpus}@{'?' if value.numa is None else value.numa}"
        case tuple() if kind == "cpus":
            return " ".join(str(_text(kind, subject, group)) for group in value) or None
        case tuple():
            return ", ".join(value)
    return str(value)


def driver_words(name: str, driver: Driver) -> str:
    """Say which driver it is: its version, and the sources in /usr/src, which may name the vendor's release.

    >>> driver_words("gpu", Driver("6.10.5", sources=("gpu-6.10.5-2084815",)))
    'gpu 6.10.5 (gpu-6.10.5-2084815)'
    """
    said = f"{name} {driver.version}" if driver.version else name
    return f"{said} ({', '.join(driver.sources)})" if driver.sources else said


def known(value: object) -> object:
    """Give a value as it is printed."""
    if isinstance(value, tuple):
        return " and ".join(map(str, value)) or "none"
    return "not known" if value is None else value


def parted(old: Iterable[str] | None, new: Iterable[str] | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Give what only the first has, and what only the second has."""
    one, other = set(old or ()), set(new or ())
    return tuple(sorted(one - other)), tuple(sorted(other - one))
