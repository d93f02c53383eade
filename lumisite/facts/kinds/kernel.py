"""The kernel's devices, the options of its drivers, and the frequency of CPUs.

Sources: modprobe.d(5); Documentation/ABI/{stable,testing}/sysfs-{module,devices-system-cpu} of Linux 6.1. Which
devices and drivers count is the vendors'.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator

from lumisite.facts.change import Change, Touched
from lumisite.facts.context import Context
from lumisite.facts.kind import Differences
from lumisite.facts.kinds.system import network_modules
from lumisite.machine.ldcache import config_lines, glob
from lumisite.machine.tree import Tree, first_line, names_of, resolve, small_text
from lumisite.site.model import Site
from lumisite.text import counted
from lumisite.vendors import all_fabrics, all_gpus, all_vendors

_CPU = "/sys/devices/system/cpu"
_STATES = {"boost": "cpufreq/boost", "no_turbo": "*_pstate/no_turbo", "smt": "smt/control"}
_FREQUENCY = ("scaling_driver", "scaling_governor", "energy_performance_preference")
#: What stands before an option as modprobe.d has it.
_STATED = "modprobe "

# Devices


def _devices() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return by name whose devices there are, and the patterns of their files."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {gpu.control: ("gpu", (gpu.control,)) for gpu in all_gpus()}
    found |= {_name(path): ("gpu", (path,)) for gpu in all_gpus() for path in gpu.devices}
    found |= {_name(path): ("nic", (path,)) for fabric in all_fabrics() for path in fabric.devices}
    shared = [vendor.devices for vendor in all_vendors() if vendor.devices]
    found |= {posixpath.basename(paths[0]): ("", paths) for paths in shared}
    return {name: row for name, row in found.items() if not any(other.startswith(f"{name}/") for other in found)}


def _name(pattern: str) -> str:
    return re.split(r"[*?[]", pattern)[0]


def read_devices(tree: Tree, _: Site) -> dict[str, str]:
    """Return how many there are of each device, and their rights."""
    found = {}
    for name, (_owner, patterns) in _devices().items():
        paths = [path for pattern in patterns for path in glob(tree, pattern)]
        rights = {getattr(tree, "mode", lambda _: None)(resolve(tree, path).path) for path in paths if "/dev/" in path}
        modes = sorted(f"{mode:04o}" for mode in rights if mode is not None)
        if paths:
            found[name] = " ".join([counted(len(paths), "file"), *(["of mode", " and ".join(modes)] if modes else [])])
    return found


def device_follows(change: Change, differences: Differences) -> bool:
    """Follow from the driver, from the number of GPUs, or from adapters that came or went."""
    of, _ = _devices().get(change.subject, ("", ()))
    drivers = [one for one in differences.by_kind.get("driver", ()) if None in (one.before, one.after)]
    adapters = [one for one in differences.by_kind.get("nic", ()) if None in (one.before, one.after)]
    causes = {"gpu": [*drivers, *differences.by_kind.get("gpu-count", ())], "nic": adapters}
    return bool(causes.get(of)) and _modes(change.before) >= _modes(change.after)


def _modes(text: str | None) -> set[str]:
    return set((text or "").partition("of mode ")[2].split(" and "))


# Options of drivers


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
    for line in config_lines(tree, _modprobe_files(tree), small_text):
        command, module, *words = [*line.split(), ""]
        module = module.replace("-", "_")
        if module not in loaded and not re.fullmatch(known, module):
            continue
        if command == "options":
            stated = (word.partition("=") for word in filter(None, words))
            new = {f"{module}.{name}": value for name, _equals, value in stated}
            found |= {_STATED + name: value for name, value in new.items() if not _is_same(value, found.get(name))}
        elif command == "blacklist" or (command == "install" and words[0].endswith(("/true", "/false"))):
            found[f"{_STATED}{module}.blacklist"] = "yes"
    return {name: value for name, value in found.items() if (name + value).isprintable()}


def _modprobe_files(tree: Tree) -> list[str]:
    """Return the files of modprobe.d(5): of one name the first folder's counts, all in the order of their names."""
    files: dict[str, str] = {}
    for folder in ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib"):
        for path in glob(tree, f"{folder}/modprobe.d/*.conf"):
            files.setdefault(posixpath.basename(path), path)
    return [files[name] for name in sorted(files)]


def _is_same(stated: str | None, live: str | None) -> bool:
    """Return whether the value of a line is that of the kernel, which writes Y and N."""
    return live is not None and {"1": "Y", "0": "N"}.get(stated or "", stated) == {"1": "Y", "0": "N"}.get(live, live)


def options_follow(change: Change, differences: Differences) -> bool:
    """Follow from the kernel's command line, or from the value that the driver has; one build's own do not count."""
    if change.subject.startswith(_STATED):
        return change.subject.removeprefix(_STATED) in differences.subjects("driver-option")
    return None in (change.before, change.after) or change.subject in differences.subjects("kernel-parameter")


def options_touch(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the settings that have the name of the option."""
    yield from context.settings_holding(change.subject.rpartition(".")[2])


# Frequency and threads of CPUs


def read_cpu_settings(tree: Tree, _: Site) -> dict[str, str]:
    """Return the governor and the like, with the number of CPUs where they differ; boost and SMT."""
    found = {}
    names = [name for name in names_of(tree, _CPU) if re.fullmatch(r"cpu[0-9]{1,5}", name)]
    folders = [f"cpufreq/{name}" for name in names_of(tree, f"{_CPU}/cpufreq") if name.startswith("policy")]
    for name in _FREQUENCY:
        values = [first_line(tree, f"{_CPU}/{cpu}/cpufreq/{name}") for cpu in names]
        if not any(values):
            values = [first_line(tree, f"{_CPU}/{folder}/{name}") for folder in folders]
        counts = sorted(Counter(filter(None, values)).items())
        if counts:
            found[name] = ", ".join(
                f"{value} ({counted(cpus, 'CPU')})" if len(counts) > 1 else value for value, cpus in counts
            )
    for name, pattern in _STATES.items():
        for path in glob(tree, f"{_CPU}/{pattern}")[:1]:
            if state := first_line(tree, path):
                found[name] = state.replace("forceoff", "off")
    return found


def cpu_setting_follows(change: Change, differences: Differences) -> bool:
    """Follow, as SMT, from the hardware threads that are there."""
    return change.subject == "smt" and "threads-changed" in differences.codes("cpus")


def no_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield nothing: no part of a site names the frequency of CPUs."""
    yield from ()
