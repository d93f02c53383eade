"""Slurm: its version, and what of its files reaches a task. Sources: slurm.conf(5), spank(8)."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping

from lumisite.facts.change import Change, Touched
from lumisite.facts.context import Context
from lumisite.facts.facts import Facts
from lumisite.facts.kind import ChangeKind, helper_touches, platform_touches, texts_of, value_kind
from lumisite.machine.ldcache import config_lines
from lumisite.machine.tree import Tree, digest_of, resolve, small_text
from lumisite.site.model import Site

#: Where Slurm looks for its files: its own folder, then what slurmd keeps where it gets them from the controller.
_FOLDERS = ("/etc/slurm", "/run/slurm/conf", "/var/spool/slurmd/conf-cache", "/etc/slurm-llnl", "/opt/slurm/etc")
_PLUGIN_FOLDERS = (
    "/usr/lib64/slurm", "/usr/lib/slurm", "/usr/lib/x86_64-linux-gnu/slurm-wlm", "/opt/slurm/lib64/slurm",
)  # fmt: skip
_SCRIPTS = ("TaskProlog", "TaskEpilog", "SrunProlog")
_KEYS = (
    *_SCRIPTS, "CliFilterPlugins", "JobContainerType", "LaunchParameters", "MpiDefault", "MpiParams",
    "PlugStackConfig", "Prolog", "PropagateResourceLimits", "PropagateResourceLimitsExcept", "SwitchParameters",
    "SwitchType", "TaskPlugin", "TaskPluginParam",
)  # fmt: skip
#: Keys whose values are words without an order, in any case.
_WORDS = (
    "GresTypes", "JobAcctGatherParams", "LaunchParameters", "PrologFlags", "PropagateResourceLimits",
    "PropagateResourceLimitsExcept", "SelectTypeParameters", "SlurmdParameters", "SwitchParameters", "TaskPlugin",
    "TaskPluginParam",
)  # fmt: skip
_DEFAULTS = {
    "KillOnBadExit": "no", "MpiDefault": "none", "PropagateResourceLimits": "ALL", "UsePAM": "no",
    "SlurmdSpoolDir": "/var/spool/slurmd",
}  # fmt: skip
#: What a flag of `PrologFlags` sets too.
_IMPLIED = {
    "contain": "alloc", "deferbatch": "alloc", "nohold": "alloc", "forcerequeueonfail": "alloc",
    "x11": "contain alloc", "runinjob": "contain alloc",
}  # fmt: skip
_SWITCHES = {"yes": "yes", "true": "yes", "up": "yes", "1": "yes", "no": "no", "false": "no", "down": "no", "0": "no"}
_ORDER = "plugstack order"
_LARGEST_PLUGIN_BYTES = 64 * 1024 * 1024


def slurm_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the key of the platform, and what Slurm runs of the helper."""
    yield from platform_touches("slurm")(change, context)
    yield from helper_touches("spank/task_prolog", "spank/cli_filter.lua")(change, context)


# Its files


def conf_folder(tree: Tree, *others: str) -> str | None:
    """Return the folder of Slurm's files, by slurm.conf or one of `others`."""
    files = [f"{folder}/{name}" for folder in _FOLDERS for name in ("slurm.conf", *others)]
    return next((posixpath.dirname(path) for path in files if resolve(tree, path).entry is not None), None)


def is_closed(tree: Tree) -> bool:
    """Return whether a folder of Slurm's files, or a file there, could not be read."""
    closed = [f"{path.rstrip('/')}/" for path in getattr(tree, "unreadable", {})]
    folders = [f"{path}/" for path in (*_FOLDERS, *_PLUGIN_FOLDERS)]
    return any(path.startswith(folder) or folder.startswith(path) for path in closed for folder in folders)


def conf_entries(tree: Tree, path: str) -> Iterator[dict[str, str]]:
    """Yield the `key=value` pairs of each line of one of Slurm's files, with what it includes; keys in lower case."""
    for line in config_lines(tree, [path], small_text):
        pairs = re.findall(r'(?<![\w.])([\w.]+)\s*[-*+/]?=\s*(?:"([^"]*)"|(\S+))', line)
        yield {key.lower(): quoted or plain for key, quoted, plain in pairs if (quoted + plain).isprintable()}


