"""Two captures of a node to the list of what differs; nothing here knows the site."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Literal, TypeVar

from lumisite.binds.versions import is_foundation
from lumisite.node.facts import Device, Facts, ImageFile, Interface, Library, Named, Releases

_T = TypeVar("_T")

Kind = Literal[
    "os", "kernel", "kernel-config", "glibc", "slurm", "runtime", "driver", "rocm", "cpe", "product", "default", "path",
    "soname", "library-gone", "library-new", "library", "needs", "wants", "missing", "dangling", "interface", "nic",
    "gpu-count", "gpu-bus", "gpu-place", "cpus", "image", "release", "edited",
]  # fmt: skip


@dataclass(frozen=True)
class Change:
    """One difference: `before` and `after` are `None` where there was, or is, nothing; `what` says it in words.

    `subject` is what changed: a path, a SONAME, an interface, the name of an image with its directory.
    """

    kind: Kind
    subject: str
    before: str | None
    after: str | None
    what: str


def compare(before: Facts, after: Facts) -> tuple[Change, ...]:
    """Give every difference of two captures, what matters most first; the same captures give none."""
    found = [change for differ in _DIFFERENCES for change in differ(before, after)]
    told = [path for change in found if change.kind == "product" for path in (change.before, change.after) if path]
    told += [change.subject for change in found if change.kind in ("image", "dangling")]
    lost = {name for change in found if change.kind in ("soname", "library-gone") for name in _names(change.before)}
    return tuple(change for change in found if not _is_told(change, told, lost))


def _names(text: str | None) -> list[str]:
    return text.split(", ") if text else []


def _is_told(change: Change, told: Iterable[str], lost: Iterable[str]) -> bool:
    """Tell whether a change only repeats one of a release's directory, an image, a dangling link or a lost library."""
    if change.kind not in ("path", "library"):
        return False
    path = (change.before or "") if change.kind == "library" else change.subject
    if change.kind == "path" and posixpath.basename(path) in lost:
        return True
    return any(path == one or path.startswith(f"{one}/") for one in told)


def _systems(before: Facts, after: Facts) -> Iterator[Change]:
    yield from _value("os", "operating system", before.os.name, after.os.name)
    yield from _value("kernel", "kernel", before.kernel.release, after.kernel.release)
    yield from _value("glibc", "glibc", before.glibc, after.glibc)
    yield from _value("slurm", "Slurm", before.slurm, after.slurm)


def _value(kind: Kind, subject: str, old: str | None, new: str | None) -> Iterator[Change]:
    if old != new:
        yield Change(kind, subject, old, new, f"{subject}: {old or 'not known'} -> {new or 'not known'}")


def _kernel_configs(before: Facts, after: Facts) -> Iterator[Change]:
    """The file that RCCL reads is /boot/config-RELEASE of the running kernel."""
    old, new = (_config_path(facts) for facts in (before, after))
    if old is None:
        return
    if new is None:
        yield Change("kernel-config", old, old, None, f"kernel configuration: {old} -> {_lacking(after)}")
        return
    was, now = before.kernel.configs[old], after.kernel.configs[new]
    if old != new:
        yield Change("kernel-config", old, old, new, f"kernel configuration moved: {old} -> {new}")
    if was.options != now.options:
        shown = (
            ", ".join(f"{name}={value}" for name, value in sorted(one.options.items())) or "none" for one in (was, now)
        )
        said = " -> ".join(shown)
        yield Change("kernel-config", new, old, new, f"kernel options for DMA-BUF in {new}: {said}")


def _config_path(facts: Facts) -> str | None:
    path = f"/boot/config-{facts.kernel.release}"
    return path if path in facts.kernel.configs else None


def _lacking(facts: Facts) -> str:
    there = [path for path in facts.kernel.configs if path.startswith("/boot/")]
    wanted = f"/boot/config-{facts.kernel.release}" if facts.kernel.release else "a file for an unknown kernel"
    return f"{wanted}, which is not there ({', '.join(there) or 'none is'})"


