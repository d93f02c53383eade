"""`status`: what is deployed, whether it fits this machine, what is waiting, and what to do next."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

from lumisite.cli.arguments import add_host_root, add_json
from lumisite.cli.chosen import default_site, own_site
from lumisite.cli.host import checked_deployed, judged
from lumisite.cli.parser import check_root, tell
from lumisite.errors import LumisiteError, shown
from lumisite.machine.host import DiskTree
from lumisite.release.root import Root, existing_root, inspect_release, list_releases, release_row
from lumisite.release.tree import Tree
from lumisite.site.load import LoadedSite, load_site
from lumisite.text import columns

_MOST_FAULTS = 5


def add_status(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `status`."""
    parser.description = (
        "Say which release users load, of which site, whether it is whole and fits this node (as `check --host`), "
        "what the site description has that it lacks, and the next command. The exit code is that of `check --host`, "
        "and 4 where the site of the release is not known (--site names it)."
    )
    parser.add_argument("root", metavar="ROOT", nargs="?", help="the deployment root (default: the site's)")
    parser.add_argument(
        "--site",
        metavar="NAME|FILE",
        help="the site (default: the one that the release is of, by LUMISITE_SITE or embedded)",
    )
    add_host_root(parser)
    add_json(parser)


def run_status(arguments: argparse.Namespace) -> int:
    """Print the status; the exit code is that of `check --host`, and 4 where nothing can tell."""
    check_root(arguments.host_root)
    name = arguments.site or ("" if arguments.root else default_site().name)
    loaded = load_site(name) if name else None
    root = existing_root(Path(loaded.site.root if loaded and not arguments.root else arguments.root))
    release = inspect_release(root, root.current) if root.current else None
    if release and not name and (name := own_site(release.manifest.site)):
        loaded = load_site(name)
    code, status = _status(root, release, (name, loaded), DiskTree(arguments.host_root))
    tell(status, _lines(status), as_json=arguments.json)
    return code


def _status(
    root: Root, release: Tree | None, site: tuple[str, LoadedSite | None], host: DiskTree
) -> tuple[int, dict[str, Any]]:
    """Give the exit code and the keys of the JSON; `site` has the name by which it was asked for."""
    name, loaded = site
    place = shlex.quote(str(root.path))
    status: dict[str, Any] = {"root": str(root.path), "release": root.current or None}
    if release is None:
        there = f"lumisite releases {place}, then lumisite rollback {place} ID" if list_releases(root) else ""
        render = f"lumisite render --site {shlex.quote(name) if name else 'NAME|FILE'}"
        return 1, {**status, "next": there or f"{render}, then lumisite deploy OUT {place} --apply"}
    current = release_row(root, release)
    keys = ("site", "platform", "stacks", "deployed", "by", "lumisite", "state")
    before = root.before if root.before and root.release(root.before).exists() else None
    status |= {**{key: current[key] for key in keys}, "before": before}
    over = " --set-edits-aside" if current["state"] != "whole" else ""
    back = f"lumisite rollback {place}" if before else f"lumisite deploy OUT {place} --apply{over}"
    if loaded is None:
        why = f"{shown(current['site'])} is no embedded site" if current["site"] else "its manifest cannot be read"
        status |= {"fits": None, "faults": [why], "waiting": []}
        mend = f"lumisite status {place} --site FILE" if current["site"] else back
        return 4 if current["site"] else 1, {**status, "next": mend}
    try:
        checked = checked_deployed(loaded, str(root.path), host, release)
    except LumisiteError as error:  # such as a release for what the site description does not have
        return 1, {**status, "fits": False, "faults": [str(error)], "waiting": [], "next": back}
    code, drain = judged(loaded.site, host, checked.faults)
    newer, waiting = loaded.site.platform, list(checked.waiting)
    if newer != current["platform"]:
        waiting.append(f"the site is platform {newer} now")
    render = f"lumisite render --site {shlex.quote(name)} --out site-out, then lumisite diff site-out {place}"
    how = f"lumisite check {shlex.quote(name)} --host --root {place}"
    mend = back if current["state"] != "whole" else drain or how
    status |= {"fits": not checked.faults, "faults": list(map(str, checked.faults)), "waiting": waiting}
    return code, {**status, "next": mend if checked.faults else render if waiting else "nothing"}


def _lines(status: dict[str, Any]) -> list[str]:
    """Give the status in rows, as much as fits on a screen."""
    if status["release"] is None:
        return [f"{status['root']}: no release is deployed", f"next: {status['next']}"]
    stacks = ", ".join(f"{stack} {' '.join(versions)}" for stack, versions in status["stacks"].items())
    faults = status["faults"]
    fits = "cannot be told" if status["fits"] is None else "yes" if status["fits"] else f"no ({len(faults)})"
    rows = [
        ("root", f"{status['root']} of site {shown(status['site'] or '-')}"),
        ("release", f"{status['release']}, {status['state']}"),
        ("for", f"platform {shown(status['platform'] or '-')}{f', {stacks}' if stacks else ''}"),
        ("deployed", f"{status['deployed']}{' by ' + status['by'] if status['by'] else ''}"),
        ("before it", status["before"] or "none"),
        ("fits", fits),
        *(("", shown(fault.split("; ")[0])) for fault in faults[:_MOST_FAULTS]),
        *([("", f"and {len(faults) - _MOST_FAULTS} more")] if len(faults) > _MOST_FAULTS else []),
        ("waiting", "; ".join(status["waiting"]) or "nothing"),
        ("next", status["next"]),
    ]
    return list(columns(rows))
