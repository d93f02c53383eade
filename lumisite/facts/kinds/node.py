"""Texts of a node: kernel parameters, devices, options of drivers, CPUs, limits and mounts.

Sources: Documentation/admin-guide/{kernel-parameters,sysctl/*,mm/hugetlbpage,mm/transhuge} and Documentation/ABI of
Linux; proc(5); modprobe.d(5); limits.conf(5); systemd.exec(5), systemd.unit(5), systemd-system.conf(5); tmpfs(5);
mount.lustre(8). Which devices and drivers count is the vendors'.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from lumisite.facts.change import Change
from lumisite.facts.kind import Differences
from lumisite.facts.kinds.paths import folders_of, is_below
from lumisite.facts.kinds.reading import files_of, lines_of, printable_only, settings_in, values_of
from lumisite.machine.ldcache import glob
from lumisite.machine.tree import Tree, first_line, is_under, names_of, resolve, small_text
from lumisite.site.model import Site
from lumisite.vendors import all_fabrics, all_gpus, all_vendors

if TYPE_CHECKING:
    from lumisite.machine.host import Mount

# Values of the kernel

#: What decides which calls of the system a container gets, or how its memory is placed.
_SYSCTLS = (
    "kernel.numa_balancing", "kernel.yama.ptrace_scope", "vm.max_map_count", "vm.overcommit_memory",
    "vm.unprivileged_userfaultfd", "vm.zone_reclaim_mode",
)  # fmt: skip
#: Parameters that name a boot, its medium or the node, or only say what is printed: they differ where nothing changed,
#: and some hold secrets.
_OF_ONE_BOOT = re.compile(
    r"boot_image|bootif|initrd|root(flags|fstype)?|nfs.*|resume|ip|nid|xname|ds|rd[._].*|console|quiet|splash|rhgb|"
    r"(ignore_)?loglevel|.*(token|secret|passw|uuid|session|url|_data|ifname|hostname).*",
    re.IGNORECASE,
)
_CPU = "/sys/devices/system/cpu"
_CPU_SETTINGS = {
    **{
        name: f"{_CPU}/cpu[0-9]*/cpufreq/{name}"
        for name in ("scaling_driver", "scaling_governor", "energy_performance_preference")
    },
    "boost": f"{_CPU}/cpufreq/boost",
    "no_turbo": f"{_CPU}/*_pstate/no_turbo",
    "smt": f"{_CPU}/smt/control",
}
_PAGES = "/sys/kernel/mm/hugepages"


def sysctls(tree: Tree, names: Iterable[str] = _SYSCTLS) -> dict[str, str]:
    """Return the values under /proc/sys; of a copy without it, what is set at boot."""
    files = [path for folder in ("/usr/lib", "/run", "/etc") for path in glob(tree, f"{folder}/sysctl.d/*.conf")]
    stated = settings_in(lines_of(tree, [*files, "/etc/sysctl.conf"]))
    at_boot = {name.strip("-").replace("/", "."): value for name, value in stated.items()}
    live = values_of(tree, {name: f"/proc/sys/{name.replace('.', '/')}" for name in names})
    return {name: text for name in names if (text := live.get(name, at_boot.get(name))) is not None}


def read_sysctls(tree: Tree, _: Site) -> dict[str, str]:
    """Return the settings of the kernel that containers notice."""
    return printable_only(sysctls(tree))


def read_parameters(tree: Tree, _: Site) -> dict[str, str]:
    """Return each parameter of the command line as it is written; of one that is there several times all, in order."""
    found: dict[str, str] = {}
    line = (first_line(tree, "/proc/cmdline") or "").partition(" -- ")[0]
    for word in re.findall(r'(?:[^\s"]|"[^"]*")+', line):
        name = word.partition("=")[0].replace("-", "_")
        if not _OF_ONE_BOOT.fullmatch(name):
            found[name] = f"{found[name]} {word}" if name in found else word
    return found


def read_hugepages(tree: Tree, _: Site) -> dict[str, str]:
    """Return the pages of each size that are reserved, without those that a process has beyond them."""
    found = {}
    for name in names_of(tree, _PAGES):
        pages, surplus, demand = (
            first_line(tree, f"{_PAGES}/{name}/{end}_hugepages") or "0" for end in ("nr", "surplus", "nr_overcommit")
        )
        if all(re.fullmatch("[0-9]{1,18}", count) for count in (pages, surplus)):
            found[name.removeprefix("hugepages-")] = f"{int(pages) - int(surplus)} reserved, {demand} on demand"
    chosen = re.search(r"\[(\w+)\]", first_line(tree, "/sys/kernel/mm/transparent_hugepage/enabled") or "")
    return printable_only({**found, "transparent": chosen[1]} if chosen else found)


def read_cpu_settings(tree: Tree, _: Site) -> dict[str, str]:
    """Return the governor and the like, boost and SMT."""
    return printable_only(values_of(tree, _CPU_SETTINGS))


def smt_follows(change: Change, differences: Differences) -> bool:
    """Follow, as a switch of SMT, from the hardware threads that are there."""
    return change.subject in ("smt", "nosmt") and any(
        "threads" in one.values for one in differences.by_kind.get("cpus", ())
    )


# Devices, and the modules that drive them


def _devices() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return by name whose devices there are, and the patterns of their files."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {"/dev/fuse": ("", ("/dev/fuse",))}
    found |= {gpu.control: ("gpu", (gpu.control,)) for gpu in all_gpus()}
    found |= {_name(path): ("gpu", (path,)) for gpu in all_gpus() for path in gpu.devices}
    found |= {_name(path): ("nic", (path,)) for fabric in all_fabrics() for path in fabric.devices}
    shared = [vendor.devices for vendor in all_vendors() if vendor.devices]
    found |= {posixpath.basename(paths[0]): ("", paths) for paths in shared}
    return {name: row for name, row in found.items() if not any(other.startswith(f"{name}/") for other in found)}


def _name(pattern: str) -> str:
    return re.split(r"[*?[]", pattern)[0]


def read_devices(tree: Tree, _: Site) -> dict[str, str]:
    """Return how many there are of each device, and their rights."""
    return files_of(tree, {name: patterns for name, (_of, patterns) in _devices().items()})


def device_follows(change: Change, differences: Differences) -> bool:
    """Follow from the driver, from as many GPUs or adapters that came or went, or from all GPUs."""
    of, _ = _devices().get(change.subject, ("", ()))
    counts = [_count(text) for text in (change.before, change.after)]
    if of == "gpu":
        numbers = [len(facts.gpus) for facts in (differences.before, differences.after)]
        loaded = [one for one in differences.by_kind.get("driver", ()) if None in (one.before, one.after)]
        # A card may have several files, and all cards one.
        is_cause = bool(loaded) or (numbers[0] != numbers[1] and counts[0] * numbers[1] == counts[1] * numbers[0])
    else:
        adapters = [one for one in differences.by_kind.get("nic", ()) if None in (one.before, one.after)]
        is_cause = of == "nic" and bool(adapters) and abs(counts[0] - counts[1]) <= len(adapters)
    return is_cause and _modes(change.before) >= _modes(change.after)


def _count(text: str | None) -> int:
    found = re.match(r"[0-9]{1,6}", text or "")
    return int(found[0]) if found else 0


def _modes(text: str | None) -> set[str]:
    return set((text or "").partition("of mode ")[2].split(" and "))


def network_modules(tree: Tree) -> set[str]:
    """Return the loaded modules that drive the network: those known by name, and those of the interfaces."""
    known = "|".join(vendor.kernel_modules for vendor in all_vendors() if vendor.kernel_modules)
    links = (f"/sys/class/net/{name}/device/driver" for name in names_of(tree, "/sys/class/net"))
    drivers = [resolve(tree, path) for link in links for path in (f"{link}/module", link)]
    names = {posixpath.basename(driver.path) for driver in drivers if driver.entry is not None}
    return names | {name for name in names_of(tree, "/sys/module") if re.fullmatch(known, name)}


def read_modules(tree: Tree, _: Site) -> dict[str, str]:
    """Return version and build of what drives the network."""
    found = {}
    for name in sorted(network_modules(tree)):
        version, build = (first_line(tree, f"/sys/module/{name}/{file}") for file in ("version", "srcversion"))
        found[name] = " ".join(filter(None, (version, build and f"(build {build})")))
    return printable_only(found)


#: What stands before an option as modprobe.d has it.
_STATED = "modprobe "


def read_options(tree: Tree, _: Site) -> dict[str, str]:
    """Return each option of the drivers of GPUs and networks: as it is now, and as modprobe.d has it, if another."""
    drivers = [rf"{name}(_\w+)?" for gpu in all_gpus() for name in gpu.drivers]
    known = "|".join((*drivers, *(vendor.kernel_modules for vendor in all_vendors() if vendor.kernel_modules)))
    loaded = {name for name in names_of(tree, "/sys/module") if re.fullmatch(known, name)} | network_modules(tree)
    found: dict[str, str] = {}
    for module in sorted(loaded):
        folder = f"/sys/module/{module}/parameters"
        for name in names_of(tree, folder):
            found[f"{module}.{name}"] = (small_text(tree, f"{folder}/{name}") or "").strip()
    folders = ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")
    for line in lines_of(tree, _first_of_each_name(tree, (f"{folder}/modprobe.d/*.conf" for folder in folders))):
        command, module, *words = [*line.split(), ""]
        module = module.replace("-", "_")
        if module not in loaded and not re.fullmatch(known, module):
            continue
        if command == "options":
            new = {f"{module}.{name}": value for name, value in settings_in(words).items()}
            found |= {_STATED + name: value for name, value in new.items() if not _is_same(value, found.get(name))}
        elif command == "blacklist" or (command == "install" and words[0].endswith(("/true", "/false"))):
            found[f"{_STATED}{module}.blacklist"] = "yes"
    return {name: value for name, value in found.items() if (name + value).isprintable()}


def _first_of_each_name(tree: Tree, patterns: Iterable[str]) -> list[str]:
    """Return the files of folders in the order of their names: of one name the first folder's counts."""
    files: dict[str, str] = {}
    for path in (path for pattern in patterns for path in glob(tree, pattern)):
        files.setdefault(posixpath.basename(path), path)
    return [files[name] for name in sorted(files)]


