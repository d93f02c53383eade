"""`check --host`: the deployed release against a node."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from lumisite.cli.parser import check_host_root, say
from lumisite.errors import LumisiteError, shown
from lumisite.machine.host import DiskTree
from lumisite.release.node_check import HostFault, check_host
from lumisite.release.root import existing_root, inspect_release
from lumisite.release.trust import root_doubts
from lumisite.render.manifest import sha256_of
from lumisite.site.load import load_site


def check_deployed(site_name: str, root_name: str | None, host_root: str, *, as_json: bool) -> int:
    """Print one line for each fault; 0 when there is none, 1 otherwise."""
    check_host_root(host_root)
    loaded = load_site(site_name)
    place = Path(root_name or loaded.site.root)
    expected = "a root that users can enter, and its admins alone can change,"
    doubts = root_doubts(place, whole_way=str(place) == loaded.site.root)
    faults = [HostFault(one.path, expected, one.found, one.remedy) for one in doubts]
    if faults and not os.access(place, os.R_OK | os.X_OK, effective_ids=True):
        return _tell(faults, (), str(place), as_json=as_json)
    root = existing_root(place)
    if not root.current:
        raise LumisiteError(f"{root.path}: no release is deployed there (`lumisite deploy OUT {root.path} --apply`)")
    release = inspect_release(root, root.current)
    faults += [
        HostFault(str(release.path / fault.path), "what was deployed", fault.what, "deploy it again, or roll back")
        for fault in release.faults
    ]
    notes: tuple[str, ...] = ()
    looked_at = 0
    manifest = release.manifest
    if manifest.release:
        checked = check_host(loaded.site, manifest, DiskTree(host_root))
        faults += checked.faults
        notes, looked_at = checked.notes, checked.looked_at
        if manifest.inputs.get(loaded.file, "") != sha256_of(loaded.data):
            notes += (f"{loaded.file} is not as it was when {root.current} was rendered; its present text was used",)
    summary = f"{root.current} against {host_root}: {looked_at} things looked at"
    return _tell(faults, notes, summary, as_json=as_json)


def _tell(faults: Sequence[HostFault], notes: Sequence[str], summary: str, *, as_json: bool) -> int:
    if as_json:
        print(json.dumps([asdict(fault) for fault in faults], indent=2))
    else:
        for fault in faults:
            print(shown(str(fault)))
    for note in notes:
        say(note)
    say(f"{summary}, {len(faults)} fault{'s' * (len(faults) > 1)}" if faults else f"{summary}, no fault")
    return 1 if faults else 0
