"""Files of a node that reach a job, of the kernel, the loader, systemd and pam, as lists of words by name.

Sources: Documentation/admin-guide/{kernel-parameters,sysctl/*,mm/hugetlbpage,mm/transhuge} and Documentation/ABI of
Linux; proc(5); ld.so(8), ldconfig(8); cgroups(7); limits.conf(5); systemd.exec(5), systemd.unit(5); tmpfs(5);
mount.lustre(8). Which devices, drivers and services count is the vendors'.
"""

from __future__ import annotations

import gzip
import posixpath
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress

from lumisite.errors import LumisiteError
from lumisite.facts.reading import (
    Texts,
    first_of_each_name,
    folders_of,
    is_below,
    lines_of,
    mode_of,
    settings_in,
    values_of,
)
from lumisite.machine.host import mounts_of
from lumisite.machine.ldcache import CACHE, CONF, conf_directories, glob, read_cache
from lumisite.machine.tree import Tree, content_of, file_of, first_line, names_of, resolve, small_text
from lumisite.site.model import Site
from lumisite.text import counted
from lumisite.vendors import all_fabrics, all_gpus, all_vendors

# Values of the kernel

#: Parameters that name a boot, its medium or the node, or only say what is printed: they differ where nothing changed,
#: and some hold secrets.
_OF_ONE_BOOT = re.compile(
    r"boot_image|bootif|initrd|root(flags|fstype)?|nfs.*|resume|ip|nid|xname|ds|rd[._].*|console|quiet|splash|rhgb|"
    r"(ignore_)?loglevel|.*(token|secret|passw|uuid|session|url|_data|ifname|hostname).*",
    re.IGNORECASE,
)
_CPU, _MEMORY = "/sys/devices/system/cpu", "/sys/kernel/mm"
#: What decides which calls of the system a container gets, how its memory is placed, and how fast the CPUs are.
_VALUES = {
    **{
        name: f"/proc/sys/{name.replace('.', '/')}"
        for name in (
            "kernel.numa_balancing", "kernel.yama.ptrace_scope", "vm.max_map_count", "vm.overcommit_memory",
            "vm.unprivileged_userfaultfd", "vm.zone_reclaim_mode",
        )
    },
    "transparent_hugepage": f"{_MEMORY}/transparent_hugepage/enabled",
    "scaling_driver": f"{_CPU}/cpu[0-9]*/cpufreq/scaling_driver",
    "scaling_governor": f"{_CPU}/cpu[0-9]*/cpufreq/scaling_governor",
    "energy_performance_preference": f"{_CPU}/cpu[0-9]*/cpufreq/energy_performance_preference",
    "boost": f"{_CPU}/cpufreq/boost",
    "no_turbo": f"{_CPU}/*_pstate/no_turbo",
    "smt": f"{_CPU}/smt/control",
}  # fmt: skip
#: What containers, their caches of registered memory and Slurm need of the kernel.
_OPTIONS = (
    "CONFIG_BLK_DEV_LOOP", "CONFIG_CGROUPS", "CONFIG_CPUSETS", "CONFIG_FUSE_FS", "CONFIG_HUGETLBFS", "CONFIG_MEMCG",
    "CONFIG_NUMA", "CONFIG_OVERLAY_FS", "CONFIG_SECCOMP", "CONFIG_SQUASHFS", "CONFIG_TRANSPARENT_HUGEPAGE",
    "CONFIG_USERFAULTFD", "CONFIG_USER_NS",
)  # fmt: skip
_LARGEST_CONFIG_BYTES = 4 * 1024 * 1024


def sysctls(tree: Tree, names: Iterable[str]) -> dict[str, str]:
    """Return those of some values under /proc/sys that there are."""
    values = {name: first_line(tree, f"/proc/sys/{name.replace('.', '/')}") for name in names}
    return {name: value for name, value in values.items() if value}


def read_values(tree: Tree, _: Site) -> Texts:
    """Return the settings of the kernel that programs notice."""
    return {**values_of(tree, _VALUES), **_huge_pages(tree)}


