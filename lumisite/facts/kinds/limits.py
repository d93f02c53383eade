"""What the system limits for each process of a job: resources (ulimit), and how file systems are mounted.

Sources: limits.conf(5), systemd.exec(5), systemd.unit(5), systemd-system.conf(5), tmpfs(5), mount.lustre(8).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from lumisite.facts.change import Change, Touched
from lumisite.facts.context import Context
from lumisite.facts.facts import Facts
from lumisite.facts.kind import ChangeKind, Differences, text_kind, texts_of
from lumisite.facts.kinds.paths import is_below
from lumisite.machine.ldcache import glob
from lumisite.machine.tree import Tree, resolve, small_text
from lumisite.site.model import Site

_SIZES, _COUNTS = ("as", "data", "memlock", "stack"), ("nofile", "nproc")
_ITEMS = (*_SIZES, *_COUNTS)
#: What a unit sets, and system.conf for all units.
_ASSIGNED = re.compile(r"^[ \t]*(?:Default)?(Limit[A-Z]+|Delegate|TasksMax)[ \t]*=(.*)$", re.MULTILINE)
#: Where units are, what counts most first; drop-ins of all of them count, by their names.
_UNITS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
_NO_LIMIT = ("-1", "unlimited", "infinity")
_LOCAL = ("/dev/shm", "/tmp", "/var/tmp")  # noqa: S108
_OPTIONS = re.compile(r"ro|rw|noexec|nosuid|nodev|(no|local)?flock|(size|nr_inodes|mode|huge)=.*")
_SIZE = re.compile(r"(?:(?<=size=)|(?<=nr_inodes=))([0-9]{1,18})([kmg]?)$")
_SAME_SIZE = 0.05


# Limits of resources


def read_limits(tree: Tree, _: Site) -> dict[str, str] | None:
    """Return the limits of pam_limits by domain and item, and those of slurmd, which its jobs inherit."""
    found: dict[str, dict[str, str]] = {}
    for path in ("/etc/security/limits.conf", *glob(tree, "/etc/security/limits.d/*.conf")):
        for line in (small_text(tree, path) or "").splitlines():
            words = line.partition("#")[0].split()
            if len(words) == 4 and words[0] != "root" and words[2] in _ITEMS:
                kinds = ("soft", "hard") if words[1] == "-" else (words[1],)
                limits = dict.fromkeys(kinds, _limit(words[2], words[3], unit=1024))
                found[f"{words[0]} {words[2]}"] = found.get(f"{words[0]} {words[2]}", {}) | limits
    texts = {name: ", ".join(f"{kind} {kinds[kind]}" for kind in sorted(kinds)) for name, kinds in found.items()}
    texts |= _slurmd_limits(tree)
    if any(is_below(path, {"/etc/security", *_UNITS}) for path in getattr(tree, "unreadable", {})):
        return None
    return {name: text for name, text in texts.items() if (name + text).isprintable()}


def _limit(item: str, value: str, unit: int) -> str:
    """Return a limit in one spelling: sizes in KiB."""
    number = re.fullmatch(r"([0-9]{1,18})([KMGTPE]?)B?", value.upper())
    if value.lower() in _NO_LIMIT or not number:
        return "unlimited" if value.lower() in _NO_LIMIT else value
    scaled = int(number[1]) * 1024 ** " KMGTPE".index(number[2] or " ")
    return f"{scaled * unit // 1024} KiB" if item in _SIZES else str(scaled)


def _slurmd_limits(tree: Tree) -> dict[str, str]:
    """Return the limits of slurmd's unit with its drop-ins, else the defaults of systemd."""
    units = (f"{top}/slurmd.service" for top in _UNITS)
    unit = next((path for path in units if small_text(tree, path) is not None), None)
    if unit is None:
        return {}
    # Of drop-ins with the same name, the one in the first of the folders counts.
    paths = [path for top in reversed(_UNITS) for path in glob(tree, f"{top}/slurmd.service.d/*.conf")]
    drop_ins = {posixpath.basename(path): path for path in paths}
    defaults = ("/etc/systemd/system.conf", *glob(tree, "/etc/systemd/system.conf.d/*.conf"))
    stated: dict[str, str] = {}
    for path in (*defaults, unit, *(drop_ins[name] for name in sorted(drop_ins))):
        stated |= dict(_ASSIGNED.findall(small_text(tree, path) or ""))
    found = {}
    for key, value in ((key, text.strip()) for key, text in stated.items()):
        item = key.removeprefix("Limit").lower()
        if item in _ITEMS and value:
            sides = [_limit(item, side, unit=1) for side in value.split(":")]
            found[f"slurmd.service {key}"] = f"hard {sides[-1]}, soft {sides[0]}"
        elif not key.startswith("Limit") and value:
            found[f"slurmd.service {key}"] = value.lower()
    return found


