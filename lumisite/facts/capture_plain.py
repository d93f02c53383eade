"""The plain parts of a capture: what has a name and is compared as text, digests too. One row of `PARTS` is one part.

Sources: Documentation/admin-guide/{kernel-parameters,sysctl/*,mm/hugetlbpage,mm/transhuge} of Linux; proc(5);
"Marked a Version as Default" of Lmod's manual; slurm.conf(5), spank(8); the SingularityCE admin guide.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from lumisite.errors import shown
from lumisite.facts.facts import Facts, Plain
from lumisite.machine.ldcache import config_lines, glob
from lumisite.machine.tree import Tree, digest_of, first_line, names_of, resolve, small_text
from lumisite.site.model import Site
from lumisite.vendors import all_vendors

#: What decides which calls of the system a container gets, or how its memory is placed.
_SYSCTLS = (
    "kernel.apparmor_restrict_unprivileged_userns", "kernel.numa_balancing", "kernel.unprivileged_userns_clone",
    "kernel.yama.ptrace_scope", "vm.max_map_count", "vm.overcommit_memory", "vm.unprivileged_userfaultfd",
    "vm.zone_reclaim_mode",
)  # fmt: skip
#: Parameters that name a boot, its medium or the node, or only say what is printed: they differ where nothing changed,
#: and some hold secrets.
_OF_ONE_BOOT = re.compile(
    r"boot_image|bootif|initrd|root(flags|fstype)?|nfs.*|resume|ip|nid|xname|ds|rd[._].*|console|quiet|splash|rhgb|"
    r"(ignore_)?loglevel|.*(token|secret|passw|uuid|session|url|_data|ifname|hostname).*",
    re.IGNORECASE,
)
#: Where modules of distributions stand, and the lists of folders that Lmod and Modules start with.
_MODULE_ROOTS = ("/opt/modulefiles", "/etc/modulefiles", "/usr/share/modulefiles")
_MODULE_LISTS = (
    "/etc/lmod/modulespath", "/etc/lmod/.modulespath", "/usr/share/lmod/lmod/init/.modulespath",
    "/usr/share/Modules/init/.modulespath", "/etc/environment-modules/modulespath",
)  # fmt: skip
_MOST_MODULE_FOLDERS, _DEEPEST = 2000, 8
_MARKS = (".modulerc.lua", ".modulerc", ".version")
_MARKED = re.compile(
    r"^\s*(?:module[-_]version[ \t(]+[\"']?([^\s\"',]+)[\"']?[ \t,]+[^\n]*\bdefault\b"
    r"|set\s+ModulesVersion\s+[\"{]?([^\s\"}]+))",
    re.MULTILINE,
)
#: Where Slurm looks for its files: its own folder, then what slurmd keeps where it gets them from the controller.
_SLURM_FOLDERS = ("/etc/slurm", "/run/slurm/conf", "/var/spool/slurmd/conf-cache", "/etc/slurm-llnl", "/opt/slurm/etc")
_PLUGIN_FOLDERS = (
    "/usr/lib64/slurm",
    "/usr/lib/slurm",
    "/usr/lib/x86_64-linux-gnu/slurm-wlm",
    "/opt/slurm/lib64/slurm",
)
_USERS_SCRIPTS = ("TaskProlog", "TaskEpilog", "SrunProlog")
_SLURM_KEYS = (
    *_USERS_SCRIPTS, "CliFilterPlugins", "JobContainerType", "LaunchParameters", "MpiDefault", "MpiParams",
    "PlugStackConfig", "Prolog", "PropagateResourceLimits", "PropagateResourceLimitsExcept", "SwitchParameters",
    "SwitchType", "TaskPlugin", "TaskPluginParam",
)  # fmt: skip
_LARGEST_PLUGIN_BYTES = 64 * 1024 * 1024
#: What one capture reads of libraries for their digests, in about half a second.
_MOST_DIGEST_BYTES = 256 * 1024 * 1024
_MOST_TOLD = 20

#: `None` is for a part that this user may not read.
Reader = Callable[[Tree, Site], Mapping[str, str] | None]


def with_digests(facts: Facts, tree: Tree, notes: list[str]) -> Facts:
    """Add the digests of libraries, the small ones first, until the bytes that may be read are used up."""
    left, libraries = _MOST_DIGEST_BYTES, dict(facts.libraries)
    for path, library in sorted(facts.libraries.items(), key=lambda one: (one[1].size_bytes, one[0])):
        left -= library.size_bytes
        if left >= 0:
            libraries[path] = replace(library, sha256=digest_of(tree, path, library.size_bytes))
    without = [path for path, library in libraries.items() if library.sha256 is None]
    if left < 0:
        notes.append(f"{len(without)} large libraries are known by their size alone, {without[0]} the first of them")
    return replace(facts, libraries=libraries)


def with_closed(facts: Facts, tree: Tree, notes: list[str]) -> Facts:
    """Add what could not be read on the way, or not by users, and the command that lets them."""
    parts: dict[str, dict[str, str]] = {kind: getattr(tree, kind, {}) for kind in ("unreadable", "private")}
    kernel = ("/proc/", "/sys/")
    shut = {kind: {at: how for at, how in part.items() if not at.startswith(kernel)} for kind, part in parts.items()}
    who = {"unreadable": "", "private": " by users"}
    said = [f"{shown(at)} cannot be read{who[kind]}: {how}" for kind in shut for at, how in sorted(shut[kind].items())]
    notes += said[:_MOST_TOLD]
    notes += [f"{len(said) - _MOST_TOLD} more cannot be read"] if len(said) > _MOST_TOLD else []
    return replace(facts, plain={**facts.plain, **shut})


def _sysctls(tree: Tree, _: Site) -> dict[str, str]:
    found = {name: first_line(tree, f"/proc/sys/{name.replace('.', '/')}") for name in _SYSCTLS}
    return {name: value for name, value in found.items() if value is not None}


def _kernel_parameters(tree: Tree, _: Site) -> dict[str, str]:
    """Give each parameter as it is written; of one that stands several times all, in their order."""
    found: dict[str, str] = {}
    line = (first_line(tree, "/proc/cmdline") or "").partition(" -- ")[0]
    for word in re.findall(r'(?:[^\s"]|"[^"]*")+', line):
        name = word.partition("=")[0].replace("-", "_")
        if not _OF_ONE_BOOT.fullmatch(name):
            found[name] = f"{found[name]} {word}" if name in found else word
    return found


def _hugepages(tree: Tree, _: Site) -> dict[str, str]:
    """Give the pages of each size that are reserved, without those that a process just now has beyond them."""
    found = {}
    for name in names_of(tree, "/sys/kernel/mm/hugepages"):
        files = (f"/sys/kernel/mm/hugepages/{name}/{end}" for end in ("nr", "surplus", "nr_overcommit"))
        pages, beyond, demand = (first_line(tree, f"{path}_hugepages") or "0" for path in files)
        if pages.isdecimal() and beyond.isdecimal() and name.isprintable():
            found[name.removeprefix("hugepages-")] = f"{int(pages) - int(beyond)} reserved, {demand} on demand"
    chosen = re.search(r"\[(\w+)\]", first_line(tree, "/sys/kernel/mm/transparent_hugepage/enabled") or "")
    return {**found, "transparent": chosen[1]} if chosen else found


def _kernel_modules(tree: Tree, _: Site) -> dict[str, str]:
    """Give version and build of what drives the network: modules known by name, and those of the interfaces."""
    known = "|".join(one.kernel_modules for one in all_vendors() if one.kernel_modules)
    links = (f"/sys/class/net/{name}/device/driver" for name in names_of(tree, "/sys/class/net"))
    places = [resolve(tree, path) for link in links for path in (f"{link}/module", link)]
    names = {posixpath.basename(place.path) for place in places if place.entry is not None}
    names |= {name for name in names_of(tree, "/sys/module") if re.fullmatch(known, name)}
    found = {}
    for name in sorted(names):
        version, build = (first_line(tree, f"/sys/module/{name}/{file}") for file in ("version", "srcversion"))
        if version or build:
            found[name] = " ".join(filter(None, (version, build and f"(build {build})")))
    return found


def _module_defaults(tree: Tree, site: Site) -> dict[str, str]:
    """Give the version that each folder of modulefiles marks as default, by the mark that Lmod takes first.

    The site's own root is left out, as each file of a release is known by its digest.
    """
    listed = (line.strip() for path in _MODULE_LISTS for line in (small_text(tree, path) or "").splitlines())
    own = (folder for one in all_vendors() for folder in one.module_folders)
    roots = [*own, *_MODULE_ROOTS, *(root for line in listed if line.startswith("/") for root in glob(tree, line))]
    waiting = [(root, _DEEPEST) for root in dict.fromkeys(roots) if not root.startswith(f"{site.root}/")]
    found: dict[str, str] = {}
    for _ in range(_MOST_MODULE_FOLDERS):
        if not waiting:
            break
        folder, depth = waiting.pop(0)
        names = [name for name in names_of(tree, folder) if name.isprintable()]
        mark = resolve(tree, f"{folder}/default") if "default" in names else None
        marks = [posixpath.basename(mark.path)] if mark is not None and mark.links else []
        for name in _MARKS:
            if not marks and name in names:
                text = small_text(tree, f"{folder}/{name}") or ""
                marks = sorted({one or other for one, other in _MARKED.findall(text)})
        if marks:
            found[folder] = " ".join(mark.removesuffix(".lua") for mark in marks)
        if depth:
            below = [f"{folder}/{name}" for name in names if not name.startswith(".")]
            folders = [path for path in below if (entry := tree.look(path)) is not None and entry.kind == "directory"]
            waiting += [(path, depth - 1) for path in folders]
    return found


def _slurm(tree: Tree, site: Site) -> dict[str, str] | None:
    """Give what of Slurm's files reaches a task; not known where a folder of theirs, or a file there, is shut."""
    found = _slurm_files(tree, site)
    shut = [f"{path.rstrip('/')}/" for path in getattr(tree, "unreadable", {})]
    folders = [f"{path}/" for path in (*_SLURM_FOLDERS, *_PLUGIN_FOLDERS)]
    hidden = any(one.startswith(other) or other.startswith(one) for one in shut for other in folders)
    return None if hidden else {key: value for key, value in found.items() if (key + value).isprintable()}