def _huge_pages(tree: Tree) -> Texts:
    """Return the pages of each size that are reserved, without those that a process has beyond them."""
    found: Texts = {}
    for name in names_of(tree, f"{_MEMORY}/hugepages"):
        counts = [first_line(tree, f"{_MEMORY}/hugepages/{name}/{end}_hugepages") or "0" for end in ("nr", "surplus")]
        demand = first_line(tree, f"{_MEMORY}/hugepages/{name}/nr_overcommit_hugepages")
        if all(map(str.isdecimal, counts)):
            found[name] = [f"{int(counts[0]) - int(counts[1])} reserved", f"{demand or 0} on demand"]
    return found


def read_parameters(tree: Tree, _: Site) -> Texts:
    """Return each parameter of the command line as it is written; of one that is there several times all, in order."""
    found: Texts = {}
    line = (first_line(tree, "/proc/cmdline") or "").partition(" -- ")[0]
    for word in re.findall(r'(?:[^\s"]|"[^"]*")+', line):
        name = word.partition("=")[0].replace("-", "_")
        if not _OF_ONE_BOOT.fullmatch(name):
            found.setdefault(name, []).append(word)
    return found


def read_kernel_config(tree: Tree, _: Site) -> Texts:
    """Return the options that the running kernel was built with, of those that matter, and whether /boot has them."""
    release = first_line(tree, "/proc/sys/kernel/osrelease") or ""
    names = "|".join((*_OPTIONS, *(option for vendor in all_vendors() for option in vendor.kernel_options)))
    sources = (f"/boot/config-{release}", f"/lib/modules/{release}/config", "/proc/config.gz")
    texts = [_config_text(tree, path) for path in sources]
    # Whether a part is built in or a module is the same to who uses it.
    options = re.findall(rf"^({names})=[ym]$", next(filter(None, texts), ""), re.MULTILINE)
    return {"kernel configuration": [*(["in /boot"] if texts[0] else []), *sorted(options)]}


def _config_text(tree: Tree, path: str) -> str:
    content = content_of(tree, path, _LARGEST_CONFIG_BYTES) or b""
    if path.endswith(".gz"):
        with suppress(OSError, EOFError, zlib.error):
            return gzip.decompress(content).decode("utf-8", "replace")
        return ""
    return content.decode("utf-8", "replace")


# Devices, and the modules that drive them


def read_devices(tree: Tree, _: Site) -> Texts:
    """Return how many there are of each device that containers open, and their rights."""
    shared = [vendor.devices for vendor in all_vendors() if vendor.devices]
    patterns = {posixpath.basename(paths[0]): paths for paths in shared} | {"/dev/fuse": ("/dev/fuse",)}
    kinds = (*(gpu.devices for gpu in all_gpus()), *(fabric.devices for fabric in all_fabrics()))
    for path in (path for paths in kinds for path in paths):
        patterns[re.split(r"[*?[]", path)[0]] = (path,)
    found: Texts = {}
    for name, wanted in patterns.items():
        paths = [path for pattern in wanted for path in glob(tree, pattern)]
        rights = {mode_of(tree, path) for path in paths if "/dev/" in path} - {None}
        found[name] = [counted(len(paths), "file")] if paths else []
        found[name] += sorted(f"mode {mode:04o}" for mode in rights)
    return found


def _network_modules(tree: Tree) -> set[str]:
    """Return the loaded modules that drive the network: those known by name, and those of the interfaces."""
    known = "|".join(vendor.kernel_modules for vendor in all_vendors() if vendor.kernel_modules)
    links = (f"/sys/class/net/{name}/device/driver" for name in names_of(tree, "/sys/class/net"))
    drivers = [resolve(tree, path) for link in links for path in (f"{link}/module", link)]
    names = {posixpath.basename(driver.path) for driver in drivers if driver.entry is not None}
    return names | {name for name in names_of(tree, "/sys/module") if re.fullmatch(known, name)}


def read_modules(tree: Tree, _: Site) -> Texts:
    """Return the version of what drives the network."""
    versions = {name: first_line(tree, f"/sys/module/{name}/version") for name in _network_modules(tree)}
    return {name: [version or "loaded"] for name, version in versions.items()}


def read_module_parameters(tree: Tree, _: Site) -> Texts:
    """Return the value of each parameter of the modules that drive GPUs and the network."""
    names = "|".join(rf"{name}(_\w+)?" for gpu in all_gpus() for name in gpu.drivers)
    loaded = {name for name in names_of(tree, "/sys/module") if re.fullmatch(names, name)} | _network_modules(tree)
    found: Texts = {}
    for module in sorted(loaded):
        folder = f"/sys/module/{module}/parameters"
        for name in names_of(tree, folder):
            found[f"{module}.{name}"] = [(small_text(tree, f"{folder}/{name}") or "").strip() or "empty"]
    return found