def _drivers(before: Facts, after: Facts) -> Iterator[Change]:
    for name, old, new in _pairs(before.drivers, after.drivers):
        was, now = (None if one is None else driver_words(name, one.version, one.sources) for one in (old, new))
        if old != new:
            rebuilt = "; built anew" if was == now else ""
            yield Change("driver", name, was, now, f"GPU driver: {was or 'none'} -> {now or 'none'}{rebuilt}")


def driver_words(name: str, version: str | None, sources: Iterable[str]) -> str:
    """Say which driver it is: its version, and the sources in /usr/src, which name AMD's release.

    >>> driver_words("amdgpu", "6.10.5", ["amdgpu-6.10.5-2084815"])
    'amdgpu 6.10.5 (amdgpu-6.10.5-2084815)'
    """
    words = f"{name} {version}" if version else name
    return f"{words} ({', '.join(sources)})" if [*sources] else words


def _releases(before: Facts, after: Facts) -> Iterator[Change]:
    for kind, subject, old, new in (("rocm", "ROCm", before.rocm, after.rocm), ("cpe", "CPE", before.cpe, after.cpe)):
        if old.versions != new.versions:
            was, now = ", ".join(old.versions), ", ".join(new.versions)
            what = f"{subject} on the host: {was or 'none'} -> {now or 'none'}"
            yield Change("rocm" if kind == "rocm" else "cpe", subject, was or None, now or None, what)
        if old.default != new.default:
            what = f"default {subject}: {old.default or 'none'} -> {new.default or 'none'}"
            yield Change("default", subject, old.default, new.default, what)


def _products(before: Facts, after: Facts) -> Iterator[Change]:
    for path, old, new in _pairs(before.products, after.products):
        if path.endswith("/pe/cpe"):  # told as CPE
            continue
        was, now = old or Releases(), new or Releases()
        name = posixpath.basename(path)
        gone = [f"{path}/{version}" for version in was.versions if version not in now.versions]
        come = [f"{path}/{version}" for version in now.versions if version not in was.versions]
        if len(gone) == len(come) == 1:
            yield Change("product", path, gone[0], come[0], f"{name}: directory renamed, {gone[0]} -> {come[0]}")
        else:
            yield from (Change("product", path, one, None, f"{name}: directory gone, {one}") for one in gone)
            yield from (Change("product", path, None, one, f"{name}: new directory, {one}") for one in come)
        if was.default != now.default and was.default is not None:
            what = f"{path}/default: {was.default} -> {now.default or 'none'}"
            yield Change("default", path, was.default, now.default, what)


def _paths(before: Facts, after: Facts) -> Iterator[Change]:
    for path in sorted(before.paths.keys() & after.paths.keys()):
        old, new = before.paths[path], after.paths[path]
        library = ".so" in posixpath.basename(path) and old.kind == new.kind == "file"
        if old != new and not library:  # where a library's link leads is told with the library
            what = f"{path}: was {_named_words(old)}, is {_named_words(new)}"
            yield Change("path", path, old.real or old.kind, None if new.kind == "none" else new.real or new.kind, what)


def _named_words(one: Named) -> str:
    if one.kind == "none":
        return "not there"
    if one.kind == "dangling":
        return f"a link that {one.real}"
    words = "something else" if one.kind == "other" else f"a {one.kind}"
    return f"{words} at {one.real}" if one.real else words


def _libraries(before: Facts, after: Facts) -> Iterator[Change]:
    old, new = _by_stem(before), _by_stem(after)
    for stem in sorted({*old, *new}):
        gone = sorted(old.get(stem, set()) - new.get(stem, set()))
        come = sorted(new.get(stem, set()) - old.get(stem, set()))
        if gone and come:
            was, now = ", ".join(gone), ", ".join(come)
            yield Change("soname", gone[0], was, now, f"{stem}: SONAME changed, {was} -> {now}")
        else:
            yield from (
                Change("library-gone", one, one, None, f"library gone: {one} (was {before.loads.get(one)})")
                for one in gone
            )
            yield from (
                Change("library-new", one, None, one, f"new library: {one} ({after.loads.get(one)})") for one in come
            )
    for soname in sorted(before.loads.keys() & after.loads.keys()):
        yield from _one_library(soname, before, after)


