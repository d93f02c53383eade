"""What the kernel, the loader and systemd of a node say that reaches a job, as lists of words by name.

Sources: Documentation/admin-guide/{kernel-parameters,sysctl/*,mm/hugetlbpage,mm/transhuge} and Documentation/ABI of
Linux; proc(5); modprobe.d(5); ld.so(8), ldconfig(8); cgroups(7); limits.conf(5); systemd.exec(5), systemd.unit(5),
systemd-system.conf(5); tmpfs(5); mount.lustre(8). Which devices, drivers and services count is the vendors'.
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
    "scaling_driver": f"{_CPU}/cpu[0-9]*/cpufreq/scaling_driver",
    "scaling_governor": f"{_CPU}/cpu[0-9]*/cpufreq/scaling_governor",
    "energy_performance_preference": f"{_CPU}/cpu[0-9]*/cpufreq/energy_performance_preference",
    "boost": f"{_CPU}/cpufreq/boost",
    "no_turbo": f"{_CPU}/*_pstate/no_turbo",
    "smt": f"{_CPU}/smt/control",
}
_PAGES = "/sys/kernel/mm/hugepages"
#: What containers, their caches of registered memory and Slurm need of the kernel.
_OPTIONS = (
    "CONFIG_BLK_DEV_LOOP", "CONFIG_CGROUPS", "CONFIG_CPUSETS", "CONFIG_FUSE_FS", "CONFIG_HUGETLBFS", "CONFIG_MEMCG",
    "CONFIG_NUMA", "CONFIG_OVERLAY_FS", "CONFIG_SECCOMP", "CONFIG_SQUASHFS", "CONFIG_TRANSPARENT_HUGEPAGE",
    "CONFIG_USERFAULTFD", "CONFIG_USER_NS",
)  # fmt: skip
_LARGEST_CONFIG_BYTES = 4 * 1024 * 1024


def sysctls(tree: Tree, names: Iterable[str]) -> dict[str, str]:
    """Return the values under /proc/sys; of a copy without it, what is set at boot."""
    files = [path for folder in ("/usr/lib", "/run", "/etc") for path in glob(tree, f"{folder}/sysctl.d/*.conf")]
    stated = settings_in(lines_of(tree, [*files, "/etc/sysctl.conf"]))
    at_boot = {name.strip("-").replace("/", "."): value for name, value in stated.items()}
    live = {name: first_line(tree, f"/proc/sys/{name.replace('.', '/')}") for name in names}
    return {name: text for name in names if (text := live[name] or at_boot.get(name)) is not None}


def read_sysctls(tree: Tree, _: Site) -> Texts:
    """Return the settings of the kernel that containers notice."""
    return {name: [value] for name, value in sysctls(tree, _SYSCTLS).items()}


def read_parameters(tree: Tree, _: Site) -> Texts:
    """Return each parameter of the command line as it is written; of one that is there several times all, in order."""
    found: Texts = {}
    line = (first_line(tree, "/proc/cmdline") or "").partition(" -- ")[0]
    for word in re.findall(r'(?:[^\s"]|"[^"]*")+', line):
        name = word.partition("=")[0].replace("-", "_")
        if not _OF_ONE_BOOT.fullmatch(name):
            found.setdefault(name, []).append(word)
    return found


def read_hugepages(tree: Tree, _: Site) -> Texts:
    """Return the pages of each size that are reserved, without those that a process has beyond them."""
    found: Texts = {}
    for name in names_of(tree, _PAGES):
        pages, surplus, demand = (
            first_line(tree, f"{_PAGES}/{name}/{end}_hugepages") or "0" for end in ("nr", "surplus", "nr_overcommit")
        )
        if all(re.fullmatch("[0-9]{1,18}", count) for count in (pages, surplus)):
            counts = f"{int(pages) - int(surplus)} reserved", f"{demand} on demand"
            found[name.removeprefix("hugepages-")] = list(counts)
    chosen = re.search(r"\[(\w+)\]", first_line(tree, "/sys/kernel/mm/transparent_hugepage/enabled") or "")
    return {**found, "transparent": [chosen[1]] if chosen else []}


def read_cpu_settings(tree: Tree, _: Site) -> Texts:
    """Return the governor and the like, boost and SMT."""
    return values_of(tree, _CPU_SETTINGS)


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


def device_owners() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return by name whose devices there are (`gpu`, `nic` or nobody's), and the patterns of their files."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {"/dev/fuse": ("", ("/dev/fuse",))}
    found |= {gpu.control: ("gpu", (gpu.control,)) for gpu in all_gpus()}
    found |= {re.split(r"[*?[]", path)[0]: ("gpu", (path,)) for gpu in all_gpus() for path in gpu.devices}
    found |= {re.split(r"[*?[]", path)[0]: ("nic", (path,)) for fabric in all_fabrics() for path in fabric.devices}
    shared = [vendor.devices for vendor in all_vendors() if vendor.devices]
    found |= {posixpath.basename(paths[0]): ("", paths) for paths in shared}
    return {name: row for name, row in found.items() if not any(other.startswith(f"{name}/") for other in found)}


def read_devices(tree: Tree, _: Site) -> Texts:
    """Return how many there are of each device, and their rights."""
    found: Texts = {}
    for name, (_of, patterns) in device_owners().items():
        paths = [path for pattern in patterns for path in glob(tree, pattern)]
        rights = {mode_of(tree, path) for path in paths if "/dev/" in path} - {None}
        found[name] = [counted(len(paths), "file")] if paths else []
        found[name] += sorted(f"mode {mode:04o}" for mode in rights)
    return found


def network_modules(tree: Tree) -> set[str]:
    """Return the loaded modules that drive the network: those known by name, and those of the interfaces."""
    known = "|".join(vendor.kernel_modules for vendor in all_vendors() if vendor.kernel_modules)
    links = (f"/sys/class/net/{name}/device/driver" for name in names_of(tree, "/sys/class/net"))
    drivers = [resolve(tree, path) for link in links for path in (f"{link}/module", link)]
    names = {posixpath.basename(driver.path) for driver in drivers if driver.entry is not None}
    return names | {name for name in names_of(tree, "/sys/module") if re.fullmatch(known, name)}


def read_modules(tree: Tree, _: Site) -> Texts:
    """Return version and build of what drives the network."""
    found: Texts = {}
    for name in sorted(network_modules(tree)):
        version, build = (first_line(tree, f"/sys/module/{name}/{file}") for file in ("version", "srcversion"))
        found[name] = [*filter(None, [version]), *([f"build {build}"] if build else [])]
    return found


#: What stands before an option as modprobe.d has it.
STATED = "modprobe "


def read_options(tree: Tree, _: Site) -> Texts:
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
    for line in lines_of(tree, first_of_each_name(tree, (f"{folder}/modprobe.d/*.conf" for folder in folders))):
        command, module, *words = [*line.split(), ""]
        module = module.replace("-", "_")
        if module not in loaded and not re.fullmatch(known, module):
            continue
        if command == "options":
            new = {f"{module}.{name}": value for name, value in settings_in(words).items()}
            found |= {STATED + name: value for name, value in new.items() if not _is_same(value, found.get(name))}
        elif command == "blacklist" or (command == "install" and words[0].endswith(("/true", "/false"))):
            found[f"{STATED}{module}.blacklist"] = "yes"
    return {name: [value or "empty"] for name, value in found.items()}


def _is_same(stated: str, live: str | None) -> bool:
    """Return whether the value of a line is that of the kernel, which writes Y and N."""
    return live is not None and {"1": "Y", "0": "N"}.get(stated, stated) == {"1": "Y", "0": "N"}.get(live, live)


# Where the loader looks

PRELOAD = "/etc/ld.so.preload"
#: How the loader knows a folder: by ld.so.conf, by a file beside it that nothing includes, by its old cache alone.
SEARCHED, NOT_INCLUDED, CACHED = "searched", "not-included", "cached-only"
#: Folders that the loader searches without being told, with those of its levels of processors.
_USUAL = re.compile(r"/(usr/)?lib(32|64|x32)?(/[\w-]+-linux-gnu)?(/glibc-hwcaps/.*)?")
#: Machines as ELF numbers them.
_X86_64, _AARCH64 = 62, 183


def read_loader(tree: Tree, _: Site) -> Texts:
    """Return the folders of ld.so.conf and of the files beside it, and what is loaded into every program."""
    beside = (line.partition("=")[0].strip() for line in lines_of(tree, glob(tree, "/etc/ld.so.conf.d/*.conf")))
    # What only the cache has is lost with the next run of ldconfig.
    folders = {folder: CACHED for folder in _cached_folders(tree) if not _USUAL.fullmatch(folder)}
    folders |= {posixpath.normpath(line): NOT_INCLUDED for line in beside if line.startswith("/")}
    folders |= dict.fromkeys(conf_directories(tree), SEARCHED)
    found = {folder: [state] for folder, state in folders.items() if resolve(tree, folder).entry is not None}
    found[CONF] = ["present"] if resolve(tree, CONF).entry is not None else []
    return {**found, PRELOAD: list(lines_of(tree, [PRELOAD]))}


def _cached_folders(tree: Tree) -> set[str]:
    """Return the folders of the loader's cache; none where it is damaged, which the search for libraries reports."""
    with suppress(LumisiteError):
        source = file_of(tree, CACHE)
        caches = [read_cache(source, machine) for machine in (_X86_64, _AARCH64)] if source else []
        return {posixpath.dirname(path).partition("/glibc-hwcaps/")[0] for cache in caches for path in cache.values()}
    return set()