# Where the loader looks

#: How the loader knows a folder: by ld.so.conf and what it includes; or only by a file beside it, or by its old cache.
SEARCHED, NOT_SEARCHED = "searched", "not searched"
#: Folders that the loader searches without being told, with those of its levels of processors.
_USUAL = re.compile(r"/(usr/)?lib(32|64|x32)?(/[\w-]+-linux-gnu)?(/glibc-hwcaps/.*)?")
_X86_64, _AARCH64 = 62, 183  # as ELF numbers machines


def read_loader(tree: Tree, _: Site) -> Texts:
    """Return the folders of ld.so.conf and of the files beside it, and what is loaded into every program."""
    beside = (line.partition("=")[0].strip() for line in lines_of(tree, glob(tree, "/etc/ld.so.conf.d/*.conf")))
    folders = {folder: NOT_SEARCHED for folder in _cached_folders(tree) if not _USUAL.fullmatch(folder)}
    folders |= {posixpath.normpath(line): NOT_SEARCHED for line in beside if line.startswith("/")}
    folders |= dict.fromkeys(conf_directories(tree), SEARCHED)
    found = {folder: [state] for folder, state in folders.items() if resolve(tree, folder).entry is not None}
    found[CONF] = ["present"] if resolve(tree, CONF).entry is not None else []
    return {**found, "/etc/ld.so.preload": list(lines_of(tree, ["/etc/ld.so.preload"]))}


def _cached_folders(tree: Tree) -> set[str]:
    """Return the folders of the loader's cache; none where it is damaged, which the search for libraries reports."""
    with suppress(LumisiteError):
        source = file_of(tree, CACHE)
        caches = [read_cache(source, machine) for machine in (_X86_64, _AARCH64)] if source else []
        return {posixpath.dirname(path).partition("/glibc-hwcaps/")[0] for cache in caches for path in cache.values()}
    return set()


def is_same_search(old: tuple[str, ...], new: tuple[str, ...]) -> bool:
    """Return whether the loader looks wherever it looked before; a folder or a list that came is no change alone."""
    return old == new or new == ("present",) or ((not old or not new) and {*old, *new} <= {SEARCHED, NOT_SEARCHED})


# Services

#: Where units are, what counts most first; drop-ins of all of them count, by their names.
_UNIT_FOLDERS = (
    "/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system",
    "/lib/systemd/system",
)  # fmt: skip
LIMIT_FOLDERS = ("/etc/security", *_UNIT_FOLDERS)
_PROGRAMS = ("/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin")
_SLICES = ("/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/systemd/system.slice")


def read_services(tree: Tree, _: Site) -> Texts:
    """Return the services that vendors' adapters and GPUs need: their program and unit, and how many run."""
    return {name: list(_service(tree, name)) for vendor in all_vendors() for name in vendor.services}


def _service(tree: Tree, name: str) -> Iterator[str]:
    if any(resolve(tree, f"{folder}/{name}").entry is not None for folder in _PROGRAMS):
        yield "program installed"
    units = [path for folder in _UNIT_FOLDERS for path in glob(tree, f"{folder}/{name}*.service")]
    if units:
        yield "unit masked" if any(resolve(tree, path).path == "/dev/null" for path in units) else "unit installed"
    patterns = [f"{top}/{inner}{name}*.service" for top in _SLICES for inner in ("", "*/")]
    if running := [path for pattern in patterns for path in glob(tree, pattern)]:
        yield f"{len(running)} running"


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


