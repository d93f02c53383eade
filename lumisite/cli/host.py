"""`check --host`: the deployed release against a node."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from lumisite.cli.chosen import default_site, own_site
from lumisite.cli.parser import check_root, say, tell
from lumisite.errors import LumisiteError, ResolveError, shown
from lumisite.machine.host import DiskTree, mounts_of
from lumisite.machine.tree import is_under
from lumisite.release.node_check import check_host
from lumisite.release.node_state import HostFault, name_of, shared_faults
from lumisite.release.root import existing_root, inspect_release
from lumisite.release.tree import Tree
from lumisite.release.trust import root_doubts
from lumisite.render.manifest import sha256_of
from lumisite.site.decode import parse_json
from lumisite.site.load import LoadedSite, load_site, read_input
from lumisite.site.model import Site
from lumisite.text import counted, drain_command

ALIKE = "the other nodes are alike: look at what they share, and at the site's description"


class Checked(NamedTuple):
    """What is wrong with a deployed release on a host, what was looked at, and what a new one would change."""

    faults: Sequence[HostFault]
    notes: Sequence[str]
    summary: str
    waiting: Sequence[str] = ()


def check_deployed(
    site_name: str, root_name: str | None, host_root: str, others: Sequence[Path] = (), *, as_json: bool
) -> int:
    """Print one line for each fault; 0 when there is none, 5 when only this node can be meant, 1 otherwise.

    `others` are files with what this printed as JSON on other nodes of the kind.
    """
    check_root(host_root)
    known = [_printed(file) for file in others]
    loaded, host = load_site(site_name or _site_of(Path(root_name or ""))), DiskTree(host_root)
    checked = checked_deployed(loaded, root_name, host)
    checked = checked._replace(faults=_compared(checked.faults, known))
    code, drain = judged(loaded.site, host, checked.faults)
    lines = [str(fault) for fault in checked.faults]
    # One node cannot tell what all of its kind have.
    only = "" if others else ", where others of its kind pass"
    lines += [f"to drain this node{only} (nothing runs it): {drain}"] if drain else []
    tell([_entry(fault, drain) for fault in checked.faults], map(shown, lines), as_json=as_json)
    for note in (*checked.notes, *checked.waiting):
        say(note)
    say(f"{checked.summary}, {counted(len(checked.faults), 'fault') if checked.faults else 'no fault'}")
    return code


def _site_of(place: Path) -> str:
    """Return the site of the release that is deployed in a root; raise `LumisiteError` where it is not known."""
    root = existing_root(place)
    named = inspect_release(root, root.current).manifest.site if root.current else ""
    name = own_site(named) if named else default_site().name
    if not name:
        raise ResolveError(f"--site: {place} has a release of site {shown(named)}, not embedded (name its description)")
    return name


def checked_deployed(loaded: LoadedSite, root_name: str | None, host: DiskTree, release: Tree | None = None) -> Checked:
    """Check the deployed `release` of a root (default: the site's) against a host.

    It is read where it is not given; raises `LumisiteError` where there is none.
    """
    place = Path(root_name or loaded.site.root)
    if root_name is None and not os.path.lexists(place):
        # Where the file system that holds the release is not mounted, that is the cause.
        everything = frozenset(one.path for one in loaded.site.file_systems)
        gone = list(shared_faults(loaded.site, everything, host, mounts_of(host)))
        if any(is_under(loaded.site.root, fault.path) for fault in gone):
            return Checked(gone, (), str(place))
    faults = list(root_doubts(place, whole_way=str(place) == loaded.site.root))
    if faults and not os.access(place, os.R_OK | os.X_OK, effective_ids=True):
        return Checked(faults, (), str(place))
    if release is None:
        root = existing_root(place)
        if not root.current:
            raise LumisiteError(
                f"{root.path}: no release is deployed there (`lumisite deploy OUT {root.path} --apply`)"
            )
        release = inspect_release(root, root.current)
    faults += [
        HostFault(str(release.path / fault.path), "what was deployed", fault.what, "deploy it again, or roll back")
        for fault in release.faults
    ]
    notes: list[str] = []
    waiting: list[str] = []
    looked_at = 0
    name, manifest = release.path.name, release.manifest
    if manifest.release:
        found, looked_at, notes = check_host(loaded.site, manifest, host)
        faults += found
        if manifest.inputs.get(loaded.file, "") != sha256_of(loaded.data):
            waiting.append(f"{loaded.file} is not as it was when {name} was rendered; its present text was used")
    return Checked(faults, notes, f"{name} against {host.name}: {looked_at} things looked at", waiting)


def judged(site: Site, host: DiskTree, faults: Sequence[HostFault]) -> tuple[int, str | None]:
    """Give the exit code of faults, and the command that drains the node where it alone can be meant."""
    name = name_of(site, host)
    alone = [fault.path for fault in faults if fault.alone]
    drain = drain_command([name], ", ".join(dict.fromkeys(alone))) if name is not None and alone else None
    return (0 if not faults else 5 if drain and len(alone) == len(faults) else 1), drain


def _printed(file: Path) -> frozenset[tuple[str, str]]:
    """Read what `check --host --json` printed on another node: the path of each fault, and what was found there."""
    entries = parse_json(read_input(file, right="what `lumisite check --host --json` prints"), str(file))
    try:
        return frozenset((str(one["path"]), str(one["found"])) for one in entries)
    except (KeyError, TypeError):
        raise LumisiteError(f"{file}: is not what `lumisite check --host --json` prints on another node") from None


def _compared(faults: Sequence[HostFault], known: Sequence[frozenset[tuple[str, str]]]) -> list[HostFault]:
    """Return the faults, those that all other nodes have too as none of this node alone."""
    return [
        replace(fault, alone=False, remedy=f"{fault.remedy}; {ALIKE}")
        if known and all((fault.path, fault.found) in one for one in known)
        else fault
        for fault in faults
    ]


def _entry(fault: HostFault, drain: str | None) -> dict[str, str]:
    """Give the JSON of a fault; the command that drains the node comes with what is wrong with it alone."""
    said = {"path": fault.path, "expected": fault.expected, "found": fault.found, "remedy": fault.remedy}
    return said | ({"drain": drain} if drain and fault.alone else {})
