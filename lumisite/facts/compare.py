"""Two captures of a node to the list of what differs, as values; nothing here knows the site, or says it in words."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import is_dataclass, replace
from typing import Any, TypeVar, get_args

from lumisite.facts.change import BootConfig, Change, DeployedFile, Kind, LoadedFile, OtherDriver, SymbolVersion, parted
from lumisite.facts.facts import Adapter, Facts, Interface, Library, Plain, Releases
from lumisite.machine.library_names import is_foundation, stem
from lumisite.machine.tree import is_under
from lumisite.vendors import all_gpus, all_software, all_vendors

T = TypeVar("T")
D = TypeVar("D", Interface, Adapter)
Changes = Iterator[Change[Any]]

#: What facts files of before lack: where one of two captures does not know it, it is not compared.
_NEWER = ("mtu", "lower", "networks", "sha256", "kind", "link", "port")


def compare(before: Facts, after: Facts, asked: Collection[str] = ()) -> tuple[Change[Any], ...]:
    """Give every difference of two captures, what matters most first; the same captures give none.

    `asked` are the stems of the libraries that both captures looked for, whether they are needed or not.
    """
    seen, closed = tuple(_differences(before, after, asked)), tuple(_closed(before, after))
    # What one of the captures could not read, or only root could in one of them.
    shut = {path for facts in (before, after) for path in facts.plain.get("unreadable", {})}
    shut |= {change.subject for change in closed}
    found = tuple(change for change in seen if not _is_hidden(change, shut, before, after))
    subjects = {kind: {one.subject for one in found if one.kind == kind} for kind in get_args(Kind)}
    folders = [*_releases(found, before, after), *subjects["image"], *subjects["dangling"]]
    links = {posixpath.basename(path) for path in subjects["dangling"]}
    renamed = [one for one in found if one.kind == "soname"]
    lost = {name for one in renamed for name in one.before or ()} | subjects["library-gone"]
    kinds = {path: {one.kind, after.paths.get(path, one).kind} for path, one in before.paths.items()}
    void = [path for path, pair in kinds.items() if "directory" in pair and pair & {"none", "dangling", "file"}]
    needed = {name for one in found if one.kind == "needs" for name in one.after or ()}
    software = {one.title: one for _, one in all_software()}
    moving = (software.get(one) for one in subjects["default"])
    releases = tuple(start for one in moving if one is not None for start in one.moving)
    releases += tuple(f"{one}/" for one in subjects["default"] if one not in software)
    built = subjects["needs"] | subjects["wants"] | subjects["gives"]

    def is_told(change: Change[Any]) -> bool:
        """Tell whether a change only follows from another one, which is told."""
        name, paths = change.subject, [getattr(one, "path", None) for one in (change.before, change.after)]
        top = software[name].folders[0].rstrip("/") if name in software else name
        if any(at.startswith(f"{one}/") for one in void for at in (top, *paths) if at):
            return True
        match change.kind:
            case "path":
                return posixpath.basename(name) in lost or _is_below(name, folders)
            case "needs":
                return _is_renamed(change, renamed)
            case "missing":
                return name in links | subjects["library-gone"] | subjects["damaged"]
            case "library-gone" | "library-new":
                known = links | (needed | subjects["missing"] if change.before is None else set())
                lacking = getattr(change.before, "needed_by", ())
                return name in known or (not lacking and any(_is_below(path, folders) for path in paths if path))
            case "library" if paths[0] == paths[1]:
                return (name in built and paths[0] == before.loads.get(name)) or _is_below(str(paths[0]), folders)
            case "library":  # with another default, the loader comes to another file first
                kept = all(path in before.libraries and path in after.libraries for path in paths)
                return (kept and str(paths[0]).startswith(releases)) or _is_below(str(paths[0]), folders)
            case "default":
                return f"{name}/default" in subjects["dangling"]
            case "dangling":
                return any(name in one.defaults and one.title in subjects["default"] for one in software.values())
            case "gpu-place":  # the CPUs near a GPU are those of an L3 group
                return bool(subjects["cpus"]) and change.before.numa == change.after.numa  # type: ignore[union-attr]
        return False

    told = closed if len(found) < len(seen) or "unreadable" in before.plain else ()
    return (*told, *(change for change in found if not is_told(change)))


def _is_renamed(needs: Change[tuple[str, ...]], renamed: Iterable[Change[tuple[str, ...]]]) -> bool:
    """Tell whether a library needs what it needed before, by the other SONAMEs that this has now."""
    old, new = set(needs.before or ()), set(needs.after or ())
    for one in renamed:
        if not old.isdisjoint(one.before or ()) and not new.isdisjoint(one.after or ()):
            old, new = old.difference(one.before or ()), new.difference(one.after or ())
    return not old and not new


def _releases(found: Iterable[Change[Any]], before: Facts, after: Facts) -> Iterator[str]:
    """Give the folders of releases that only one of the captures has."""
    yield from (path for one in found if one.kind == "product" for path in (one.before, one.after) if path)
    for _, one in all_software():
        versions = (facts.stacks.get(one.name, Releases()).versions for facts in (before, after))
        yield from (top for pair in parted(*versions) for name in pair for top in one.tops(name))


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(is_under(path, one) for one in folders)


def _differences(before: Facts, after: Facts, asked: Collection[str]) -> Changes:
    """Give all, in the order of the report: what breaks containers comes before what only describes the machine."""
    yield from _products(before, after)
    yield from _sonames(before, after, asked)
    yield from _libraries(before, after)
    lacked, lacking = parted(before.missing, after.missing)
    yield from (Change("missing", name, None, after.missing[name]) for name in lacking)
    yield from (Change("missing", name, before.missing[name], None) for name in lacked)
    yield from _entries("dangling", before.dangling, after.dangling)
    yield from _paths(before, after)
    yield from _drivers(before, after)
    for _, one in all_software():
        was, now = (facts.stacks.get(one.name, Releases()) for facts in (before, after))
        yield from _changed("stack", one.title, was.versions or None, now.versions or None)
        yield from _changed("default", one.title, was.default, now.default)
    yield from _gpus(before, after)
    yield from _devices("interface", *_interfaces(before, after))
    yield from _devices("nic", before.nics, after.nics)
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
    for kind in get_args(Plain):
        if kind in before.plain and kind in after.plain and kind not in _CLOSED:
            yield from _entries(kind, before.plain[kind], after.plain[kind])


def _changed(kind: Kind, subject: str, old: T | None, new: T | None) -> Iterator[Change[T]]:
    one, other = old, new
    if is_dataclass(old) and is_dataclass(new) and type(old) is type(new):
        unknown = {name: None for name in _NEWER if None in (getattr(old, name, 0), getattr(new, name, 0))}
        one, other = (replace(side, **unknown) for side in (old, new))  # type: ignore[type-var]
    if one != other:
        yield Change(kind, subject, one, other)


def _pairs(old: Mapping[str, T], new: Mapping[str, T]) -> Iterator[tuple[str, T | None, T | None]]:
    for name in sorted({*old, *new}):
        yield name, old.get(name), new.get(name)


def _entries(kind: Kind, old: Mapping[str, T], new: Mapping[str, T]) -> Iterator[Change[T]]:
    for name, was, now in _pairs(old, new):
        yield from _changed(kind, name, was, now)


def _interfaces(before: Facts, after: Facts) -> tuple[Mapping[str, Interface], Mapping[str, Interface]]:
    """Give the interfaces that both captures looked for: those of before did not look for what lies on others."""
    old, new = before.interfaces, after.interfaces
    if all(any(one.networks is not None for one in side.values()) for side in (old, new)):
        return old, new
    return (
        {name: one for name, one in old.items() if name in new or not one.lower},
        {name: one for name, one in new.items() if name in old or not one.lower},
    )


def _devices(kind: Kind, old: Mapping[str, D], new: Mapping[str, D]) -> Changes:
    """Give what differs by name; a device with another name at the same address is one change."""
    lost, got = parted(old, new)
    gone, come = Counter(old[name].bus for name in lost), {new[name].bus: name for name in got}
    only = {bus for bus, count in Counter(new[name].bus for name in got).items() if bus and count == gone[bus] == 1}
    renamed = {name: come[old[name].bus] for name in lost if old[name].bus in only}
    yield from (Change(kind, name, old[name], now) for name, now in renamed.items())
    left = {name: one for name, one in old.items() if name not in renamed}
    yield from _entries(kind, left, {name: one for name, one in new.items() if name not in renamed.values()})


def _drivers(before: Facts, after: Facts) -> Changes:
    """Give what differs by name; a driver in the place of another one of the same vendor is one change."""
    old, new = dict(before.drivers), dict(after.drivers)
    for gpu in all_gpus():
        lost, got = parted(*([name for name in gpu.drivers if name in one] for one in (old, new)))
        if len(lost) == len(got) == 1:
            yield Change("driver", lost[0], old.pop(lost[0]), OtherDriver(got[0], new.pop(got[0])))
    yield from _entries("driver", old, new)


# What one of two captures could not read


_CLOSED = ("unreadable", "private")
#: The changes of what has no path at all.
_WITHOUT_PATH = ("os", "kernel", "glibc", "slurm", "release")


def _closed(before: Facts, after: Facts) -> Changes:
    """Give what users may read no more, or may read again; what two captures by different users see is the same."""
    old, new = (
        {path: how for kind in _CLOSED for path, how in one.plain.get(kind, {}).items()} for one in (before, after)
    )
    for path, was, now in _pairs(old, new):
        if was is None or now is None:
            yield Change("unreadable", path, was, now)


def _behind(facts: Facts, shut: set[str]) -> set[str]:
    """Give the SONAMEs that are in `shut`, or that only these need."""
    needing: dict[str, set[str]] = {}
    for library in facts.libraries.values():
        for name in library.needed:
            needing.setdefault(name, set()).add(library.soname or "")
    found = {name for name, path in facts.loads.items() if _is_below(path, shut)}
    while more := {name for name, who in needing.items() if who <= found} - found:
        found |= more
    return found


def _is_hidden(change: Change[Any], shut: set[str], before: Facts, after: Facts) -> bool:
    """Tell whether a change is of what could not be read, so that nothing is known of it."""
    if shut and change.kind in _WITHOUT_PATH and None in (change.before, change.after):
        return True
    if change.subject in _behind(before, shut) | _behind(after, shut):
        return True
    # Where the releases of a subject without a path stand.
    software = next((one for _, one in all_software() if one.title == change.subject), None)
    texts = [change.subject]
    for facts, value in ((before, change.before), (after, change.after)):
        names = value if isinstance(value, tuple) else (change.subject,)
        texts += [facts.loads.get(name, "") if isinstance(name, str) else "" for name in names]
        releases = value if isinstance(value, tuple) else [value]
        texts += [top for name in releases for top in software.tops(str(name))] if software else []
        texts += value.split() if isinstance(value, str) else []
        texts += (getattr(value, name, None) or "" for name in ("path", "real", "target"))
    # A folder of releases or of links is known by what is in it, and a deployed file by its path in the release.
    return any(_is_below(text, shut) for text in texts) or any(
        one.startswith(f"{texts[0]}/") or one.endswith(f"/{texts[0]}") for one in shut
    )


def _kernel_configs(before: Facts, after: Facts) -> Changes:
    """Give one change for a file that moved, with its old path as subject, and one for options, with its new path."""
    old, new = _boot_config(before), _boot_config(after)
    readers = {name for one in all_vendors() if one.gpu and one.kernel_options for name in one.gpu.drivers}
    if old.path is None or old.options is None or not readers & before.drivers.keys() & after.drivers.keys():
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
    told = {one.folders[0].rstrip("/") for _, one in all_software()}  # as stacks
    for path, old, new in _pairs(before.products, after.products):
        if path in told:
            continue
        was, now = old or Releases(), new or Releases()
        gone = [f"{path}/{version}" for version in was.versions if version not in now.versions]
        come = [f"{path}/{version}" for version in now.versions if version not in was.versions]
        if len(gone) == len(come) == 1:
            yield Change("product", path, gone[0], come[0])
        else:
            yield from (Change("product", path, one, None) for one in gone)
            yield from (Change("product", path, None, one) for one in come)
        renamed = [f"{path}/{one}" for one in (was.default, now.default)] == [*gone, *come]
        if was.default is not None and not renamed:
            yield from _changed("default", path, was.default, now.default)


def _paths(before: Facts, after: Facts) -> Changes:
    for path in sorted(before.paths.keys() & after.paths.keys()):
        old, new = before.paths[path], after.paths[path]
        library = ".so" in posixpath.basename(path) and old.kind == new.kind == "file"
        # Where a library's link leads is told with the library; whether a directory is a release, with the product.
        if not library and posixpath.dirname(path) not in {**before.products, **after.products}:
            yield from _changed("path", path, old, new)


def _sonames(before: Facts, after: Facts, asked: Collection[str]) -> Changes:
    old, new = _by_stem(before.loads), _by_stem(after.loads)
    searched = {*asked, *new, *_by_stem(after.missing)}
    for name, lost, got in _pairs(old, new):
        gone, come = parted(lost, got)
        # What nothing needs any more may still be there.
        gone = tuple(one for one in gone if name in searched and one not in after.beside)
        if gone and come:
            yield Change("soname", gone[0], gone, come)
            continue
        for one in gone:
            was = replace(_file(before, before.loads[one]), needed_by=after.missing.get(one, ()))
            damage = after.damaged.get(was.path)
            yield Change("damaged", one, None, damage) if damage else Change("library-gone", one, was, None)
        for one in come:
            now = _file(after, after.loads[one])
            damage = before.damaged.get(now.path)
            yield Change("damaged", one, damage, None) if damage else Change("library-new", one, None, now)


def _libraries(before: Facts, after: Facts) -> Changes:
    for soname in sorted(before.loads.keys() & after.loads.keys()):
        paths = before.loads[soname], after.loads[soname]
        yield from _changed("library", soname, _file(before, paths[0]), _file(after, paths[1]))
        was, now = before.libraries.get(paths[0], Library()), after.libraries.get(paths[1], Library())
        # The C library and its like do not count here: `wants` says what is needed of those.
        unneeded, needed = parted(*([name for name in one.needed if not is_foundation(name)] for one in (was, now)))
        yield from _changed("needs", soname, unneeded or None, needed or None)
        for group, low, high in _pairs(was.wants, now.wants):
            versions = (None if one is None else SymbolVersion(group, one) for one in (low, high))
            yield from _changed("wants", soname, *versions)
        if was.gives is not None and now.gives is not None:
            no_more, more = parted(was.gives, now.gives)
            yield from _changed("gives", soname, no_more or None, more or None)
    # Other copies, which modules or images for another release take.
    others = (before.libraries.keys() & after.libraries.keys()).difference(before.loads.values(), after.loads.values())
    for path in sorted(others):
        name = after.libraries[path].soname or posixpath.basename(path)
        yield from _changed("library", name, _file(before, path), _file(after, path))


def _by_stem(sonames: Iterable[str]) -> dict[str, set[str]]:
    stems: dict[str, set[str]] = {}
    for soname in sonames:
        stems.setdefault(stem(posixpath.basename(soname)), set()).add(soname)
    return stems


def _file(facts: Facts, path: str) -> LoadedFile:
    library = facts.libraries.get(path, Library())
    return LoadedFile(path, library.size_bytes, library.sha256)


def _gpus(before: Facts, after: Facts) -> Changes:
    if not (before.cpus and after.cpus):  # without CPUs a capture has no GPUs either, and says why
        return
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