def _by_stem(facts: Facts) -> dict[str, set[str]]:
    stems: dict[str, set[str]] = {}
    for soname in facts.loads:
        stems.setdefault(soname.partition(".so")[0], set()).add(soname)
    return stems


def _one_library(soname: str, before: Facts, after: Facts) -> Iterator[Change]:
    was, now = before.loads[soname], after.loads[soname]
    old, new = before.libraries.get(was, Library()), after.libraries.get(now, Library())
    if was != now:
        yield Change("library", soname, was, now, f"{soname}: {was} -> {now}")
    elif old.size_bytes != new.size_bytes:
        said = f"{old.size_bytes} -> {new.size_bytes} bytes"
        yield Change("library", soname, was, now, f"{soname}: another file under the same name, {was} ({said})")
    lost, got = (sorted(one - other) for one, other in ((_needs(old), _needs(new)), (_needs(new), _needs(old))))
    if lost or got:
        words = [*(f"+ {one}" for one in got), *(f"- {one}" for one in lost)]
        yield Change(
            "needs", soname, ", ".join(lost) or None, ", ".join(got) or None, f"{soname} needs {', '.join(words)}"
        )
    for group, low, high in _pairs(old.wants, new.wants):
        if low != high:
            what = (
                f"{soname} wants {group}_{high} (before: {low or 'none'})" if high else f"{soname} wants no {group} now"
            )
            yield Change("wants", soname, low and f"{group}_{low}", high and f"{group}_{high}", what)


def _needs(library: Library) -> set[str]:
    """Give what a library needs, but for the C library and its like: `wants` says what it needs of those."""
    return {name for name in library.needed if not is_foundation(name)}


def _broken(before: Facts, after: Facts) -> Iterator[Change]:
    for name in sorted(after.missing.keys() - before.missing.keys()):
        who = ", ".join(after.missing[name])
        yield Change("missing", name, None, who, f"{name} is needed by {who}, and the node has none")
    for name in sorted(before.missing.keys() - after.missing.keys()):
        what = f"{name} was needed by {', '.join(before.missing[name])} and not there; nothing lacks it now"
        yield Change("missing", name, ", ".join(before.missing[name]), None, what)
    for link, old, new in _pairs(before.dangling, after.dangling):
        if old != new:
            what = f"{link} {new}" if new else f"{link} {old} no more"
            yield Change("dangling", link, old, new, f"dangling link: {what}" if new else f"link mended: {what}")


def _runtime(before: Facts, after: Facts) -> Iterator[Change]:
    old, new = before.runtime, after.runtime
    if old != new:
        was, now = (one.package or (one.real and f"{one.real}, {one.size_bytes} bytes") for one in (old, new))
        what = f"container runtime: {was or 'none'} -> {now or 'none'}"
        yield Change("runtime", new.real or old.real or "runtime", was, now, what)


def _interfaces(before: Facts, after: Facts) -> Iterator[Change]:
    for name, old, new in _pairs(before.interfaces, after.interfaces):
        yield from _device("interface", f"interface {name}", name, old, new)
    for name, one, other in _pairs(before.nics, after.nics):
        yield from _device("nic", f"network adapter {name}", name, one, other)


