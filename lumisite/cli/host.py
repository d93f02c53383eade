"""`check --host`: the deployed release against a node."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from lumisite.cli.parser import say
from lumisite.errors import LumisiteError, ResolveError, shown
from lumisite.machine.host import DiskTree
from lumisite.release.node_check import HostFault, check_host
from lumisite.release.root import existing_root, inspect_release
from lumisite.release.trust import root_doubts
from lumisite.render.manifest import sha256_of
from lumisite.site.load import load_site

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lumisite.release.tree import Tree


def check_deployed(site_name: str, root_name: str | None, host_root: str, *, as_json: bool) -> int:
    """Print one line for each fault; 0 when there is none, 1 otherwise."""
    if "\0" in host_root or not Path(host_root).is_dir():
        raise ResolveError(f"--host-root: {host_root!r} is no directory (the root of a node, or of a copy of one)")
    loaded = load_site(site_name)
    place = Path(root_name or loaded.site.root)
    expected = "a root that users can enter, and its admins alone can change,"
    doubts = root_doubts(place, whole_way=str(place) == loaded.site.root)
    faults = [HostFault(one.path, expected, one.found, one.remedy) for one in doubts]
    if faults and not os.access(place, os.R_OK | os.X_OK, effective_ids=True):
        return _tell(faults, (), f"{place}: {_count(len(faults))}", as_json=as_json)
    root = existing_root(place)
    if not root.current:
        raise LumisiteError(f"{root.path}: no release is deployed there (`lumisite deploy OUT {root.path} --apply`)")
    release = inspect_release(root, root.current)
    faults += _edited(release)
    notes: tuple[str, ...] = ()
    looked_at = 0
    manifest = release.manifest
    if manifest.release:
        checked = check_host(loaded.site, manifest, DiskTree(host_root))
        faults += checked.faults
        notes, looked_at = checked.notes, checked.looked_at
        if manifest.inputs.get(loaded.file, "") != sha256_of(loaded.data):
            notes += (f"{loaded.file} is not as it was when {root.current} was rendered; its present text was used",)
    summary = f"{root.current} against {host_root}: {looked_at} things looked at, {_count(len(faults))}"
    return _tell(faults, notes, summary, as_json=as_json)


def _tell(faults: Sequence[HostFault], notes: Sequence[str], summary: str, *, as_json: bool) -> int:
    if as_json:
        print(json.dumps([asdict(fault) for fault in faults], indent=2))
    else:
        for fault in faults:
            print(shown(str(fault)))
    for note in (*notes, summary):
        say(note)
    return 1 if faults else 0


def _edited(release: Tree) -> Iterator[HostFault]:
    """Say where the release itself is not as it was deployed."""
    for fault in release.faults:
        path = str(release.path if fault.path == "." else release.path / fault.path)
        yield HostFault(path, "what was deployed", fault.what, "deploy it again, or roll back")


def _count(number: int) -> str:
    return "no fault" if not number else f"{number} fault{'' if number == 1 else 's'}"
