"""What else of a host reaches a job: where the loader looks, the kernel as it was built, cgroups, services.

Sources: ld.so(8), ldconfig(8); cgroups(7); systemd.unit(5) for where units, masks and control groups of services are.
"""

from __future__ import annotations

import gzip
import posixpath
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress

from lumisite.errors import LumisiteError
from lumisite.facts.kind import parts_of
from lumisite.facts.kinds.node import UNIT_FOLDERS, mounts_in
from lumisite.facts.kinds.reading import lines_of, printable_only
from lumisite.machine.ldcache import CACHE, CONF, conf_directories, glob, read_cache
from lumisite.machine.tree import Tree, content_of, file_of, first_line, resolve
from lumisite.site.model import Site
from lumisite.text import counted
from lumisite.vendors import all_vendors

_PRELOAD = "/etc/ld.so.preload"
_PRESENT = "present"
_SEARCHED, _LEFT_OUT, _CACHED = "searched", "in a file that ld.so.conf does not include", "in the loader's cache alone"
#: Folders that the loader searches without being told, with those of its levels of processors.
_USUAL = re.compile(r"/(usr/)?lib(32|64|x32)?(/[\w-]+-linux-gnu)?(/glibc-hwcaps/.*)?")
#: What containers, their caches of registered memory and Slurm need of the kernel.
_OPTIONS = (
    "CONFIG_BLK_DEV_LOOP", "CONFIG_CGROUPS", "CONFIG_CPUSETS", "CONFIG_FUSE_FS", "CONFIG_HUGETLBFS", "CONFIG_MEMCG",
    "CONFIG_NUMA", "CONFIG_OVERLAY_FS", "CONFIG_SECCOMP", "CONFIG_SQUASHFS", "CONFIG_TRANSPARENT_HUGEPAGE",
    "CONFIG_USERFAULTFD", "CONFIG_USER_NS",
)  # fmt: skip
_LARGEST_CONFIG_BYTES = 4 * 1024 * 1024
_CGROUP = "/sys/fs/cgroup"
#: Machines as ELF numbers them.
_X86_64, _AARCH64 = 62, 183
_PROGRAMS = ("/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin")


def read_loader(tree: Tree, _: Site) -> dict[str, str]:
    """Return the folders of ld.so.conf and of the files beside it, and what is loaded into every program."""
    searched = conf_directories(tree)
    beside = (line.partition("=")[0].strip() for line in lines_of(tree, glob(tree, "/etc/ld.so.conf.d/*.conf")))
    # What only the cache has is lost with the next run of ldconfig.
    folders = {folder: _CACHED for folder in _cached_folders(tree) if not _USUAL.fullmatch(folder)}
    folders |= {posixpath.normpath(line): _LEFT_OUT for line in beside if line.startswith("/")}
    folders |= dict.fromkeys(searched, _SEARCHED)
    present = {folder: state for folder, state in folders.items() if resolve(tree, folder).entry is not None}
    if resolve(tree, CONF).entry is not None:
        present[CONF] = _PRESENT
    return printable_only({**present, _PRELOAD: ", ".join(lines_of(tree, [_PRELOAD]))})


def _cached_folders(tree: Tree) -> set[str]:
    """Return the folders of the loader's cache; none where it is damaged, which the search for libraries reports."""
    with suppress(LumisiteError):
        source = file_of(tree, CACHE)
        caches = [read_cache(source, machine) for machine in (_X86_64, _AARCH64)] if source else []
        return {posixpath.dirname(path).partition("/glibc-hwcaps/")[0] for cache in caches for path in cache.values()}
    return set()


def is_same_search(was: str | None, now: str | None) -> bool:
    """Return whether the loader looks wherever it looked before; a folder that came or went is no change alone."""
    came_or_went = None in (was, now) and {was, now} <= {None, _SEARCHED, _LEFT_OUT, _CACHED}
    return was == now or came_or_went or (was, now) == (None, _PRESENT)


def is_not_searched(was: str | None, now: str | None) -> bool:
    """Return whether the loader does not look in a folder any more, or loads something into every program."""
    return now not in (None, _SEARCHED)


def read_kernel_config(tree: Tree, _: Site) -> dict[str, str]:
    """Return the options that the running kernel was built with, of those that matter, and whether /boot has them."""
    release = first_line(tree, "/proc/sys/kernel/osrelease") or ""
    names = "|".join((*_OPTIONS, *(option for vendor in all_vendors() for option in vendor.kernel_options)))
    sources = (f"/boot/config-{release}", f"/lib/modules/{release}/config", "/proc/config.gz")
    texts = [_config_text(tree, path) for path in sources]
    # Whether a part is built in or a module is the same to who uses it.
    options = re.findall(rf"^({names})=[ym]$", next(filter(None, texts), ""), re.MULTILINE)
    parts = [*(["in /boot"] if texts[0] else []), *sorted(options)]
    return {"kernel configuration": ", ".join(parts)} if parts else {}


def _config_text(tree: Tree, path: str) -> str:
    content = content_of(tree, path, _LARGEST_CONFIG_BYTES) or b""
    if path.endswith(".gz") and content:
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error):
            return ""
    return content.decode("utf-8", "replace")


def read_cgroups(tree: Tree, _: Site) -> dict[str, str] | None:
    """Return which control groups are mounted, those of version 1 with their controllers; `None` if unknown."""
    mounts = mounts_in(tree)
    found = {mount.kind: mount.point for mount in mounts if mount.kind == "cgroup2"}
    first = sorted({posixpath.basename(mount.point) for mount in mounts if mount.kind == "cgroup"})
    texts = ["version 2"] if found else []
    texts += [f"version 1 of {name}" for name in first if not name.startswith("systemd")]
    return printable_only({"cgroups": ", ".join(texts)}) if mounts else None


def read_services(tree: Tree, _: Site) -> dict[str, str]:
    """Return the services that vendors' adapters and GPUs need: their program and unit, what starts them, what runs."""
    names = [name for vendor in all_vendors() for name in vendor.services]
    return printable_only({name: ", ".join(_service(tree, name)) for name in names})


def _service(tree: Tree, name: str) -> Iterator[str]:
    if any(resolve(tree, f"{folder}/{name}").entry is not None for folder in _PROGRAMS):
        yield "program"
    units = [path for folder in UNIT_FOLDERS for path in glob(tree, f"{folder}/{name}*.service")]
    if units:
        masked = {path for path in units if resolve(tree, path).path == "/dev/null"}
        yield "masked" if masked else "unit"
    wanted = {path.split("/")[-2] for folder in UNIT_FOLDERS for path in glob(tree, f"{folder}/*.wants/{name}*")}
    yield from (f"started by {folder.removesuffix('.wants')}" for folder in sorted(wanted))
    slices = (f"{_CGROUP}/{top}system.slice/{inner}" for top in ("", "systemd/") for inner in ("", "*/"))
    running = {posixpath.basename(path) for part in slices for path in glob(tree, f"{part}{name}*.service")}
    if running:
        yield f"{counted(len(running), 'instance')} running"


def loses_a_part(was: str | None, now: str | None) -> bool:
    """Return whether something of a service is not there any more, or only a mask of it."""
    return not {*parts_of(was)} <= {*parts_of(now)}
