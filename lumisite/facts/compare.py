"""Two captures of a node to the list of what differs, as values; nothing here knows the site, or says it in words."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from lumisite.binds.copies import is_foundation, stem
from lumisite.facts.facts import Facts, Library, Releases

T = TypeVar("T")

Kind = Literal[
    "os", "kernel", "kernel-config", "glibc", "slurm", "runtime", "driver", "rocm", "cpe", "product", "default", "path",
    "soname", "library-gone", "library-new", "library", "needs", "wants", "missing", "dangling", "interface", "nic",
    "gpu-count", "gpu-bus", "gpu-place", "cpus", "image", "release", "edited",
]  # fmt: skip


@dataclass(frozen=True)
class Change(Generic[T]):
    """One difference: `before` and `after` are `None` where there was, or is, nothing.

    `subject` is what changed: a path, a SONAME, an interface, the name of an image with its directory. What `T` is
    depends on the kind: the type that the facts have for it, a tuple of names, or one of those below.
    """

    kind: Kind
    subject: str
    before: T | None
    after: T | None


@dataclass(frozen=True)
class BootConfig:
    """The file that RCCL reads: /boot/config-RELEASE of the running kernel, with its options; none is there for `None`.

    `path` is `None` where the kernel is not known; `there` are the files of this kind, for whatever kernel.
    """

    path: str | None = None
    options: Mapping[str, str] | None = None
    there: tuple[str, ...] = ()


@dataclass(frozen=True)
class LoadedFile:
    """The file that a program gets by a SONAME."""

    path: str
    size_bytes: int


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


Changes = Iterator[Change[Any]]


def compare(before: Facts, after: Facts) -> tuple[Change[Any], ...]:
    """Give every difference of two captures, what matters most first; the same captures give none."""
    found = tuple(_differences(before, after))
    told = [path for one in found if one.kind == "product" for path in (one.before, one.after) if path]
    told += [one.subject for one in found if one.kind in ("image", "dangling")]
    lost = {name for one in found if one.kind == "soname" for name in one.before or ()}
    lost |= {one.subject for one in found if one.kind == "library-gone"}

    def is_told(change: Change[Any]) -> bool:
        """Tell whether it only repeats a change of a release's directory, an image, a dangling link or a library."""
        if change.kind == "path" and posixpath.basename(change.subject) in lost:
            return True
        path = {"path": change.subject, "library": getattr(change.before, "path", "")}.get(change.kind, "")
        return any(path == one or path.startswith(f"{one}/") for one in told)

    return tuple(change for change in found if not is_told(change))


def _differences(before: Facts, after: Facts) -> Changes:
    """Give all, in the order of the report: what breaks containers comes before what only describes the machine."""
    yield from _products(before, after)
    yield from _libraries(before, after)
    lacked, lacking = parted(before.missing, after.missing)
    yield from (Change("missing", name, None, after.missing[name]) for name in lacking)
    yield from (Change("missing", name, before.missing[name], None) for name in lacked)
    yield from _entries("dangling", before.dangling, after.dangling)
    yield from _paths(before, after)
    yield from _entries("driver", before.drivers, after.drivers)
    yield from _changed("rocm", "ROCm", before.rocm.versions or None, after.rocm.versions or None)
    yield from _changed("default", "ROCm", before.rocm.default, after.rocm.default)
    yield from _changed("cpe", "CPE", before.cpe.versions or None, after.cpe.versions or None)
    yield from _changed("default", "CPE", before.cpe.default, after.cpe.default)
    yield from _gpus(before, after)
    yield from _entries("interface", before.interfaces, after.interfaces)
    yield from _entries("nic", before.nics, after.nics)
    yield from _kernel_configs(before, after)
    yield from _images(before, after)
    yield from _deployed(before, after)
    runtime = after.runtime.real or before.runtime.real or "runtime"
    yield from _changed("runtime", runtime, before.runtime, after.runtime)
    yield from _changed("os", "operating system", before.os.name, after.os.name)
    yield from _changed("kernel", "kernel", before.kernel.release, after.kernel.release)
    yield from _changed("glibc", "glibc", before.glibc, after.glibc)
    yield from _changed("slurm", "Slurm", before.slurm, after.slurm)
    yield from _changed("cpus", "CPUs", before.cpus, after.cpus)


def _changed(kind: Kind, subject: str, old: T | None, new: T | None) -> Iterator[Change[T]]:
    if old != new:
        yield Change(kind, subject, old, new)


def _pairs(old: Mapping[str, T], new: Mapping[str, T]) -> Iterator[tuple[str, T | None, T | None]]:
    for name in sorted({*old, *new}):
        yield name, old.get(name), new.get(name)


def _entries(kind: Kind, old: Mapping[str, T], new: Mapping[str, T]) -> Iterator[Change[T]]:
    for name, was, now in _pairs(old, new):
        yield from _changed(kind, name, was, now)