def _slurm_files(tree: Tree, site: Site) -> dict[str, str]:
    """Give what of slurm.conf reaches a task, with the digests of scripts, and each plugin of plugstack.conf."""
    folder = next((one for one in _SLURM_FOLDERS if resolve(tree, f"{one}/slurm.conf").entry is not None), None)
    if folder is None:
        return {}
    pairs = [line.partition("=") for line in config_lines(tree, [f"{folder}/slurm.conf"], small_text)]
    stated = {key.strip().lower(): value.strip() for key, _, value in pairs}
    found = {key: stated[key.lower()] for key in _SLURM_KEYS if stated.get(key.lower())}
    for key in {*found} & {*_USERS_SCRIPTS}:
        if not found[key].startswith(f"{site.root}/"):  # what is deployed is known by its digest
            found[key] += _mark(tree, [found[key]])
    stack = found.get("PlugStackConfig", f"{folder}/plugstack.conf")
    for line in config_lines(tree, [stack], small_text):
        plugin = (*line.split(), "", "")[1]
        found[f"plugstack {plugin}"] = line + _mark(tree, (posixpath.join(one, plugin) for one in _PLUGIN_FOLDERS))
    return found


def _mark(tree: Tree, paths: Iterable[str]) -> str:
    """Mark a file, the first of `paths` that is there, by the begin of its SHA-256."""
    known = (digest_of(tree, path, _LARGEST_PLUGIN_BYTES) for path in paths)
    return next((f" (sha256 {one[:12]})" for one in known if one), "")