def _device(
    kind: Kind, words: str, name: str, old: Interface | Device | None, new: Interface | Device | None
) -> Iterator[Change]:
    if old is None or new is None:
        if old is not new:
            what = f"{words} is {'new' if old is None else 'gone'}"
            yield Change(kind, name, "there" if old else None, "there" if new else None, what)
        return
    parts = [
        f"{item.name} {getattr(old, item.name)} -> {getattr(new, item.name)}"
        for item in fields(old)
        if getattr(old, item.name) != getattr(new, item.name)
    ]
    if parts:
        yield Change(kind, name, "there", "there", f"{words}: {', '.join(parts)}".replace("None", "not known"))


def _gpus(before: Facts, after: Facts) -> Iterator[Change]:
    if len(before.gpus) != len(after.gpus):
        count, number = str(len(before.gpus)), str(len(after.gpus))
        yield Change("gpu-count", "GPUs", count, number, f"GPUs: {count} -> {number}")
        return
    old, new = (tuple(gpu.bus or "-" for gpu in facts.gpus) for facts in (before, after))
    if old != new:
        moved = [
            f"GPU {index} {one} -> {two}" for index, (one, two) in enumerate(zip(old, new, strict=True)) if one != two
        ]
        yield Change("gpu-bus", "GPU bus ids", ", ".join(old), ", ".join(new), f"GPU bus ids: {', '.join(moved)}")
    places = [tuple((gpu.numa, gpu.cpus) for gpu in facts.gpus) for facts in (before, after)]
    for index, (one, two) in enumerate(zip(*places, strict=True)):
        if one != two:
            was, now = (f"NUMA domain {numa}, CPUs {cpus}".replace("None", "not known") for numa, cpus in (one, two))
            yield Change("gpu-place", f"GPU {index}", was, now, f"GPU {index}: {was} -> {now}")


def _cpus(before: Facts, after: Facts) -> Iterator[Change]:
    old, new = (
        " ".join(f"{group.cpus}@{'?' if group.numa is None else group.numa}" for group in facts.cpus) or None
        for facts in (before, after)
    )
    if old != new:
        yield Change("cpus", "CPUs", old, new, f"CPUs by L3@NUMA: {old or 'not known'} -> {new or 'not known'}")


def _images(before: Facts, after: Facts) -> Iterator[Change]:
    for directory, old, new in _pairs(before.images, after.images):
        asked = directory in before.paths and directory in after.paths
        for name, was, now in _pairs(old or {}, new or {}):
            if was != now and asked:
                yield _image(f"{directory}/{name}", was, now)


def _image(path: str, was: ImageFile | None, now: ImageFile | None) -> Change:
    old, new = (None if one is None else one.target or path for one in (was, now))
    if old is None or new is None:
        led = "" if path in (old, new) else f" (-> {old or new})"
        return Change("image", path, old, new, f"{'new image' if old is None else 'image gone'}: {path}{led}")
    if old != new:
        return Change("image", path, old, new, f"image alias {path} leads elsewhere: {old} -> {new}")
    return Change("image", path, old, new, f"image replaced under its name: {path}")


def _deployed(before: Facts, after: Facts) -> Iterator[Change]:
    old, new = before.deployed, after.deployed
    if old.release != new.release:
        yield from _value("release", "deployed release", old.release, new.release)
        return
    for path, was, now in _pairs(old.files, new.files):
        if was != now:
            how = "added to" if was is None else "removed from" if now is None else "edited by hand in"
            yield Change("edited", path, was, now, f"{path} was {how} the deployed release {new.release}")


def _pairs(old: Mapping[str, _T], new: Mapping[str, _T]) -> Iterator[tuple[str, _T | None, _T | None]]:
    for name in sorted({*old, *new}):
        yield name, old.get(name), new.get(name)


#: In the order of the report: what breaks containers comes before what only describes the machine.
_DIFFERENCES: tuple[Callable[[Facts, Facts], Iterator[Change]], ...] = (
    _products,
    _libraries,
    _broken,
    _paths,
    _drivers,
    _releases,
    _gpus,
    _interfaces,
    _kernel_configs,
    _images,
    _deployed,
    _runtime,
    _systems,
    _cpus,
)