def parted(old: Iterable[str] | None, new: Iterable[str] | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Give what only the first has, and what only the second has."""
    one, other = set(old or ()), set(new or ())
    return tuple(sorted(one - other)), tuple(sorted(other - one))


def _kernel_configs(before: Facts, after: Facts) -> Changes:
    """Give one change for a file that moved, with its old path as subject, and one for options, with its new path."""
    old, new = _boot_config(before), _boot_config(after)
    if old.path is None or old.options is None:
        return
    if new.options is None or new.path != old.path:
        yield Change("kernel-config", old.path, old, new)
    if new.path is not None and new.options is not None and new.options != old.options:
        yield Change("kernel-config", new.path, old, new)


def _boot_config(facts: Facts) -> BootConfig:
    path = f"/boot/config-{facts.kernel.release}" if facts.kernel.release else None
    config = facts.kernel.configs.get(path or "")
    there = tuple(path for path in facts.kernel.configs if path.startswith("/boot/"))
    return BootConfig(path, None if config is None else config.options, there)


def _products(before: Facts, after: Facts) -> Changes:
    for path, old, new in _pairs(before.products, after.products):
        if path.endswith("/pe/cpe"):  # told as CPE
            continue
        was, now = old or Releases(), new or Releases()
        gone = [f"{path}/{version}" for version in was.versions if version not in now.versions]
        come = [f"{path}/{version}" for version in now.versions if version not in was.versions]
        if len(gone) == len(come) == 1:
            yield Change("product", path, gone[0], come[0])
        else:
            yield from (Change("product", path, one, None) for one in gone)
            yield from (Change("product", path, None, one) for one in come)
        if was.default is not None:
            yield from _changed("default", path, was.default, now.default)


def _paths(before: Facts, after: Facts) -> Changes:
    for path in sorted(before.paths.keys() & after.paths.keys()):
        old, new = before.paths[path], after.paths[path]
        library = ".so" in posixpath.basename(path) and old.kind == new.kind == "file"
        if not library:  # where a library's link leads is told with the library
            yield from _changed("path", path, old, new)


def _libraries(before: Facts, after: Facts) -> Changes:
    old, new = _by_stem(before), _by_stem(after)
    for _, lost, got in _pairs(old, new):
        gone, come = parted(lost, got)
        if gone and come:
            yield Change("soname", gone[0], gone, come)
        else:
            yield from (Change("library-gone", one, _loaded(before, one), None) for one in gone)
            yield from (Change("library-new", one, None, _loaded(after, one)) for one in come)
    for soname in sorted(before.loads.keys() & after.loads.keys()):
        yield from _changed("library", soname, _loaded(before, soname), _loaded(after, soname))
        was, now = _library(before, soname), _library(after, soname)
        # The C library and its like do not count here: `wants` says what is needed of those.
        unneeded, needed = parted(*([name for name in one.needed if not is_foundation(name)] for one in (was, now)))
        yield from _changed("needs", soname, unneeded or None, needed or None)
        for group, low, high in _pairs(was.wants, now.wants):
            versions = (None if one is None else SymbolVersion(group, one) for one in (low, high))
            yield from _changed("wants", soname, *versions)


def _by_stem(facts: Facts) -> dict[str, set[str]]:
    stems: dict[str, set[str]] = {}
    for soname in facts.loads:
        stems.setdefault(stem(posixpath.basename(soname)), set()).add(soname)
    return stems


def _library(facts: Facts, soname: str) -> Library:
    return facts.libraries.get(facts.loads[soname], Library())


def _loaded(facts: Facts, soname: str) -> LoadedFile:
    return LoadedFile(facts.loads[soname], _library(facts, soname).size_bytes)


def _gpus(before: Facts, after: Facts) -> Changes:
    if len(before.gpus) != len(after.gpus):
        yield Change("gpu-count", "GPUs", len(before.gpus), len(after.gpus))
        return
    old, new = (tuple(gpu.bus or "-" for gpu in facts.gpus) for facts in (before, after))
    yield from _changed("gpu-bus", "GPU bus ids", old, new)
    for index, (was, now) in enumerate(zip(before.gpus, after.gpus, strict=True)):
        if (was.numa, was.cpus) != (now.numa, now.cpus):
            yield Change("gpu-place", f"GPU {index}", was, now)


def _images(before: Facts, after: Facts) -> Changes:
    for directory, old, new in _pairs(before.images, after.images):
        if directory in before.paths and directory in after.paths:  # both captures looked there
            for name, was, now in _pairs(old or {}, new or {}):
                yield from _changed("image", f"{directory}/{name}", was, now)


def _deployed(before: Facts, after: Facts) -> Changes:
    old, new = before.deployed, after.deployed
    if old.release != new.release:
        yield Change("release", "deployed release", old.release, new.release)
        return
    for path, was, now in _pairs(old.files, new.files):
        files = (None if one is None else DeployedFile(new.release, one) for one in (was, now))
        yield from _changed("edited", path, *files)
