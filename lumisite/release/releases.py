"""The list of the releases in a deployment root."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lumisite.release.history import deployed_step, way_back
from lumisite.release.root import Release, Root, inspect_release, release_names
from lumisite.release.tree import Fault
from lumisite.render.manifest import NO_MANIFEST, sha256_of


@dataclass(frozen=True)
class Listed:
    """One release.

    `role` is `current`, `before` (where rollback goes) or empty; `inputs` is one hash over all inputs.
    """

    release: str
    role: str
    deployed: str
    by: str
    site: str
    platform: str
    cpe: tuple[str, ...]
    rocm: tuple[str, ...]
    lumisite: str
    inputs: str
    state: str
    faults: tuple[Fault, ...]


def list_releases(root: Root) -> tuple[Listed, ...]:
    """Give every release in a root and the one that the link names, the newest first."""
    way = way_back(root.steps, root.current)
    roles = {**({way[-2]: "before"} if len(way) > 1 else {}), root.current: "current"}
    listed = [_listed(root, inspect_release(root, name), roles.get(name, "")) for name in release_names(root)]
    order = {step.release: number for number, step in enumerate(root.steps) if step.action == "deploy"}
    return tuple(sorted(listed, key=lambda one: (order.get(one.release, -1), one.deployed, one.release), reverse=True))


def table_lines(listed: Sequence[Listed]) -> list[str]:
    """Give an aligned table: plain text, since short columns need no library and `awk` reads them."""
    head = ("", "RELEASE", "DEPLOYED", "SITE", "PLATFORM", "CPE", "ROCM", "LUMISITE", "INPUTS", "STATE")
    rows = [head, *(_row(release) for release in listed)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def to_json(listed: Sequence[Listed]) -> list[dict[str, Any]]:
    """Give the list as JSON values."""
    return [{**asdict(release), "faults": [str(fault) for fault in release.faults]} for release in listed]


def _row(release: Listed) -> tuple[str, ...]:
    mark = {"current": "*", "before": "<"}.get(release.role, " ")
    versions = (",".join(release.cpe), ",".join(release.rocm))
    cells = (release.release, release.deployed, release.site, release.platform, *versions)
    return (mark, *(cell or "-" for cell in (*cells, release.lumisite, release.inputs[:12], release.state)))


def _listed(root: Root, found: Release, role: str) -> Listed:
    manifest = found.tree.manifest if found.tree else NO_MANIFEST
    step = deployed_step(root.steps, found.release)
    return Listed(
        release=found.release,
        role=role,
        deployed=step.time if step else found.changed,
        by=step.by if step else "",
        site=manifest.site,
        platform=manifest.platform,
        cpe=manifest.cpe,
        rocm=manifest.rocm,
        lumisite=manifest.lumisite,
        inputs=sha256_of(json.dumps(dict(manifest.inputs), sort_keys=True).encode()) if found.tree else "",
        state=found.state,
        faults=found.faults,
    )