def _is_same(stated: str, live: str | None) -> bool:
    """Return whether the value of a line is that of the kernel, which writes Y and N."""
    return live is not None and {"1": "Y", "0": "N"}.get(stated, stated) == {"1": "Y", "0": "N"}.get(live, live)


def options_follow(change: Change, differences: Differences) -> bool:
    """Follow from the kernel's command line, or from the value that the driver has; one build's own do not count."""
    if change.subject.startswith(_STATED):
        return change.subject.removeprefix(_STATED) in differences.subjects("driver-option")
    return None in (change.before, change.after) or change.subject in differences.subjects("kernel-parameter")


# Limits of each process of a job

#: Domains of limits.conf(5) that are not one user: all, a group, a range of numbers.
_SEVERAL = re.compile(r"\*|[@%].*|[0-9]*:[0-9]*")
_ITEMS = ("as", "data", "memlock", "nofile", "nproc", "stack")
#: Keys of a unit that bound or hide something from the processes of a service, which jobs inherit (systemd.exec(5),
#: systemd.resource-control(5)).
_OF_UNITS = re.compile(
    "(Limit|Memory|Tasks|CPU|Allowed|NUMA|IO|OOM|Private|Protect|Restrict|Device|Delegate|NoNewPriv|Capability|Ambient|"
    "Nice|Slice|SystemCall|LockPers|ReadOnlyP|Inaccessible|BindP|TemporaryF|RootD|UMask|Environment)[A-Za-z]*"
)
#: Where units are, what counts most first; drop-ins of all of them count, by their names.
UNIT_FOLDERS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)


