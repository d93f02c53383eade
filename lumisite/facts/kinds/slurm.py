"""Slurm: its version, and what of its files reaches a task. Sources: slurm.conf(5), spank(8)."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator

from lumisite.facts.change import Change, Touched
from lumisite.facts.context import Context
from lumisite.facts.kind import platform_touches, text_kind, value_kind
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
_LARGEST_PLUGIN_BYTES = 64 * 1024 * 1024


def slurm_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the key of the platform, and what Slurm runs of the helper."""
    yield from platform_touches("slurm")(change, context)
    for file in ("task_prolog", "cli_filter.lua"):
        yield Touched("helper", f"spank/{file}", "affected-helper", {"name": change.subject})


def read_slurm_conf(tree: Tree, site: Site) -> dict[str, str] | None:
    """Return what of Slurm's files reaches a task; `None` where a folder of theirs, or a file there, is closed."""
    found = _read_files(tree, site)
    closed = [f"{path.rstrip('/')}/" for path in getattr(tree, "unreadable", {})]
    folders = [f"{path}/" for path in (*_FOLDERS, *_PLUGIN_FOLDERS)]
    if any(path.startswith(folder) or folder.startswith(path) for path in closed for folder in folders):
        return None
    return {key: value for key, value in found.items() if (key + value).isprintable()}


def _read_files(tree: Tree, site: Site) -> dict[str, str]:
    """Return keys of slurm.conf, with the digests of scripts, and each plugin of plugstack.conf."""
    folder = next((path for path in _FOLDERS if resolve(tree, f"{path}/slurm.conf").entry is not None), None)
    if folder is None:
        return {}
    pairs = [line.partition("=") for line in config_lines(tree, [f"{folder}/slurm.conf"], small_text)]
    stated = {key.strip().lower(): value.strip() for key, _, value in pairs}
    found = {key: stated[key.lower()] for key in _KEYS if stated.get(key.lower())}
    for key in found.keys() & {*_SCRIPTS}:
        if not found[key].startswith(f"{site.root}/"):  # what is deployed is known by its digest
            found[key] += _digest(tree, [found[key]])
    stack = found.get("PlugStackConfig", f"{folder}/plugstack.conf")
    for line in config_lines(tree, [stack], small_text):
        plugin = (*line.split(), "", "")[1]
        found[f"plugstack {plugin}"] = line + _digest(tree, (posixpath.join(top, plugin) for top in _PLUGIN_FOLDERS))
    return found


def _digest(tree: Tree, paths: Iterable[str]) -> str:
    """Return the begin of the SHA-256 of a file, the first of `paths` that is there."""
    digests = (digest_of(tree, path, _LARGEST_PLUGIN_BYTES) for path in paths)
    return next((f" (sha256 {digest[:12]})" for digest in digests if digest), "")


def slurm_conf_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the task prolog, which works on the same tasks."""
    yield Touched("helper", "spank/task_prolog", "affected-helper", {"name": change.subject})


KINDS = (
    value_kind("slurm", "Slurm", lambda facts: facts.slurm, slurm_touches),
    text_kind("slurm-conf", "slurm-conf-changed", slurm_conf_touches, read_slurm_conf),
)