def read_limits(tree: Tree, _: Site) -> Texts:
    """Return the limits of pam_limits by domain and item, and those of slurmd, which its jobs inherit, as written."""
    limits: dict[str, dict[str, str]] = {}
    for line in lines_of(tree, ("/etc/security/limits.conf", *glob(tree, "/etc/security/limits.d/*.conf"))):
        words = line.split()
        if len(words) == 4 and re.fullmatch(_SEVERAL, words[0]) and words[2] in _ITEMS:
            kinds = ("hard", "soft") if words[1] == "-" else (words[1],)
            limits.setdefault(f"{words[0]} {words[2]}", {}).update(dict.fromkeys(kinds, words[3]))
    found = {name: [f"{kind} {kinds[kind]}" for kind in sorted(kinds)] for name, kinds in limits.items()}
    units = [path for top in _UNIT_FOLDERS for path in glob(tree, f"{top}/slurmd.service")][:1]
    folders = [f"{top}/{name}" for name in ("service.d", "slurmd.service.d") for top in _UNIT_FOLDERS]
    drop_ins = first_of_each_name(tree, (f"{folder}/*.conf" for folder in folders))
    defaults = ("/etc/systemd/system.conf", *glob(tree, "/etc/systemd/system.conf.d/*.conf"))
    stated = settings_in(lines_of(tree, (*defaults, *units, *drop_ins))) if units else {}
    for key, value in ((key.removeprefix("Default"), value) for key, value in stated.items()):
        if _OF_UNITS.fullmatch(key):
            found[f"slurmd.service {key}"] = [value if key.startswith("Limit") else value.lower()]
    return found


# Mounts

_LOCAL = ("/dev/shm", "/tmp", "/var/tmp")  # noqa: S108
_MOUNT_OPTIONS = re.compile(r"ro|rw|noexec|nosuid|nodev|(no|local)?flock|(size|nr_inodes|mode|huge)=.*")
#: What the kernel says of a file system in user space that is not root's (fuse.txt of Linux).
_OF_USER = re.compile("user_id=[1-9][0-9]*")
_LOCKS = {"flock", "localflock"}
_SIZE = re.compile(r"(?:(?<=size=)|(?<=nr_inodes=))([0-9]{1,18})([kmg]?)$")
_SAME_SIZE = 0.05


def read_mounts(tree: Tree, site: Site) -> Texts | None:
    """Return kind and options of what is mounted at, above and below the paths of file systems; `None` if unknown.

    All that is above counts, so that a file system that is not mounted any more is the only difference. What an
    automounter mounts comes and goes by itself and is left out, as is what a user mounts.
    """
    mounts = mounts_of(tree)
    places = {path: resolve(tree, path) for path in (*_LOCAL, *(system.path for system in site.file_systems))}
    paths = {place.path for place in places.values() if place.entry is not None}
    above = {folder for path in paths for folder in folders_of(path)}
    automatic = {mount.point for mount in mounts if mount.kind == "autofs"}
    found: Texts = {}
    for mount in mounts:
        is_near = mount.point in above or is_below(mount.point, paths | places.keys())
        is_of_user = any(map(_OF_USER.fullmatch, mount.options))
        options = set(filter(_MOUNT_OPTIONS.fullmatch, mount.options))
        if is_near and not is_of_user and not is_below(mount.point, automatic):
            found[mount.point] = [mount.kind, *sorted(options - {"rw"} if "ro" in options else options)]
    return found if mounts else None


def is_same_mount(old: tuple[str, ...], new: tuple[str, ...]) -> bool:
    """Return whether a mount is as before: half of the memory is a little more or less after an update."""
    was, now = ({_SIZE.sub("", word): _size(word) for word in words} for words in (old, new))
    return was.keys() == now.keys() and all(abs(was[key] - now[key]) <= _SAME_SIZE * was[key] for key in was)


def is_worse_mount(old: tuple[str, ...], new: tuple[str, ...]) -> bool:
    """Return whether jobs cannot use a mount as before: it is gone, read-only, or without the locks that it had."""
    return not new or ("ro" in new and "ro" not in old) or bool(_LOCKS & {*old} and not _LOCKS & {*new})


def _size(word: str) -> int:
    found = _SIZE.search(word)
    return int(found[1]) * 1024 ** " kmg".index(found[2] or " ") if found else 0


def read_cgroups(tree: Tree, _: Site) -> Texts | None:
    """Return which control groups are mounted, those of version 1 with their controllers; `None` if unknown."""
    mounts = mounts_of(tree)
    first = sorted({posixpath.basename(mount.point) for mount in mounts if mount.kind == "cgroup"})
    found = ["version 2"] if any(mount.kind == "cgroup2" for mount in mounts) else []
    found += [f"version 1 of {name}" for name in first if not name.startswith("systemd")]
    return {"cgroups": found} if mounts else None