def read_limits(tree: Tree, _: Site) -> dict[str, str] | None:
    """Return the limits of pam_limits by domain and item, and those of slurmd, which its jobs inherit, as written."""
    found: dict[str, dict[str, str]] = {}
    for line in lines_of(tree, ("/etc/security/limits.conf", *glob(tree, "/etc/security/limits.d/*.conf"))):
        words = line.split()
        if len(words) == 4 and re.fullmatch(_SEVERAL, words[0]) and words[2] in _ITEMS:
            kinds = ("hard", "soft") if words[1] == "-" else (words[1],)
            found.setdefault(f"{words[0]} {words[2]}", {}).update(dict.fromkeys(kinds, words[3]))
    texts = {name: "; ".join(f"{kind} {kinds[kind]}" for kind in sorted(kinds)) for name, kinds in found.items()}
    units = [path for top in UNIT_FOLDERS for path in glob(tree, f"{top}/slurmd.service")][:1]
    folders = [f"{top}/{name}" for name in ("service.d", "slurmd.service.d") for top in UNIT_FOLDERS]
    drop_ins = _first_of_each_name(tree, (f"{folder}/*.conf" for folder in folders))
    defaults = ("/etc/systemd/system.conf", *glob(tree, "/etc/systemd/system.conf.d/*.conf"))
    stated = settings_in(lines_of(tree, (*defaults, *units, *drop_ins))) if units else {}
    for key, value in ((key.removeprefix("Default"), value) for key, value in stated.items()):
        if _OF_UNITS.fullmatch(key):
            texts[f"slurmd.service {key}"] = value if key.startswith("Limit") else value.lower()
    is_closed = any(is_below(path, {"/etc/security", *UNIT_FOLDERS}) for path in getattr(tree, "unreadable", {}))
    return None if is_closed else printable_only(texts)