def global_keys(tree: Tree, folder: str, names: Iterable[str]) -> dict[str, str]:
    """Return the values of keys in slurm.conf that are for all nodes."""
    stated: dict[str, str] = {}
    for entry in conf_entries(tree, f"{folder}/slurm.conf"):
        if not entry.keys() & {"nodename", "partitionname", "nodeset", "downnodes"}:
            stated |= entry
    return {name: stated[name.lower()] for name in names if stated.get(name.lower())}


def meaning(name: str, value: str | None) -> str:
    """Return what the value of a key means: order, case and spelling do not count where they mean nothing.

    >>> meaning("PrologFlags", "X11") == meaning("PrologFlags", "contain,Alloc,x11")
    True
    """
    text = (value or _DEFAULTS.get(name, "")).strip('"').rstrip("/")
    if name in _WORDS:
        words = {word.strip().lower().removeprefix("task/") for word in text.split(",")} - {""}
        if name == "PrologFlags":
            words |= {implied for word in words for implied in _IMPLIED.get(word, "").split()}
        return ",".join(sorted(words - {"none"} if name == "TaskPlugin" else words))
    return _SWITCHES.get(text.lower(), text)


def read_slurm_conf(tree: Tree, site: Site) -> dict[str, str] | None:
    """Return what of Slurm's files reaches a task; `None` where a folder of theirs, or a file there, is closed."""
    found = _read_files(tree, site)
    return None if is_closed(tree) else {key: value for key, value in found.items() if (key + value).isprintable()}


def _read_files(tree: Tree, site: Site) -> dict[str, str]:
    """Return keys of slurm.conf, with the digests of scripts, and each plugin of plugstack.conf."""
    folder = conf_folder(tree)
    if folder is None:
        return {}
    found = global_keys(tree, folder, _KEYS)
    for key in found.keys() & {*_SCRIPTS}:
        if not found[key].startswith(f"{site.root}/"):  # what is deployed is known by its digest
            found[key] += _digest(tree, [found[key]])
    plugins: dict[str, list[str]] = {}
    for line in config_lines(tree, [found.get("PlugStackConfig", f"{folder}/plugstack.conf")], small_text):
        kind, _, rest = line.partition(" ")
        plugins.setdefault(rest.partition(" ")[0], []).append(f"{kind.lower()} {rest}")
    for plugin, lines in plugins.items():
        file = _digest(tree, (posixpath.join(top, plugin) for top in _PLUGIN_FOLDERS))
        found[f"plugstack {plugin}"] = ", ".join(lines) + file
    return found | ({_ORDER: ", ".join(plugins)} if plugins else {})


def _digest(tree: Tree, paths: Iterable[str]) -> str:
    """Return the begin of the SHA-256 of a file, the first of `paths` that is there."""
    digests = (digest_of(tree, path, _LARGEST_PLUGIN_BYTES) for path in paths)
    return next((f" (sha256 {digest[:12]})" for digest in digests if digest), "")


def compare_slurm_conf(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each key and each plugin; the order of plugins counts where they are the same."""
    old, new = texts_of("slurm-conf", before, after)
    same_plugins = {*old.get(_ORDER, "").split(", ")} == {*new.get(_ORDER, "").split(", ")}
    for change in compare_keys("slurm-conf-changed", old, new):
        if change.subject != _ORDER or same_plugins:
            yield change


def compare_keys(code: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Change]:
    """Yield a change for each key whose value means something else."""
    for name in sorted(old.keys() | new.keys()):
        if meaning(name, old.get(name)) != meaning(name, new.get(name)):
            yield Change(code, name, old.get(name), new.get(name))


KINDS = (
    value_kind("slurm", "Slurm", lambda facts: facts.slurm, slurm_touches),
    ChangeKind("slurm-conf", compare_slurm_conf, helper_touches("spank/task_prolog"), read=read_slurm_conf),
)
