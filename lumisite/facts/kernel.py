"""What of the kernel reaches a job: its command line, settings and build, its modules with their parameters, devices.

Sources: Documentation/admin-guide/{kernel-parameters,sysctl/*,mm/hugetlbpage,mm/transhuge} and Documentation/ABI of
Linux; proc(5). Which devices and drivers count is the vendors'.
"""

from __future__ import annotations

import gzip
import posixpath
import re
import zlib
from collections.abc import Iterable
from contextlib import suppress

from lumisite.facts.reading import Texts, mode_of, values_of
from lumisite.machine.ldcache import glob
from lumisite.machine.tree import Tree, content_of, first_line, names_of, resolve, small_text
from lumisite.site.model import Site
from lumisite.text import counted
from lumisite.vendors import all_fabrics, all_gpus, all_vendors

# The command line, settings, and how the kernel was built

#: Parameters that name a boot, its medium or the node, or only say what is printed: they differ where nothing changed,
#: and some hold secrets.
_OF_ONE_BOOT = re.compile(
    r"boot_image|bootif|initrd|root(flags|fstype)?|nfs.*|resume|ip|nid|xname|ds|rd[._].*|console|quiet|splash|rhgb|"
    r"(ignore_)?loglevel|.*(token|secret|passw|uuid|session|url|_data|ifname|hostname).*",
    re.IGNORECASE,
)
_CPU, _MEMORY = "/sys/devices/system/cpu", "/sys/kernel/mm"
_SYSCTLS = (
    "kernel.numa_balancing", "kernel.yama.ptrace_scope", "vm.max_map_count", "vm.overcommit_memory",
    "vm.unprivileged_userfaultfd", "vm.zone_reclaim_mode",
)  # fmt: skip
#: What decides which calls of the system a container gets, how its memory is placed, and how fast the CPUs are.
_VALUES = {
    **{name: f"/proc/sys/{name.replace('.', '/')}" for name in _SYSCTLS},
    "transparent_hugepage": f"{_MEMORY}/transparent_hugepage/enabled",
    "scaling_driver": f"{_CPU}/cpu[0-9]*/cpufreq/scaling_driver",
    "scaling_governor": f"{_CPU}/cpu[0-9]*/cpufreq/scaling_governor",
    "energy_performance_preference": f"{_CPU}/cpu[0-9]*/cpufreq/energy_performance_preference",
    "boost": f"{_CPU}/cpufreq/boost",
    "no_turbo": f"{_CPU}/*_pstate/no_turbo",
    "smt": f"{_CPU}/smt/control",
}
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


def read_command_line(tree: Tree, _: Site) -> Texts:
    """Return each parameter of the command line as it is written; of one that is there several times all, in order."""
    found: Texts = {}
    line = (first_line(tree, "/proc/cmdline") or "").partition(" -- ")[0]
    for word in re.findall(r'(?:[^\s"]|"[^"]*")+', line):
        name = word.partition("=")[0].replace("-", "_")
        if not _OF_ONE_BOOT.fullmatch(name):
            found.setdefault(name, []).append(word)
    return found


def read_settings(tree: Tree, _: Site) -> Texts:
    """Return the settings of the kernel that programs notice."""
    found = values_of(tree, _VALUES)
    for size in names_of(tree, f"{_MEMORY}/hugepages"):
        files = (f"{_MEMORY}/hugepages/{size}/{name}_hugepages" for name in ("nr", "surplus", "nr_overcommit"))
        pages, surplus, on_demand = (int(first_line(tree, file) or 0) for file in files)
        # A process may have pages beyond the reserved ones: the surplus.
        found[size] = [f"{pages - surplus} reserved", f"{on_demand} on demand"]
    return found


def read_build(tree: Tree, _: Site) -> Texts:
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


# Modules and devices


def read_modules(tree: Tree, _: Site) -> Texts:
    """Return the version of each loaded module that drives the network."""
    versions = {name: first_line(tree, f"/sys/module/{name}/version") for name in _network_modules(tree)}
    return {name: [version or "loaded"] for name, version in versions.items()}


def read_module_parameters(tree: Tree, _: Site) -> Texts:
    """Return the value of each parameter of the modules that drive GPUs and the network."""
    gpu_drivers = "|".join(rf"{name}(_\w+)?" for gpu in all_gpus() for name in gpu.drivers)
    loaded = {name for name in names_of(tree, "/sys/module") if re.fullmatch(gpu_drivers, name)}
    found: Texts = {}
    for module in sorted(loaded | _network_modules(tree)):
        folder = f"/sys/module/{module}/parameters"
        for name in names_of(tree, folder):
            found[f"{module}.{name}"] = [(small_text(tree, f"{folder}/{name}") or "").strip() or "empty"]
    return found


def _network_modules(tree: Tree) -> set[str]:
    """Return the loaded modules that drive the network: those known by name, and those of the interfaces."""
    known = "|".join(vendor.kernel_modules for vendor in all_vendors() if vendor.kernel_modules)
    links = (f"/sys/class/net/{name}/device/driver" for name in names_of(tree, "/sys/class/net"))
    drivers = [resolve(tree, path) for link in links for path in (f"{link}/module", link)]
    names = {posixpath.basename(driver.path) for driver in drivers if driver.entry is not None}
    return names | {name for name in names_of(tree, "/sys/module") if re.fullmatch(known, name)}


def read_devices(tree: Tree, _: Site) -> Texts:
    """Return how many there are of each device that containers open, and their rights."""
    shared = [vendor.devices for vendor in all_vendors() if vendor.devices]
    patterns = {posixpath.basename(paths[0]): paths for paths in shared} | {"/dev/fuse": ("/dev/fuse",)}
    kinds = (*(gpu.devices for gpu in all_gpus()), *(fabric.devices for fabric in all_fabrics()))
    patterns |= {re.split(r"[*?[]", path)[0]: (path,) for paths in kinds for path in paths}
    found: Texts = {}
    for name, wanted in patterns.items():
        paths = [path for pattern in wanted for path in glob(tree, pattern)]
        rights = {mode_of(tree, path) for path in paths if "/dev/" in path} - {None}
        found[name] = [counted(len(paths), "file"), *sorted(f"mode {mode:04o}" for mode in rights)] if paths else []
    return found