def _links(tree: Tree, _: Site) -> dict[str, str]:
    """Give where a folder of links is, and to how many files of which release of each product its links lead.

    Such are the folders of links to libraries of default releases, which images have on their LD_LIBRARY_PATH.
    """
    found: dict[str, str] = {}
    for folder in (folder for one in all_vendors() for folder in one.linked):
        place, counts = resolve(tree, folder), Counter[str]()
        for name in names_of(tree, folder):
            at = resolve(tree, f"{folder}/{name}")
            release = re.match(r"(/\S*?/[0-9]+(?:\.[0-9]+)+[^/]*)(?:/|$)", at.path if at.entry is not None else "")
            if at.links and at.path.isprintable():
                counts[
                    release[1] if release else posixpath.dirname(at.path) if at.entry is not None else "nothing"
                ] += 1
        stands = [place.path if place.entry is not None else "nothing"] if place.links else []
        if told := [*stands, *(f"{at} ({count} links)" for at, count in sorted(counts.items()))]:
            found[folder] = ", ".join(told)
    return found


def _runtime_files(tree: Tree, site: Site) -> dict[str, str]:
    """Give the digests of what the runtime starts containers with, and of its configuration without comments."""
    name, executable = site.command, site.runtime.executable or f"/usr/bin/{site.command}"
    top = posixpath.dirname(posixpath.dirname(executable))
    found = {}
    for path in (f"{'' if top == '/usr' else top}/etc/{name}/{one}.conf" for one in (name, "capability", "ecl")):
        lines = "\n".join(config_lines(tree, [path], small_text))
        if lines:
            found[path] = f"sha256 {hashlib.sha256(lines.encode()).hexdigest()[:12]}"
    for path in (path for lib in ("libexec", "lib") for path in glob(tree, f"{top}/{lib}/{name}/bin/starter*")):
        found[path] = _mark(tree, [path]).strip(" ()")
    return {path: mark for path, mark in found.items() if mark and path.isprintable()}


PARTS: Mapping[Plain, Reader] = {
    "sysctl": _sysctls,
    "kernel-parameter": _kernel_parameters,
    "hugepages": _hugepages,
    "kernel-module": _kernel_modules,
    "module-default": _module_defaults,
    "slurm-conf": _slurm,
    "links": _links,
    "runtime-file": _runtime_files,
}
