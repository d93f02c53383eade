"""What of Slurm's files reaches a job: slurm.conf, plugstack.conf, cgroup.conf and gres.conf, by meaning.

Sources: slurm.conf(5), cgroup.conf(5), gres.conf(5), spank(8) of Slurm 26.05.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lumisite.facts.reading import LARGEST_FILE_BYTES, Texts, file_mark, script_mark
from lumisite.machine.ldcache import config_lines
from lumisite.machine.tree import Tree, content_of, first_line, is_under, resolve, small_text
from lumisite.site.cpu_list import CpusetError, format_cpu_list, parse_number_list
from lumisite.site.model import Site

#: Where Slurm looks for its files: its own folder, then what slurmd keeps where it gets them from the controller.
FOLDERS = ("/etc/slurm", "/run/slurm/conf", "/var/spool/slurmd/conf-cache", "/etc/slurm-llnl", "/opt/slurm/etc")
PLUGIN_FOLDERS = (
    "/usr/lib64/slurm", "/usr/lib/slurm", "/usr/lib/x86_64-linux-gnu/slurm-wlm", "/opt/slurm/lib64/slurm",
)  # fmt: skip
#: Where Debian, SUSE and a build from source put the library that has Slurm's version.
_VERSION_LIBRARIES = ("{}/slurm/libslurmfull.so", "{}/slurm-wlm/libslurmfull.so")
SCRIPTS = ("TaskProlog", "TaskEpilog", "SrunProlog")
_KEYS = (
    *SCRIPTS, "CliFilterPlugins", "DefCpuPerGPU", "DefMemPerCPU", "DefMemPerGPU", "DefMemPerNode", "Epilog",
    "GresTypes", "JobAcctGatherParams", "JobContainerType", "KillOnBadExit", "LaunchParameters", "MpiDefault",
    "MpiParams", "PlugStackConfig", "ProctrackType", "Prolog", "PrologFlags", "PropagateResourceLimits",
    "PropagateResourceLimitsExcept", "SelectType", "SelectTypeParameters", "SlurmdParameters", "SlurmdSpoolDir",
    "SwitchParameters", "SwitchType", "TaskPlugin", "TaskPluginParam", "UsePAM",
)  # fmt: skip
#: The file of cli_filter/lua beside slurm.conf, and what stands before a file that it runs.
FILTER, CALLS = "cli_filter.lua", "runs "
#: What the line of a node says of its cores, memory and devices.
_NODE_KEYS = (
    "Boards", "CPUs", "CoreSpecCount", "CoresPerSocket", "CpuSpecList", "Gres", "MemSpecLimit", "RealMemory", "Sockets",
    "SocketsPerBoard", "ThreadsPerCore",
)  # fmt: skip
#: A name with ranges in a list of names.
_LISTED = r"(?:[^,\[]|\[[^\[\]]*\])+"


@dataclass(frozen=True)
class SlurmConf:
    """slurm.conf in `folder`: keys in lower case; each line of nodes with the defaults of the lines above it."""

    folder: str
    settings: Mapping[str, str]
    nodes: tuple[Mapping[str, str], ...]
    partitions: tuple[Mapping[str, str], ...]

    def node(self, host: str) -> Mapping[str, str] | None:
        """Return the keys of a node by its name, `None` where no line names it."""
        return next((entry for entry in self.nodes if is_named(host, entry["nodename"])), None)


def read_slurm_conf(tree: Tree) -> SlurmConf | None:
    """Return slurm.conf with what it includes, `None` where there is none."""
    folder = _folder(tree, "slurm.conf")
    if folder is None:
        return None
    settings, defaults, nodes, partitions = dict[str, str](), dict[str, str](), [], []
    for entry in _entries(tree, f"{folder}/slurm.conf"):
        if entry.get("nodename", "").lower() == "default":
            defaults |= entry
        elif "nodename" in entry:
            nodes.append(defaults | entry)
        elif "partitionname" in entry:
            partitions.append(entry)
        elif not entry.keys() & {"nodeset", "downnodes"}:
            settings |= entry
    return SlurmConf(folder, settings, tuple(nodes), tuple(partitions))


def _folder(tree: Tree, *files: str) -> str | None:
    """Return the first of Slurm's folders that has one of some files."""
    paths = (f"{folder}/{name}" for folder in FOLDERS for name in files)
    return next((posixpath.dirname(path) for path in paths if resolve(tree, path).entry is not None), None)


def _entries(tree: Tree, path: str) -> Iterator[dict[str, str]]:
    """Yield the pairs `Key=Value` of each line of one of Slurm's files; keys in lower case."""
    for line in config_lines(tree, [path]):
        pairs = re.findall(r'(?<![\w.])([\w.]+)\s*[-*+/]?=\s*(?:"([^"]*)"|(\S+))', line)
        yield {key.lower(): quoted or plain for key, quoted, plain in pairs}


def _meaning(value: str) -> str:
    """Return a value of a key without what means nothing: case, and the order of words; paths are as they are."""
    return value if value.startswith("/") else ",".join(sorted(value.lower().split(",")))


def _in_order(value: str) -> str:
    """Return a list of CPUs with its ranges in order; a text that is no such list unchanged."""
    try:
        return format_cpu_list(parse_number_list(value))
    except CpusetError:
        return value


# What is compared


