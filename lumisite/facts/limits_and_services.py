"""Limits of each process of a job, and the services that adapters and GPUs need.

Sources: limits.conf(5); systemd.unit(5), systemd.exec(5), systemd.resource-control(5). Which services count is the
vendors'.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lumisite.facts.reading import Texts
from lumisite.machine.ldcache import config_lines, glob
from lumisite.machine.tree import Tree, resolve
from lumisite.site.model import Site
from lumisite.vendors import all_vendors

#: Where units are, what counts most first; drop-ins of all of them count, by their names.
_UNIT_FOLDERS = (
    "/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system",
    "/lib/systemd/system",
)  # fmt: skip
LIMIT_FOLDERS = ("/etc/security", *_UNIT_FOLDERS)
_PROGRAMS = ("/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin")
_SLICES = ("/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/systemd/system.slice")
#: Domains of limits.conf(5) that are not one user: all, a group, a range of numbers.
_SEVERAL = re.compile(r"\*|[@%].*|[0-9]*:[0-9]*")
_ITEMS = ("as", "data", "memlock", "nofile", "nproc", "stack")
#: Keys of a unit that bound or hide something from the processes of a service, which jobs inherit.
_OF_UNITS = re.compile(
    "(Limit|Memory|Tasks|CPU|Allowed|NUMA|IO|OOM|Private|Protect|Restrict|Device|Delegate|NoNewPriv|Capability|Ambient|"
    "Nice|Slice|SystemCall|LockPers|ReadOnlyP|Inaccessible|BindP|TemporaryF|RootD|UMask|Environment)[A-Za-z]*"
)


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


def read_limits(tree: Tree, _: Site) -> Texts:
    """Return the limits of pam_limits by domain and item, and those of slurmd, which its jobs inherit, as written."""
    limits: dict[str, dict[str, str]] = {}
    for line in config_lines(tree, ("/etc/security/limits.conf", *glob(tree, "/etc/security/limits.d/*.conf"))):
        words = line.split()
        if len(words) == 4 and _SEVERAL.fullmatch(words[0]) and words[2] in _ITEMS:
            kinds = ("hard", "soft") if words[1] == "-" else (words[1],)
            limits.setdefault(f"{words[0]} {words[2]}", {}).update(dict.fromkeys(kinds, words[3]))
    found = {name: [f"{kind} {kinds[kind]}" for kind in sorted(kinds)] for name, kinds in limits.items()}
    for line in _slurmd_lines(tree):
        key, equals, value = (part.strip() for part in line.partition("="))
        name = key.removeprefix("Default")
        if equals and _OF_UNITS.fullmatch(name):  # the last one counts
            found[f"slurmd.service {name}"] = [value if name.startswith("Limit") else value.lower()]
    return found


def _slurmd_lines(tree: Tree) -> Iterator[str]:
    """Yield the lines that slurmd's unit is made of: systemd's defaults, the unit, and its drop-ins by name."""
    units = [path for folder in _UNIT_FOLDERS for path in glob(tree, f"{folder}/slurmd.service")]
    if not units:
        return
    yield from config_lines(
        tree, ("/etc/systemd/system.conf", *glob(tree, "/etc/systemd/system.conf.d/*.conf"), units[0])
    )
    drop_ins: dict[str, str] = {}
    for name in ("service.d", "slurmd.service.d"):
        for path in (path for folder in _UNIT_FOLDERS for path in glob(tree, f"{folder}/{name}/*.conf")):
            drop_ins.setdefault(path.rpartition("/")[2], path)  # of one name the first folder's counts
    yield from config_lines(tree, (drop_ins[name] for name in sorted(drop_ins)))