# Services

#: Where units are, what counts most first; drop-ins of all of them count, by their names.
UNIT_FOLDERS = (
    "/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system",
    "/lib/systemd/system",
)  # fmt: skip
_PROGRAMS = ("/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin")
_CGROUP = "/sys/fs/cgroup"


def read_services(tree: Tree, _: Site) -> Texts:
    """Return the services that vendors' adapters and GPUs need: their program and unit, what starts them, what runs."""
    return {name: list(_service(tree, name)) for vendor in all_vendors() for name in vendor.services}


def _service(tree: Tree, name: str) -> Iterator[str]:
    """Yield what there is of a service as `key=value`."""
    if any(resolve(tree, f"{folder}/{name}").entry is not None for folder in _PROGRAMS):
        yield "program=installed"
    units = [path for folder in UNIT_FOLDERS for path in glob(tree, f"{folder}/{name}*.service")]
    if units:
        yield "unit=masked" if any(resolve(tree, path).path == "/dev/null" for path in units) else "unit=installed"
    wanted = {path.split("/")[-2] for folder in UNIT_FOLDERS for path in glob(tree, f"{folder}/*.wants/{name}*")}
    yield from (f"started-by={folder.removesuffix('.wants')}" for folder in sorted(wanted))
    slices = (f"{_CGROUP}/{top}system.slice/{inner}" for top in ("", "systemd/") for inner in ("", "*/"))
    running = {posixpath.basename(path) for part in slices for path in glob(tree, f"{part}{name}*.service")}
    if running:
        yield f"running={len(running)}"


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
    units = [path for top in UNIT_FOLDERS for path in glob(tree, f"{top}/slurmd.service")][:1]
    folders = [f"{top}/{name}" for name in ("service.d", "slurmd.service.d") for top in UNIT_FOLDERS]
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