def read_slurm_files(tree: Tree, site: Site) -> Texts:
    """Return what reaches a task: keys of slurm.conf, the node's own line, scripts, plugins, cgroup.conf, gres.conf."""
    conf = read_slurm_conf(tree)
    folder = conf.folder if conf else _folder(tree, "plugstack.conf", "cgroup.conf", "gres.conf")
    if folder is None:
        return {}
    settings = conf.settings if conf else {}
    node = (conf.node(host_name(tree)) if conf else None) or {}
    cgroup = (pair for entry in _entries(tree, f"{folder}/cgroup.conf") for pair in entry.items())
    found = {
        "NodeName": [f"{key}={_in_order(node[key.lower()].lower())}" for key in _NODE_KEYS if key.lower() in node],
        "plugstack.conf": list(_plugins(tree, settings.get("plugstackconfig", f"{folder}/plugstack.conf"))),
        "cgroup.conf": sorted(f"{key}={_meaning(value)}" for key, value in cgroup),
        "gres.conf": list(_devices(tree, f"{folder}/gres.conf")),
        FILTER: list(_filter(tree, site, f"{folder}/{FILTER}")),
    }
    for name in _KEYS:
        value = settings.get(name.lower(), "")
        found[name] = [_meaning(value)]
        if name in SCRIPTS and value and not is_under(value, site.root):  # what is deployed is known by its release
            found[name].append(script_mark(tree, value))
    return found


def _plugins(tree: Tree, path: str) -> Iterator[str]:
    """Yield the plugins of plugstack.conf in their order, each with its digest."""
    for line in config_lines(tree, [path]):
        kind, plugin, *rest = [*line.split(), ""]
        marks = (file_mark(tree, posixpath.join(top, plugin)) for top in PLUGIN_FOLDERS)
        mark = next(filter(None, marks), "")
        yield " ".join(filter(None, (kind.lower(), plugin, *rest, mark and f"({mark})")))


def _devices(tree: Tree, path: str) -> Iterator[str]:
    """Yield the lines of gres.conf that are for this node, in their order, which numbers the devices."""
    host = host_name(tree)
    for entry in _entries(tree, path):
        if entry and is_named(host, entry.pop("nodename", host)):
            values = ((key, value if "file" in key else _in_order(value.lower())) for key, value in entry.items())
            yield " ".join(f"{key}={value}" for key, value in sorted(values))


def _filter(tree: Tree, site: Site, path: str) -> Iterator[str]:
    """Yield what a cli_filter runs of the deployment root, and its digest."""
    if mark := script_mark(tree, path, "--"):
        code = re.sub(r"--.*", "", small_text(tree, path) or "")
        yield from (f"{CALLS}{name}" for name in sorted(set(re.findall(rf"{re.escape(site.root)}/[\w./-]+", code))))
        yield mark


def slurm_version(tree: Tree, folders: tuple[str, ...]) -> str | None:
    """Return Slurm's version: the one version that stands by itself in its own library, searched in `folders` first.

    Every program of Slurm prints the literal `SLURM_VERSION_STRING`, which the compiler puts once, between NULs, into
    libslurmfull.so. Seen so in Debian's Slurm 22.05, 24.11 and 26.05. Two that differ are no answer.
    """
    searched = dict.fromkeys((*folders, "/opt/slurm/lib", "/opt/slurm/lib64"))
    for path in (form.format(folder) for folder in searched for form in _VERSION_LIBRARIES):
        content = content_of(tree, path, LARGEST_FILE_BYTES)
        if content is not None:
            found = set(re.findall(rb"(?<=\0)(\d\d\.\d\d\.\d+(?:-\d+)?(?:-?rc\d+)?)(?=\0)", content))
            return found.pop().decode() if len(found) == 1 else None
    return None


# Names of nodes


def host_name(tree: Tree) -> str:
    """Return the name of the node without its domain."""
    name = first_line(tree, "/proc/sys/kernel/hostname") or first_line(tree, "/etc/hostname") or ""
    return name.partition(".")[0]


def is_named(host: str, names: str) -> bool:
    """Return whether a host is in one of Slurm's lists of hosts; a range has numbers as wide as its begin.

    >>> [is_named(host, "nid[001000-001999,3],login1") for host in ("nid001500", "nid1500", "nid3", "login1")]
    [True, False, True, True]
    >>> [is_named(host, "nid[1-5,8-12],a[1-3]b[2-4],x[") for host in ("nid03", "nid10", "a1b2", "a4b2", "x1")]
    [False, True, True, False, False]
    """
    for name in re.findall(_LISTED, names):
        parts = re.split(r"\[([^\[\]]*)\]", name)
        pattern = "".join("([0-9]{1,9})" if at % 2 else re.escape(part) for at, part in enumerate(parts))
        found = re.fullmatch(pattern, host)
        if found is not None and all(map(_in_ranges, found.groups(), parts[1::2])):
            return True
    return False


def _in_ranges(number: str, ranges: str) -> bool:
    for first, _, last in (part.partition("-") for part in ranges.split(",")):
        bounds = [int(bound) for bound in (first, last or first) if re.fullmatch("[0-9]{1,9}", bound)]
        is_as_wide = len(number) == len(first) or (len(number) > len(first) and not number.startswith("0"))
        if len(bounds) == 2 and is_as_wide and bounds[0] <= int(number) <= bounds[1]:
            return True
    return False
