"""`check --host`: the deployed release against a node."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from lumisite.cli.parser import check_host_root, say
from lumisite.errors import LumisiteError, shown
from lumisite.machine.host import DiskTree
from lumisite.release.node_check import HostFault, check_host
from lumisite.release.root import existing_root, inspect_release
from lumisite.render.manifest import sha256_of
from lumisite.site.load import load_site


def check_deployed(site_name: str, root_name: str | None, host_root: str, *, as_json: bool) -> int:
    """Print one line for each fault; 0 when there is none, 1 otherwise."""
    check_host_root(host_root)
    loaded = load_site(site_name)
    root = existing_root(Path(root_name or loaded.site.root))
    if not root.current:
        raise LumisiteError(f"{root.path}: no release is deployed there (`lumisite deploy OUT {root.path} --apply`)")
    release = inspect_release(root, root.current)
    faults = [
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
    if as_json:
        print(json.dumps([asdict(fault) for fault in faults], indent=2))
    else:
        for fault in faults:
            print(shown(str(fault)))
    for note in notes:
        say(note)
    count = f"{len(faults)} fault{'s' * (len(faults) > 1)}" if faults else "no fault"
    say(f"{root.current} against {host_root}: {looked_at} things looked at, {count}")
    return 1 if faults else 0