# Mounts

_LOCAL = ("/dev/shm", "/tmp", "/var/tmp")  # noqa: S108
_OPTIONS = re.compile(r"ro|rw|noexec|nosuid|nodev|(no|local)?flock|(size|nr_inodes|mode|huge)=.*")
#: What the kernel says of a file system in user space that is not root's (fuse.txt of Linux).
_OF_USER = re.compile("user_id=[1-9][0-9]*")
_LOCKS = {"flock", "localflock"}
_SIZE = re.compile(r"(?:(?<=size=)|(?<=nr_inodes=))([0-9]{1,18})([kmg]?)$")
_SAME_SIZE = 0.05


def read_mounts(tree: Tree, site: Site) -> dict[str, str] | None:
    """Return kind and options of what is mounted at, above and below the paths of file systems; `None` if unknown.

    All that is above counts, so that a file system that is not mounted any more is the only difference. What an
    automounter mounts comes and goes by itself and is left out, as is what a user mounts.
    """
    mounts = mounts_in(tree)
    places = {path: resolve(tree, path) for path in (*_LOCAL, *(system.path for system in site.file_systems))}
    paths = {place.path for place in places.values() if place.entry is not None}
    above = {folder for path in paths for folder in folders_of(path)}
    automatic = {mount.point for mount in mounts if mount.kind == "autofs"}
    texts = {}
    for mount in mounts:
        is_near = mount.point in above or is_below(mount.point, paths | places.keys())
        is_of_user = any(map(_OF_USER.fullmatch, mount.options))
        options = set(filter(_OPTIONS.fullmatch, mount.options))
        if is_near and not is_of_user and not is_below(mount.point, automatic):
            texts[mount.point] = " ".join((mount.kind, *sorted(options - {"rw"} if "ro" in options else options)))
    return printable_only(texts) if mounts else None


def mounts_in(tree: Tree) -> tuple[Mount, ...]:
    """Return the mounts of a node, or those that a copy says of itself."""
    from lumisite.machine.host import mounts_of, parse_mounts  # comparing needs nothing that looks at a node

    return mounts_of(tree) or tuple(parse_mounts(_older_table(tree)))


def _older_table(tree: Tree) -> Iterator[str]:
    """Yield the lines of a copy that has /proc/mounts or fstab alone, as the newer table has them."""
    texts = (small_text(tree, path) for path in ("/proc/mounts", "/etc/fstab") if tree.name.strip("/"))
    for words in (line.split() for line in next(filter(None, texts), "").splitlines()):
        if len(words) >= 4 and not words[0].startswith("#"):
            yield f"0 0 0:0 / {words[1]} {words[3]} - {words[2]} {words[0]} {words[3]}"


def known_mounts(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the mounts without those of which the other capture says nothing: older ones had no `/`, nor all above."""
    sides = (old, new), (new, old)
    first, second = (
        {point: text for point, text in side.items() if point in other or not _may_have(other, point)}
        for side, other in sides
    )
    return first, second


def _may_have(mounts: Mapping[str, str], point: str) -> bool:
    return "/" not in mounts and any(is_under(known, point) for known in mounts)


def is_same_mount(was: str | None, now: str | None) -> bool:
    """Return whether a mount is as before: half of the memory is a little more or less after an update."""
    old, new = ({_SIZE.sub("", word): _size(word) for word in (text or "").split()} for text in (was, now))
    return old.keys() == new.keys() and all(abs(old[key] - new[key]) <= _SAME_SIZE * old[key] for key in old)


def is_worse_mount(was: str | None, now: str | None) -> bool:
    """Return whether jobs cannot use a mount as before: it is gone, read-only, or without the locks that it had."""
    old, new = ({*(text or "").split()} for text in (was, now))
    return now is None or bool("ro" in new - old or (old & _LOCKS and not new & _LOCKS))


def _size(word: str) -> int:
    found = _SIZE.search(word)
    return int(found[1]) * 1024 ** " kmg".index(found[2] or " ") if found else 0


def mount_follows(change: Change, differences: Differences) -> bool:
    """Follow from a path that is another one now."""
    return is_below(change.subject, differences.subjects("path", "dangling"))
