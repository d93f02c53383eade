"""The list of the releases in a deployment root."""

from __future__ import annotations

import json
from typing import Any

from lumisite.release.history import deployed_step, way_back
from lumisite.release.root import Root, inspect_release, release_names
from lumisite.render.manifest import NO_MANIFEST, sha256_of


def list_releases(root: Root) -> list[dict[str, Any]]:
    """Give every release in a root and the one that the link names, the newest first, by the keys of the JSON.

    `role` is `current`, `before` (where rollback goes) or empty; `inputs` is one hash over all inputs.
    """
    way = way_back(root.steps, root.current)
    roles = {**({way[-2]: "before"} if len(way) > 1 else {}), root.current: "current"}
    listed = [_listed(root, name, roles.get(name, "")) for name in release_names(root)]
    order = {step.release: number for number, step in enumerate(root.steps) if step.action == "deploy"}
    listed.sort(key=lambda one: (order.get(one["release"], -1), one["deployed"], one["release"]), reverse=True)
    return listed


def _listed(root: Root, name: str, role: str) -> dict[str, Any]:
    found = inspect_release(root, name)
    manifest = found.tree.manifest if found.tree else NO_MANIFEST
    step = deployed_step(root.steps, name)
    return {
        "release": name,
        "role": role,
        "deployed": step.time if step else found.changed,
        "by": step.by if step else "",
        "site": manifest.site,
        "platform": manifest.platform,
        "cpe": manifest.cpe,
        "rocm": manifest.rocm,
        "lumisite": manifest.lumisite,
        "inputs": sha256_of(json.dumps(dict(manifest.inputs), sort_keys=True).encode()) if found.tree else "",
        "state": found.state,
        "faults": found.faults,
    }