def limit_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the ranks of all jobs, and for memory that is locked the settings about memory of the network."""
    yield Touched("site", "partitions", "affected-jobs", {"name": change.subject})
    if change.subject.lower().endswith("memlock"):
        yield from context.settings_called("MR_CACHE|REGISTER|HUGE|_HP$", change.subject)


# Mounts


def read_mounts(tree: Tree, site: Site) -> dict[str, str] | None:
    """Return kind and options of what is mounted at, above and below the paths of file systems; `None` if unknown."""
    from lumisite.machine.host import mount_of, mounts_of, parse_mounts  # comparing needs nothing that looks at a node

    mounts = mounts_of(tree) or tuple(parse_mounts(_older_table(tree)))
    places = {path: resolve(tree, path) for path in (*_LOCAL, *(system.path for system in site.file_systems))}
    paths = {place.path for place in places.values() if place.entry is not None}
    nearest = {found.point for path in paths if (found := mount_of(mounts, path)) is not None}
    below = paths | places.keys()
    last = {mount.point: mount for mount in mounts if mount.point in nearest or is_below(mount.point, below)}
    kept = {point: set(filter(_OPTIONS.fullmatch, mount.options)) for point, mount in last.items()}
    texts = {
        point: " ".join((last[point].kind, *sorted(options - {"rw"} if "ro" in options else options)))
        for point, options in kept.items()
    }
    return {point: text for point, text in texts.items() if (point + text).isprintable()} if mounts else None


def _older_table(tree: Tree) -> Iterator[str]:
    """Yield the lines of a copy that has /proc/mounts or fstab alone, as the newer table has them."""
    texts = (small_text(tree, path) for path in ("/proc/mounts", "/etc/fstab") if tree.name.strip("/"))
    for words in (line.split() for line in next(filter(None, texts), "").splitlines()):
        if len(words) >= 4 and not words[0].startswith("#"):
            yield f"0 0 0:0 / {words[1]} {words[3]} - {words[2]} {words[0]} {words[3]}"


def compare_mounts(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each mount with other options, or that went; an automounter's come and go by themselves."""
    old, new = texts_of("mounts", before, after)
    automatic = {point for side in (old, new) for point, text in side.items() if text.split()[:1] == ["autofs"]}
    for point in sorted(old.keys() | new.keys()):
        was, now = (side.get(point, "").split() for side in (old, new))
        if "autofs" in (*was[:1], *now[:1]) or (not (was and now) and is_below(point, automatic)) or _is_same(was, now):
            continue
        had_locks, has_locks = (not {"flock", "localflock"}.isdisjoint(side) for side in (was, now))
        code = "mount-gone" if not now else "mount-changed"
        if was and "ro" not in was and "ro" in now:
            code = "mount-turned-read-only"
        elif was[:1] == now[:1] and had_locks and not has_locks:
            code = "mount-without-locks"
        yield Change(code, point, old.get(point), new.get(point))


def _is_same(was: list[str], now: list[str]) -> bool:
    """Return whether a mount is as before: half of the memory is a little more or less after an update."""
    old, new = ({_SIZE.sub("", word): _size(word) for word in words} for words in (was, now))
    return old.keys() == new.keys() and all(abs(old[key] - new[key]) <= _SAME_SIZE * old[key] for key in old)


def _size(word: str) -> int:
    found = _SIZE.search(word)
    return int(found[1]) * 1024 ** " kmg".index(found[2] or " ") if found else 0


def mount_follows(change: Change, differences: Differences) -> bool:
    """Follow from a path that is another one now."""
    return is_below(change.subject, differences.subjects("path", "dangling"))


def mount_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the ranks of all jobs, and what names a path on the mount."""
    yield Touched("site", "partitions", "affected-jobs", {"name": change.subject})
    if change.subject != "/":
        yield from context.all_naming(change.subject)


KINDS = (
    text_kind("limits", "limit-changed", limit_touches, read_limits),
    ChangeKind("mounts", compare_mounts, mount_touches, mount_follows, read_mounts),
)
